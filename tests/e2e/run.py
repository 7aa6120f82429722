"""Runs real SDKs, agent frameworks and coding agents against simulated providers, directly and through
the gateway, judges every cell and prints the tables. Ends non-zero if a cell is red.

Without --all only a part is run, in at most ten minutes: each agent behind guard in all unfinished
scenarios and two complete ones, and of the rest a part that the seed chooses."""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import coding_agents
import install
import judge
import servers
import tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target" / "e2e"

RUNNERS_AT_ONCE = 3
RUNNER_TIMEOUT = 900  # seconds; only there so that nothing hangs
AGENT_TIMEOUT = 3600

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
# The frameworks, and the environment of each: they do not agree on the versions of what they share.
FRAMEWORKS = {
    "LangChain": "sdks",
    "LangGraph": "sdks",
    "pydantic-ai": "sdks",
    "openai-agents": "sdks",
    "LiteLLM": "litellm",
    "LlamaIndex": "llamaindex",
    "CrewAI": "crewai",
    "google-adk": "adk",
}
NPM_FRAMEWORKS = {"AI SDK": "node", "Mastra": "mastra", "LangGraph.js": "langgraph-js"}
AGENTS = ["Claude Code", "Codex", "opencode"]
# Agents that are tried only in a whole run.
MORE_AGENTS = ["gemini-cli", "qwen-code"]

# Without --all: the part of what is not always run. An agent that asks again and again would take most
# of the ten minutes, so that it is ended by the number of its requests. (Claude Code asks four times and
# then fails.) Its time is long enough for a busy machine.
PART = 0.2
PART_LIMIT = 300
PART_ENOUGH = 5


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def options():
    parser = argparse.ArgumentParser(prog="scripts/e2e", description=__doc__)
    parser.add_argument("--agents", action="store_true", help="only the coding agents")
    parser.add_argument("--frameworks", action="store_true", help="only the agent frameworks")
    parser.add_argument("--clients", action="store_true", help="only the SDKs")
    parser.add_argument(
        "--endings", action="store_true",
        help="only how clients take the ends that a gateway could send; never part of the others",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every scenario, not only a part")
    parser.add_argument("--seed", help="chooses the part; the commit if it is not given")
    parser.add_argument(
        "--limit", type=int, metavar="SECONDS",
        help=f"of an agent's cell: {coding_agents.LIMIT} with --all, else {PART_LIMIT}",
    )  # fmt: skip
    parser.add_argument("--only", metavar="NAME", help="only runners whose name contains this")
    parser.add_argument(
        "--write", action="store_true",
        help="everything, and write the tables into docs and README",
    )  # fmt: skip
    parser.add_argument(
        "--endstop", metavar="FILE", help="a built endstop, instead of building one"
    )
    parser.add_argument(
        "--use", metavar="VIA=URL", action="append", default=[],
        help="servers that already run (direct=, observe=, guard=), instead of starting our own",
    )  # fmt: skip
    args = parser.parse_args()
    if args.write and args.only:
        parser.error("--write takes a whole run: leave --only out")
    args.all = args.all or args.write or args.endings
    args.limit = args.limit or (coding_agents.LIMIT if args.all else PART_LIMIT)
    return args


def wanted(args):
    """The runners to start: `(kind, name)`."""
    every = not (args.frameworks or args.clients or args.agents or args.endings)
    all_runners = []
    if every or args.frameworks:
        all_runners += [("framework", name) for name in FRAMEWORKS]
        all_runners += [("npm framework", name) for name in NPM_FRAMEWORKS]
    if every or args.clients or args.endings:
        all_runners += [("npm", name) for name in NPM]
        all_runners += [("rust", name) for name in RUST]
        all_runners += [("python", name) for name in PYTHON]
    if every or args.agents:
        agents = AGENTS + MORE_AGENTS if args.all else AGENTS
        all_runners += [("agent", name) for name in agents]
    if args.endings:
        all_runners += [("agent", name) for name in coding_agents.AGENTS]
    only = (args.only or "").lower()
    return [runner for runner in all_runners if only in " ".join(runner).lower()]


class Plan:
    """What each runner is asked for: everything, or a part that a seed chooses."""

    def __init__(self, args):
        self.all, self.endings, self.limit = args.all, args.endings, args.limit
        self.seed = args.seed or commit()

    def some(self, name, always, rest):
        """All that is always run, and a part of the rest, always the same for one seed and name."""
        if self.all:
            return always + rest
        chooser = random.Random(f"{self.seed} {name}")
        return always + sorted(chooser.sample(rest, round(len(rest) * PART)), key=rest.index)

    def scenarios(self, kind, name):
        if self.endings:
            return [
                f"{place}={ending}" for place in judge.ENDING_PLACES for ending in judge.ENDINGS
            ]
        if kind in ("framework", "npm framework"):
            return self.some(
                name, ["tool-call"], [name for name in judge.RUN_SCENARIOS if name != "tool-call"]
            )
        return self.some(
            name, ["tool-call", "cut-after-args"],
            [name for name in judge.CALL_SCENARIOS if name not in ("tool-call", "cut-after-args")],
        )  # fmt: skip

    def retried(self, name):
        return judge.RETRY_SCENARIOS + judge.ONCE_SCENARIOS if self.all else []

    def agent_cells(self, name):
        """`wire/scenario/via/retries`, as `coding_agents.py` takes them."""
        always, rest = [], []
        for wire in coding_agents.AGENTS[name][1]:
            for scenario, retries in self.agent_rows(wire):
                if retries == "default" and not self.all:
                    continue  # the requests of a minute are counted in a whole run
                for via in ("direct",) if self.endings else ("direct", "guard"):
                    needed = via == "guard" and judge.is_always_run(scenario, retries)
                    (always if needed else rest).append(f"{wire}/{scenario}/{via}/{retries}")
        return self.some(name, always, rest)

    def agent_rows(self, wire):
        if not self.endings:
            return judge.agent_rows(wire)
        return [
            (f"{place}={ending}", "lowered")
            for place in judge.ENDING_PLACES
            for ending in judge.ENDINGS
            if judge.is_ending_of(wire, place, ending)
        ]


def commit():
    """The commit that is tested, which makes the part another one each time."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "none"


def command(kind, name, plan, ways):
    """The command line of a runner; installs what it needs."""
    if kind == "agent":
        programs = install.environment(coding_agents.AGENTS[name][0], say) / "node_modules" / ".bin"
        roots = [word for via, root in ways.items() for word in (f"--{via}", root)]
        where = ["--programs", str(programs), "--kept", str(TARGET / "runs" / name)]
        where += ["--limit", str(plan.limit)]
        where += [] if plan.all else ["--enough", str(PART_ENOUGH)]
        return [sys.executable, str(HERE / "coding_agents.py"), name, *roots, *where, *plan.agent_cells(name)]
    ways = {"direct": ways["direct"]} if plan.endings else ways
    is_framework = kind in ("framework", "npm framework")
    roots = [word for via, root in ways.items() for word in (f"--{via}", root)]
    asked = [name, *roots, "--scenarios", ",".join(plan.scenarios(kind, name))]
    if is_framework:
        retried = " ".join(plan.retried(name))
        asked += ["--scratch", str(TARGET / "written"), "--retried", retried]
    if kind == "rust":
        return [str(install.rust_client(install.cache() / "rust-client", say)), *asked]
    script = "frameworks" if is_framework else "clients"
    if kind.startswith("npm"):
        environment = NPM_FRAMEWORKS.get(name, "node") if is_framework else "node"
        folder = install.scripts_beside(environment, TARGET, say)
        return ["node", str(folder / f"{script}.mjs"), *asked]
    environment = FRAMEWORKS[name] if is_framework else "sdks"
    return [str(install.python(environment, say)), str(HERE / f"{script}.py"), *asked]


def run(kind, name, asked, sim):
    """Runs one runner to its end; its cells, and what went wrong with the runner itself."""
    limit = AGENT_TIMEOUT if kind == "agent" else RUNNER_TIMEOUT
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=limit)
        trouble = f"{kind} {name} failed: {done.stderr[-2000:]}" if done.returncode else None
        cells = lines(done.stdout)
    except subprocess.TimeoutExpired as late:
        cells, trouble = lines((late.stdout or b"").decode()), f"{kind} {name} did not end"
    servers.count_requests(sim, cells)
    return cells, trouble


def lines(text):
    """The cells among what a runner printed; an SDK may print lines of its own."""
    return [json.loads(line) for line in text.split("\n") if line.startswith('{"')]


def run_all(runners, commands, sim):
    """All runners, the agents last: each of them takes a core or two for itself."""
    cells, troubles = [], []
    many = [runner for runner in runners if runner[0] != "agent"]
    single = [runner for runner in runners if runner[0] == "agent"]
    for some, at_once in ((many, RUNNERS_AT_ONCE), (single, 1)):
        pool = ThreadPoolExecutor(at_once)
        try:
            running = {pool.submit(run, *runner, commands[runner], sim): runner for runner in some}
            for future in as_completed(running):
                more, trouble = future.result()
                cells += more
                troubles += [trouble] if trouble else []
                say(f"e2e: {' '.join(running[future])}: {len(more)} cells")
        finally:
            pool.shutdown(cancel_futures=True)
    return cells, troubles


def require(*programs):
    for program in programs:
        if shutil.which(program) is None:
            sys.exit(f"e2e: {program} is missing: install it, then run this again")


def keep(cells):
    """All facts, for whoever wants to know more than the tables say."""
    text = "".join(json.dumps(cell, ensure_ascii=False) + "\n" for cell in cells)
    (TARGET / "cells.jsonl").write_text(text)


def main():
    args = options()
    runners = wanted(args)
    if not runners:
        sys.exit(f"e2e: no runner is called {args.only!r}")
    require("cargo", "node", "npm")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    for folder in ("written", "runs"):
        install.clear(TARGET / folder)
    TARGET.mkdir(parents=True, exist_ok=True)
    plan = Plan(args)
    if not plan.all:
        say(f"e2e: a part of the cells, chosen by --seed {plan.seed}")
    with servers.started(args, ROOT, TARGET, say) as ways:
        commands = {runner: command(*runner, plan, ways) for runner in runners}
        cells, troubles = run_all(runners, commands, ways["direct"])
        asked = servers.tags(ways["direct"])
    keep(cells)
    verdict = judge.judge(cells, asked)
    print(tables.page(verdict))
    if args.write:
        tables.write(ROOT, verdict, install.versions())
    for trouble in troubles:
        say("e2e:", trouble)
    for red in verdict.reds:
        say("e2e: RED", red)
    say(f"e2e: {len(cells)} cells, {len(verdict.reds)} red, {len(troubles)} runners failed")
    sys.exit(1 if verdict.reds or troubles else 0)


if __name__ == "__main__":
    main()
