"""An OTLP receiver on the official `opentelemetry-proto` package.

It prints its port, and then each span and each metric that it accepts, as one line of JSON. With the argument `names`
it prints the names of the published `opentelemetry-semantic-conventions` package instead.
"""

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def value_of(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in any_value.array_value.values]
    return getattr(any_value, kind) if kind else None


def attributes_of(pairs):
    return {pair.key: value_of(pair.value) for pair in pairs}


def spans_of(body):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest.FromString(body)
    refuse_unknown(request)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "signal": "span",
                    "resource": attributes_of(resource.resource.attributes),
                    "scope": scope.scope.name,
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "status": span.status.code,
                    "attributes": attributes_of(span.attributes),
                }


def metrics_of(body):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest.FromString(body)
    refuse_unknown(request)
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                points = []
                for point in data.data_points:
                    count = point.count if kind == "histogram" else point.as_int
                    points.append({
                        "attributes": attributes_of(point.attributes),
                        "count": count,
                        "sum": point.sum if kind == "histogram" else None,
                        "bounds": list(point.explicit_bounds) if kind == "histogram" else None,
                        "buckets": list(point.bucket_counts) if kind == "histogram" else None,
                    })
                yield {
                    "signal": "metric",
                    "name": metric.name,
                    "unit": metric.unit,
                    "kind": kind,
                    "temporality": data.aggregation_temporality,
                    "points": points,
                }


def refuse_unknown(request):
    """Raises if the bytes have fields that the official messages do not know."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    def check(message):
        if len(UnknownFieldSet(message)):
            raise ValueError(f"unknown fields in {message.DESCRIPTOR.full_name}")
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                for each in value if field.is_repeated else [value]:
                    check(each)

    check(request)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            if self.headers["content-type"] != "application/x-protobuf":
                raise ValueError("content type")
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            read = {"/v1/traces": spans_of, "/v1/metrics": metrics_of}[self.path]
            lines = [json.dumps(each) for each in read(body)]
        except Exception as error:
            print(json.dumps({"signal": "error", "error": repr(error)}), flush=True)
            self.answer(400)
            return
        for line in lines:
            print(line, flush=True)
        self.answer(200)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Meter:
    """Notes the instruments that the package creates."""

    def create_histogram(self, name, description="", unit=""):
        return {"name": name, "kind": "histogram", "unit": unit}

    def create_counter(self, name, description="", unit=""):
        return {"name": name, "kind": "counter", "unit": unit}


def names():
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
    from opentelemetry.semconv.attributes import error_attributes

    attributes = [
        value
        for module in (gen_ai_attributes, error_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    ]
    makers = [make for name, make in vars(gen_ai_metrics).items() if name.startswith("create_")]
    providers = [each.value for each in gen_ai_attributes.GenAiProviderNameValues]
    print(json.dumps({
        "attributes": attributes,
        "metrics": [make(Meter()) for make in makers],
        "providers": providers,
    }))


if sys.argv[1:] == ["names"]:
    names()
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    print(server.server_address[1], flush=True)
    server.serve_forever()
