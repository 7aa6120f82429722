"""A tool server over standard input and output (Model Context Protocol) with one tool that has no
parameters: `ran` appends a line to the file that the command line names."""

import json
import sys
from pathlib import Path

TOOL = {
    "name": "ran",
    "description": "Appends a line to the file.",
    "inputSchema": {"type": "object", "properties": {}},
}


def answer(method, params):
    if method == "initialize":
        version = params.get("protocolVersion", "2025-06-18")
        info = {"name": "mark", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        with Path(sys.argv[1]).open("a") as file:
            file.write("ran\n")
        return {"content": [{"type": "text", "text": "appended"}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
