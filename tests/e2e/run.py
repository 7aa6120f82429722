"""Runs every cell, judges it, prints the tables; ends non-zero if a cell is red."""

import argparse
import json
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import install
import judge
import servers
import tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "target" / "e2e"

RUNNERS_AT_ONCE = 3
RUNNER_TIMEOUT = 280  # seconds; only there so that nothing hangs

PYTHON = [
    "openai",
    "anthropic",
    "google-genai",
    "boto3",
    "boto3, bearer token",
    "mistralai",
    "cohere",
    "ollama",
]
NPM = [
    "openai",
    "@anthropic-ai/sdk",
    "@google/genai",
    "ai + @ai-sdk/openai",
    "ai + @ai-sdk/openai-compatible",
    "ai + @ai-sdk/anthropic",
    "ai + @ai-sdk/google",
]
RUST = ["async-openai", "genai"]
FRAMEWORKS = ["LangChain", "pydantic-ai", "openai-agents"]
NPM_FRAMEWORKS = ["AI SDK"]


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def options():
    parser = argparse.ArgumentParser(prog="scripts/e2e", description=__doc__)
    parser.add_argument("--frameworks", action="store_true", help="only the agent frameworks")
    parser.add_argument("--clients", action="store_true", help="only the SDKs")
    parser.add_argument("--only", metavar="NAME", help="only runners whose name contains this")
    parser.add_argument(
        "--write", action="store_true", help="write the tables into docs and README"
    )
    parser.add_argument(
        "--endstop", metavar="FILE", help="a built endstop, instead of building one"
    )
    parser.add_argument(
        "--use", metavar="VIA=URL", action="append", default=[],
        help="servers that already run (direct=, observe=, guard=), instead of starting our own",
    )  # fmt: skip
    return parser.parse_args()


def wanted(args):
    """The runners to start: `(kind, name)`."""
    both = args.frameworks == args.clients
    all_runners = []
    if both or args.frameworks:
        all_runners += [("framework", name) for name in FRAMEWORKS]
        all_runners += [("npm framework", name) for name in NPM_FRAMEWORKS]
    if both or args.clients:
        all_runners += [("npm", name) for name in NPM]
        all_runners += [("rust", name) for name in RUST]
        all_runners += [("python", name) for name in PYTHON]
    only = (args.only or "").lower()
    return [runner for runner in all_runners if only in " ".join(runner).lower()]


def command(kind, name, tools, ways):
    """The command line of a runner."""
    is_framework = kind in ("framework", "npm framework")
    scenarios = judge.RUN_SCENARIOS if is_framework else judge.CALL_SCENARIOS
    roots = [word for via, root in ways.items() for word in (f"--{via}", root)]
    asked = [name, *roots, "--scenarios", ",".join(scenarios)]
    if is_framework:
        asked += ["--scratch", str(CACHE / "written")]
    if kind == "rust":
        return [str(tools.rust), *asked]
    script = "frameworks" if is_framework else "clients"
    if kind.startswith("npm"):
        return ["node", str(tools.node / f"{script}.mjs"), *asked]
    return [str(tools.python), str(HERE / f"{script}.py"), *asked]


def run(kind, name, tools, ways):
    """Runs one runner to its end; its cells, and what went wrong with the runner itself."""
    try:
        done = subprocess.run(
            command(kind, name, tools, ways), capture_output=True, text=True, timeout=RUNNER_TIMEOUT
        )
    except subprocess.TimeoutExpired as late:
        return lines((late.stdout or b"").decode()), f"{kind} {name} did not end"
    trouble = f"{kind} {name} failed: {done.stderr[-2000:]}" if done.returncode else None
    return lines(done.stdout), trouble


def lines(text):
    """The cells among what a runner printed; an SDK may print lines of its own."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def run_all(runners, tools, ways):
    cells, troubles = [], []
    pool = ThreadPoolExecutor(RUNNERS_AT_ONCE)
    try:
        running = {pool.submit(run, *runner, tools, ways): runner for runner in runners}
        for count, future in enumerate(as_completed(running), 1):
            some, trouble = future.result()
            cells += some
            troubles += [trouble] if trouble else []
            say(f"e2e: {count}/{len(runners)} {' '.join(running[future])}: {len(some)} cells")
    finally:
        pool.shutdown(cancel_futures=True)
    return cells, troubles


def require(*programs):
    for program in programs:
        if shutil.which(program) is None:
            sys.exit(f"e2e: {program} is missing: install it, then run this again")


def keep(cells):
    """All facts, for whoever wants to know more than the tables say."""
    CACHE.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(cell, ensure_ascii=False) + "\n" for cell in cells)
    (CACHE / "cells.jsonl").write_text(text)


def main():
    args = options()
    runners = wanted(args)
    if not runners:
        sys.exit(f"e2e: no runner is called {args.only!r}")
    require("cargo", "node", "npm")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    install.clear(CACHE / "written")
    tools = install.tools(HERE, CACHE, {kind for kind, _ in runners}, say)
    with servers.started(args, ROOT, CACHE, say) as ways:
        cells, troubles = run_all(runners, tools, ways)
        asked = servers.tags(ways["direct"])
    keep(cells)
    verdict = judge.judge(cells, asked)
    page = tables.page(verdict)
    print(page)
    if args.write:
        tables.write(ROOT, verdict, install.versions(HERE))
    for trouble in troubles:
        say("e2e:", trouble)
    for red in verdict.reds:
        say("e2e: RED", red)
    say(f"e2e: {len(cells)} cells, {len(verdict.reds)} red, {len(troubles)} runners failed")
    sys.exit(1 if verdict.reds or troubles else 0)


if __name__ == "__main__":
    main()
