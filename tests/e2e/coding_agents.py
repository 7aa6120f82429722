"""Runs one coding agent, with a shell tool that appends a line to a file, through the scenarios.

Each cell is one run of the agent's own program, without a person, with a home and a working folder of
its own. The facts that matter are `ran` (lines in the file: how often the tool ran), `exit`, and
`said` (the words that the user sees). How many requests the provider got is counted by its ledger,
where the cell's tag stands. It judges nothing: `scripts/e2e` does.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import servers

HERE = Path(__file__).resolve().parent
TASK = "Append a line to the file ran.txt with the tool that you have."
LIMIT = 60  # seconds of a cell; an agent that is still asking then is ended
LOOK = 0.25  # seconds between two looks at whether an agent has ended
FILE = "ran.txt"
COMMAND = f"echo ran >> {FILE}"
# What the agents call the tool that runs a command, and the one without parameters.
TOOLS = [
    "Bash", "exec_command", "shell_command", "shell", "bash", "run_shell_command",
    "mcp__mark__ran", "mark__ran", "mark_ran", "mcp_mark_ran", "ran",
]  # fmt: skip
WITHOUT_PARAMETERS = "tool-call-no-args"

_printing = threading.Lock()


class Requests:
    """How often each cell's turn was asked for so far, as the simulated provider counts it."""

    def __init__(self, sim):
        self.sim, self.counts, self.until, self.lock = sim, Counter(), 0.0, threading.Lock()

    def of(self, tag):
        with self.lock:
            if time.monotonic() > self.until:
                self.counts = Counter(entry["tag"] for entry in servers.turns(self.sim))
                self.until = time.monotonic() + 1
            return self.counts[tag]


class Cell:
    """One run: the facts, and the folders that belong to it alone."""

    def __init__(self, facts, root, scratch):
        self.facts, self.root, self.folder = facts, root, scratch / facts["tag"]
        self.home, self.work = self.folder / "home", self.folder / "work"
        for folder in (self.home, self.work):
            folder.mkdir(parents=True)

    @property
    def model(self):
        return f"sim-{self.facts['scenario']}"

    @property
    def has_bare_tool(self):
        return self.facts["scenario"].startswith(WITHOUT_PARAMETERS)

    @property
    def lowered(self):
        """Whether the agent's own retries are limited to one."""
        return self.facts["retries"] == "lowered"

    def bare_tool(self):
        return [sys.executable, str(HERE / "mcp_tool.py"), str(self.work / FILE)]

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environment(self, **more):
        """Nothing of ours but the path; a home of its own."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        home = str(self.home)
        folders = {
            "XDG_CONFIG_HOME": f"{home}/.config", "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_CACHE_HOME": f"{home}/.cache", "XDG_STATE_HOME": f"{home}/.local/state",
        }  # fmt: skip
        return {**kept, "HOME": home, **folders, "NO_COLOR": "1", "TERM": "dumb", **more}


# Claude Code


def claude_code(cell, programs):
    environment = cell.environment(
        ANTHROPIC_BASE_URL=f"{cell.root}/anthropic",
        ANTHROPIC_API_KEY="k",
        ANTHROPIC_CUSTOM_HEADERS=f"x-sim-tag: {cell.facts['tag']}",
        ANTHROPIC_SMALL_FAST_MODEL="sim-complete",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="sim-complete",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_TELEMETRY="1",
        DISABLE_AUTOUPDATER="1",
        DISABLE_ERROR_REPORTING="1",
        IS_SANDBOX="1",
    )
    if cell.lowered:
        environment["CLAUDE_CODE_MAX_RETRIES"] = "1"
    command = [
        programs / "claude", "-p", TASK, "--model", cell.model, "--tools", "Bash",
        "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose",
    ]  # fmt: skip
    if cell.has_bare_tool:
        name, *arguments = cell.bare_tool()
        servers = {"mcpServers": {"mark": {"command": name, "args": arguments}}}
        cell.write(cell.folder / "mcp.json", json.dumps(servers))
        command += ["--strict-mcp-config", "--mcp-config", cell.folder / "mcp.json"]
    return command, environment


def claude_code_said(output, _errors):
    """The last result, which says whether it is an error."""
    events = list(json_lines(output))
    results = [event for event in events if event.get("type") == "result"]
    if not results:
        return "", False
    last = results[-1]
    words = last.get("result") or "; ".join(last.get("errors", [])) or last.get("subtype", "")
    return words, bool(last.get("is_error"))


# Codex


def codex(cell, programs):
    limits = "request_max_retries = 1\nstream_max_retries = 1\n" if cell.lowered else ""
    config = f"""
model = "{cell.model}"
model_provider = "sim"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.sim]
name = "sim"
base_url = "{cell.root}/openai/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
http_headers = {{ "x-sim-tag" = "{cell.facts["tag"]}" }}
{limits}"""
    if cell.has_bare_tool:
        name, *arguments = cell.bare_tool()
        config += f'[mcp_servers.mark]\ncommand = "{name}"\nargs = {json.dumps(arguments)}\n'
    cell.write(cell.home / ".codex" / "config.toml", config)
    command = [
        programs / "codex", "exec", "--skip-git-repo-check", "--json",
        "--dangerously-bypass-approvals-and-sandbox", TASK,
    ]  # fmt: skip
    return command, cell.environment(OPENAI_API_KEY="k")


def codex_said(output, errors):
    events = list(json_lines(output))
    failed = [event for event in events if event.get("type") == "turn.failed"]
    if failed:
        return (failed[-1].get("error") or {}).get("message", ""), True
    said = [event["item"] for event in events if event.get("type") == "item.completed"]
    texts = [item.get("text", "") for item in said if item.get("type") == "agent_message"]
    if texts:
        return texts[-1], False
    problems = [event.get("message", "") for event in events if event.get("type") == "error"]
    return (problems or [last_line(errors)])[-1], bool(problems)


# opencode

OPENCODE_PACKAGES = {
    "OpenAI chat": ("@ai-sdk/openai-compatible", "/openai/v1"),
    "OpenAI Responses": ("@ai-sdk/openai", "/openai/v1"),
    "Anthropic Messages": ("@ai-sdk/anthropic", "/anthropic/v1"),
}


def opencode(cell, programs):
    package, path = OPENCODE_PACKAGES[cell.facts["wire"]]
    model = {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    settings = {
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "lsp": False,
        "formatter": False,
        "small_model": "sim/sim-complete",
        "provider": {
            "sim": {
                "npm": package,
                "options": {
                    "baseURL": cell.root + path,
                    "apiKey": "k",
                    "headers": {"x-sim-tag": cell.facts["tag"]},
                },
                "models": {cell.model: model, "sim-complete": model},
            }
        },
    }
    if cell.has_bare_tool:
        settings["mcp"] = {"mark": {"type": "local", "command": cell.bare_tool(), "enabled": True}}
    cell.write(cell.work / "opencode.json", json.dumps(settings))
    # As if its plugins were installed: it would download them in every run, and none is used.
    plugins = cell.home / ".config" / "opencode"
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    cell.write(plugins / "package-lock.json", json.dumps(lock))
    (plugins / "node_modules").mkdir()
    environment = cell.environment(
        OPENCODE_DISABLE_MODELS_FETCH="1",
        OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
        OPENCODE_DISABLE_LSP_DOWNLOAD="1",
        OPENCODE_PURE="1",
    )
    command = [
        programs / "opencode", "run", "--model", f"sim/{cell.model}", "--format", "json", TASK,
    ]  # fmt: skip
    return command, environment


def opencode_said(output, errors):
    events = list(json_lines(output))
    problems = [event for event in events if event.get("type") == "error"]
    if problems:
        error = problems[-1].get("error") or {}
        data = error.get("data") or {}
        return data.get("message") or error.get("name") or json.dumps(error), True
    texts = [event["part"]["text"] for event in events if event.get("type") == "text"]
    return (texts[-1], False) if texts else (last_line(errors), False)


# gemini-cli


def gemini_cli(cell, programs):
    # The simulated provider calls the first tool of a request that it knows, which would be `write_file`.
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "tools": {"exclude": ["write_file"]},
    }
    if cell.has_bare_tool:
        name, *arguments = cell.bare_tool()
        # It adds an optional parameter to each tool, so that the tool is not known by having none.
        settings["tools"]["exclude"].append("run_shell_command")
        settings["mcpServers"] = {"mark": {"command": name, "args": arguments, "trust": True}}
    cell.write(cell.home / ".gemini" / "settings.json", json.dumps(settings))
    environment = cell.environment(
        GEMINI_API_KEY="k",
        GOOGLE_GEMINI_BASE_URL=f"{cell.root}/gemini",
        GEMINI_CLI_TRUST_WORKSPACE="true",
        GEMINI_TELEMETRY_ENABLED="false",
        GEMINI_CLI_CUSTOM_HEADERS=f"x-sim-tag:{cell.facts['tag']}",
    )
    command = [programs / "gemini", "-m", f"gemini-{cell.model}", "--yolo", "-p", TASK]
    return command, environment


# qwen-code


def qwen_code(cell, programs):
    environment = cell.environment(
        OPENAI_API_KEY="k",
        OPENAI_BASE_URL=f"{cell.root}/openai/v1",
        OPENAI_MODEL=cell.model,
        QWEN_CODE_SUPPRESS_YOLO_WARNING="1",
    )
    headers = {"x-sim-tag": cell.facts["tag"]}
    settings = {
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
        "model": {"generationConfig": {"customHeaders": headers}},
    }
    if cell.has_bare_tool:
        name, *arguments = cell.bare_tool()
        mark = {"command": name, "args": arguments, "trust": True, "alwaysLoadTools": True}
        settings["mcpServers"] = {"mark": mark}
    cell.write(cell.home / ".qwen" / "settings.json", json.dumps(settings))
    return [programs / "qwen", "--auth-type", "openai", "--yolo", "-p", TASK], environment


def plain_said(output, errors):
    """An error that is marked as one; or what stands last on standard output or standard error."""
    lines = [line.strip() for line in f"{output}\n{errors}".splitlines()]
    marked = [line for line in lines if line.startswith(("[ERROR]", "[API Error", "Error"))]
    if marked:
        return marked[-1], True
    return (last_line(output) or last_line(errors)), False


# name: (environment, wires, start, words of the end)
AGENTS = {
    "Claude Code": ("agents", ["Anthropic Messages"], claude_code, claude_code_said),
    "Codex": ("agents", ["OpenAI Responses"], codex, codex_said),
    "opencode": ("agents", list(OPENCODE_PACKAGES), opencode, opencode_said),
    "gemini-cli": ("more-agents", ["Gemini"], gemini_cli, plain_said),
    "qwen-code": ("more-agents", ["OpenAI chat"], qwen_code, plain_said),
}


def json_lines(text):
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def shortened(words):
    """One line, without what differs from run to run."""
    line = " ".join(str(words).split())
    line = re.sub(r"http://127\.0\.0\.1:\d+", "URL", line)
    line = re.sub(r"\b(req|resp|msg|chatcmpl)[_-]sim\d+", r"\1", line)
    line = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "ID", line)
    return line[:300]


def run(cell, start, said, programs, is_enough, kept):
    command, environment = start(cell, programs)
    command = [str(word) for word in command]
    ended, output, errors = end_at(is_enough, command, environment, cell, kept)
    words, is_error = said(output, errors)
    file = cell.work / FILE
    cell.facts.update(
        ran=len(file.read_text().splitlines()) if file.exists() else 0,
        exit=ended,
        hung=ended is None,
        said=shortened(words),
        error=is_error,
    )
    shutil.rmtree(cell.folder, ignore_errors=True)
    with _printing:
        print(json.dumps(cell.facts, ensure_ascii=False), flush=True)


def end_at(is_enough, command, environment, cell, kept):
    """The exit code (none if it had to be ended), standard output and standard error."""
    files = [kept / f"{cell.facts['tag']}.{name}" for name in ("stdout", "stderr")]
    began = time.monotonic()
    with files[0].open("wb") as output, files[1].open("wb") as errors:
        child = subprocess.Popen(
            command, cwd=cell.work, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            while (code := child.poll()) is None and not is_enough(cell, time.monotonic() - began):
                time.sleep(LOOK)
        finally:
            end_group(child.pid)
            child.wait()
    return code, *(file.read_text(errors="replace") for file in files)


def end_group(group):
    """Ends what this agent started, if anything is left of it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def cells(name, ways, wanted, scratch):
    """The cells that were asked for: `wire/scenario/via/retries`."""
    for number, asked in enumerate(wanted):
        wire, scenario, via, retries = asked.split("/")
        slug = re.sub(r"\W+", "-", name.lower())
        facts = dict(agent=name, wire=wire, scenario=scenario, via=via, retries=retries)
        facts["tag"] = f"{slug}-{number}"
        yield Cell(facts, ways[via], scratch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=AGENTS)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True, help="a folder for the agent's output")
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds of a cell")
    parser.add_argument(
        "--enough", type=int, metavar="REQUESTS",
        help="end an agent that has asked for its turn so often; only the time limits it if not given",
    )  # fmt: skip
    for via in ("direct", "observe", "guard"):
        parser.add_argument(f"--{via}")
    parser.add_argument("wanted", nargs="+", help="wire/scenario/via/retries")
    args = parser.parse_args()
    _, _, start, said = AGENTS[args.name]
    ways = {"direct": args.direct, "observe": args.observe, "guard": args.guard}
    args.kept.mkdir(parents=True)
    requests = Requests(args.direct)

    def is_enough(cell, seconds):
        asked = args.enough and requests.of(cell.facts["tag"]) >= args.enough
        return bool(asked) or seconds > args.limit

    # Outside the checkout: agents look for a repository around the folder that they work in.
    with tempfile.TemporaryDirectory(prefix="endstop-e2e-", ignore_cleanup_errors=True) as scratch:
        some = list(cells(args.name, ways, args.wanted, Path(scratch)))
        with ThreadPoolExecutor(args.at_once) as pool:
            one = lambda cell: run(cell, start, said, args.programs, is_enough, args.kept)  # noqa: E731
            list(pool.map(one, some))


if __name__ == "__main__":
    main()
