"""Starts the simulated providers and the two gateways on free loopback ports, and ends them."""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import coding_agents

START = 60  # seconds until a server must listen

# The route of the gateway, and what the simulated provider's base URL ends with.
UPSTREAMS = {
    "openai": "/openai/v1",
    "anthropic": "/anthropic",
    "gemini": "/gemini",
    "mistral": "/mistral",
    "cohere": "/cohere",
    "ollama": "/ollama",
    "bedrock": "/bedrock",
}


@contextlib.contextmanager
def started(args, root, cache, say):
    """The roots by the way to the provider; what was started here is ended here."""
    if args.use:
        yield dict(way.split("=", 1) for way in args.use)
        return
    endstop = Path(args.endstop) if args.endstop else build(root, say)
    with contextlib.ExitStack() as stack:
        sim = free_port()
        calls = ["--tool", ",".join(["write_file", *coding_agents.TOOLS]), "--command", coding_agents.COMMAND]
        command = [endstop, "sim", "--listen", f"127.0.0.1:{sim}", *calls]
        stack.enter_context(server(command, sim, cache / "sim.log"))
        ways = {"direct": f"http://127.0.0.1:{sim}"}
        for mode in ("observe", "guard"):
            port = free_port()
            config = gateway_config(cache, mode, port, sim)
            command = [endstop, "serve", "--config", config]
            stack.enter_context(server(command, port, cache / f"{mode}.log"))
            ways[mode] = f"http://127.0.0.1:{port}"
        yield ways


def build(root, say):
    say("e2e: building endstop")
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet", "-p", "endstop-cli"],
        cwd=root,
        check=True,
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return target / "release" / "endstop"


def gateway_config(cache, mode, port, sim, keep_waiting="300ms"):
    lines = [
        f'listen = "127.0.0.1:{port}"',
        f'admin = "127.0.0.1:{free_port()}"',
        f'mode = "{mode}"',
        f'data = "{cache / (mode + "-data")}"',
        f'store = "sqlite:{cache / (mode + "-data") / "endstop.db"}"',
    ]
    for name, path in UPSTREAMS.items():
        lines += [f"[upstreams.{name}]", f'base_url = "http://127.0.0.1:{sim}{path}"']
    # By default below the hold of a late finish reason, so that clients get keep-alives.
    lines += ["[limits]", f'keep_waiting = "{keep_waiting}"']
    file = cache / f"{mode}.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


@contextlib.contextmanager
def server(command, port, log):
    """A child process that listens; ended by its own handle, whatever happens."""
    # The gateway signs Bedrock requests itself; these keys open nothing.
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with log.open("wb") as output:
        child = subprocess.Popen(
            [str(word) for word in command], stdout=output, stderr=output, env=environment
        )
        try:
            wait_for(port, child, log)
            yield
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def wait_for(port, child, log):
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"e2e: {child.args[1]} does not listen: {log.read_text()[-2000:]}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ledger(sim):
    """The requests that the simulated provider saw."""
    with urllib.request.urlopen(f"{sim}/sim/ledger", timeout=30) as answer:
        return json.load(answer)["entries"]


def tags(sim):
    """The tags of the requests that the simulated provider saw, one per request."""
    return [entry["tag"] for entry in ledger(sim)]


# Requests that are not for the turn: the answer to a tool result, titles and the like.
BESIDES = ("(tool result: complete)", "(no tool to call)")


def turns(sim):
    """The requests for the turn of a cell."""
    return [
        entry
        for entry in ledger(sim)
        if entry["wire"] and entry["scenario"] and not entry["scenario"].endswith(BESIDES)
    ]


def count_requests(sim, cells):
    """Notes in each cell how often its turn was asked for: by its tag, or by its own model name."""
    wanted = [cell for cell in cells if "agent" in cell or "model" in cell]
    if not wanted:
        return
    asked = turns(sim)
    for cell in wanted:
        mine = "agent" in cell and cell["tag"]
        cell["requests"] = sum(
            entry["tag"] == mine if mine else entry["model"].endswith(cell["model"])
            for entry in asked
        )
