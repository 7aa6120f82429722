"""A real client with a short read timeout, behind a gate that holds for longer.

boto3 reads a Converse stream with two tool calls, the second of which takes seconds. The gate holds the
first until the response is complete. With `keep_waiting` below boto3's read timeout both calls arrive;
with a longer one boto3 gives up, which shows that the hold is long enough to matter.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import install
import servers

HERE = Path(__file__).resolve().parent
PACE = 700  # milliseconds between two events
READ_TIMEOUT = 2  # seconds


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def client(root):
    """The other half: runs in the environment of the SDKs, and prints the calls or the error."""
    import boto3
    from botocore.config import Config

    config = Config(read_timeout=READ_TIMEOUT, retries={"total_max_attempts": 1})
    bedrock = boto3.session.Session().client(
        "bedrock-runtime", endpoint_url=f"{root}/bedrock/us-east-1", region_name="us-east-1",
        aws_access_key_id="a", aws_secret_access_key="b", config=config,
    )  # fmt: skip
    tool = {"toolSpec": {"name": "write_file", "inputSchema": {"json": {"type": "object"}}}}
    calls = {}
    try:
        answer = bedrock.converse_stream(
            modelId="sim-tool-call-parallel",
            messages=[{"role": "user", "content": [{"text": "Go."}]}],
            toolConfig={"tools": [tool]},
        )
        for event in answer["stream"]:
            if delta := event.get("contentBlockDelta", {}):
                text = delta["delta"].get("toolUse", {}).get("input", "")
                at = delta["contentBlockIndex"]
                calls[at] = calls.get(at, "") + text
            if stop := event.get("messageStop"):
                print(json.dumps({"stop": stop["stopReason"], "calls": [text for text in calls.values() if text]}))
    except Exception as error:  # noqa: BLE001 whatever boto3 raises is the fact we are after
        print(json.dumps({"raised": type(error).__name__}))


def ask(endstop, keep_waiting):
    """What boto3 gets from a gateway with this `keep_waiting`."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        scratch = Path(scratch)
        sim, port = servers.free_port(), servers.free_port()
        command = [endstop, "sim", "--listen", f"127.0.0.1:{sim}", "--pace", str(PACE)]
        stack.enter_context(servers.server(command, sim, scratch / "sim.log"))
        config = servers.gateway_config(scratch, "guard", port, sim, keep_waiting)
        command = [endstop, "serve", "--config", config]
        stack.enter_context(servers.server(command, port, scratch / "guard.log"))
        python = install.python("sdks", say)
        asked = [python, __file__, f"http://127.0.0.1:{port}"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def main():
    endstop = servers.build(HERE.parent.parent, say)
    got = ask(endstop, "500ms")
    whole = got.get("stop") == "tool_use" and len(got["calls"]) == 2
    if not whole or not all(isinstance(json.loads(call), dict) for call in got["calls"]):
        sys.exit(f"holds: boto3 must get both calls while the gate keeps it waiting, got {got}")
    got = ask(endstop, "60s")
    if got != {"raised": "ReadTimeoutError"}:
        sys.exit(f"holds: without keep-alives boto3 must time out, got {got}: the hold is too short to show anything")
    say(f"holds: boto3 with a read timeout of {READ_TIMEOUT} s waits for a gate that holds longer")


if __name__ == "__main__":
    client(sys.argv[1]) if len(sys.argv) > 1 else main()
