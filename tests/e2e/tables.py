"""Writes the verdict down as Markdown."""

import install
import judge

SCENARIOS = {
    "tool-call": "complete tool call",
    "tool-call-parallel": "two complete tool calls",
    "tool-call-no-args": "complete call of a tool without parameters",
    "tool-call-late=1500": "complete tool call, its finish reason 1.5 s later (keep-alives meanwhile)",
    "tool-call-stop": "complete tool call that ends with the finish reason of a natural stop",
    "cut-before-word": "connection closed after text, no finish reason",
    "done-without-word": "text, end marker, no finish reason",
    "done-without-word-tool-call": "tool call, end marker, no finish reason",
    "cut-in-tool-call": "connection closed inside the arguments",
    "cut-after-args": "connection closed after arguments that parse",
    "cut-after-call": "connection closed after the call's block closed",
    "cut-in-second-call": "connection closed inside the second of two calls",
    "length-half-args": "output limit inside the arguments",
    "length-whole-args": "output limit after arguments that parse",
    "unknown-word": "text with an unknown finish reason",
    "unknown-word-tool-call": "tool call with an unknown finish reason",
    "finish-error": "the finish reason is `error`",
    "error-late": "error in the middle",
    "error-after-call": "error after the call's block closed",
    "reset": "connection reset after text",
    "reset-in-tool-call": "connection reset inside the arguments",
}
AGENT_SCENARIOS = {
    **SCENARIOS,
    "no-marker-tool-call": "tool call with its finish reason, no end marker",
    "choices-tool-call": "two choices (n = 2) with a complete call each",
    "cut-after-args": "connection closed after the arguments, block still open",
    "length-whole-args": "output limit right after the block",
    "length-late=1500": "output limit 1.5 s after the block",
    "error-after-call": "provider's error after the block",
    "choices-cut-call": "two choices (n = 2), the second cut inside its call",
    "error-late": "provider's error after text",
    "malformed-call": "finish reason that says that the call is malformed",
}
# How a framework is named in the tables, and the packages whose versions are told.
FRAMEWORKS = {
    "LangChain": "Python langchain",
    "LangGraph": "Python langgraph",
    "pydantic-ai": "Python pydantic-ai-slim",
    "openai-agents": "Python openai-agents",
    "LiteLLM": "Python litellm",
    "LlamaIndex": "Python llama-index-core",
    "CrewAI": "Python crewai",
    "google-adk": "Python google-adk",
    "AI SDK": "npm ai",
    "Mastra": "npm @mastra/core",
    "LangGraph.js": "npm @langchain/langgraph",
}
AGENTS = {
    "Claude Code": "npm @anthropic-ai/claude-code",
    "Codex": "npm @openai/codex",
    "opencode": "npm opencode-ai",
    "gemini-cli": "npm @google/gemini-cli",
    "qwen-code": "npm @qwen-code/qwen-code",
}
MARK_RED = "❌ "


def named(name):
    """A framework or agent with its version."""
    return f"{name} {install.version_of({**FRAMEWORKS, **AGENTS}[name])}".strip()


def page(verdict):
    parts = []
    if verdict.agents:
        parts += ["## Coding agents", *(agent(verdict, *key) for key in verdict.agents)]
    if verdict.frameworks:
        parts += ["## Agent frameworks", *framework_sections(verdict)]
    if verdict.repeats:
        parts += ["## Requests per failing turn", repeats(verdict)]
    if verdict.clients:
        parts += ["## SDKs", clients(verdict)]
    if verdict.endings:
        parts += ["## Ends", *endings(verdict)]
    return "\n\n".join(parts + verdict.retries)


# Agents


def agent(verdict, name, wire):
    """One table of an agent on a wire: scenarios down, what happened directly and guarded across."""
    rows = verdict.agents[name, wire]
    head = ["what the provider sent"]
    head += [f"{via}: {what}" for via in ("direct", "guarded") for what in ("ran", "end", "requests")]
    head += ["the user sees, directly", "the user sees, guarded"]
    body = [
        [agent_label(*row)]
        + [text for via in ("direct", "guard") for text in agent_cells(rows[row].get(via))]
        + [agent_words(rows[row].get(via)) for via in ("direct", "guard")]
        for row in judge.agent_rows(wire)
        if row in rows
    ]
    return f"### {named(name)}, {wire}\n\n{table(head, body)}"


def agent_label(scenario, retries):
    first, _, then = scenario.partition(",")
    label = AGENT_SCENARIOS[first]
    label += ", once; then a complete call" if then else ""
    return label + ("; the agent's own retries" if retries == "default" else "")


def agent_cells(shown):
    """How often the tool ran, how the run ended, how many requests the turn took."""
    if shown is None:
        return ["", "", ""]
    cell, wrong = shown
    times = f"{cell['ran']} ×" if cell["ran"] else "no"
    end = "still asking" if cell["hung"] else f"exit {cell['exit']}"
    if cell["error"] and cell["exit"] == 0:
        end += ", error shown"
    first = cell["scenario"].partition(",")[0]
    is_odd = (cell["wire"], first) in judge.AGENT_MAY_RUN
    unfinished = first in judge.AGENT_UNFINISHED and not is_odd
    expected = 1 if "," in cell["scenario"] else 0
    is_bad = unfinished and cell["ran"] > expected
    ran = f"**{times}**" if is_bad else times
    return [(MARK_RED if wrong else "") + ran, end, str(cell["requests"])]


def agent_words(shown):
    if shown is None:
        return ""
    words = shown[0]["said"].replace("|", "\\|")
    return words if len(words) <= 110 else words[:107] + "…"


# The README


def tried(verdict):
    """Who was tried, in which version: how often a tool ran from a turn that was never finished."""
    head = [
        "tried", "wires", "unfinished turns", "tool ran, directly", "tool ran, guarded",
        "complete calls that guard broke",
    ]  # fmt: skip
    counts = {name: Tried() for name in (*AGENTS, *FRAMEWORKS)}
    for (name, wire), rows in verdict.agents.items():
        for (scenario, retries), ways in rows.items():
            if retries == "lowered" and "," not in scenario:
                counts[name].add_agent(wire, scenario, ways)
    for (wire, _), scenarios in verdict.frameworks.items():
        for scenario, columns in scenarios.items():
            for (name, via), shown in columns.items():
                counts[name].add_framework(wire, scenario, via, shown)
    rows = [[named(name), *found.cells()] for name, found in counts.items() if found.wires]
    return table(head, rows)


class Tried:
    """Counts of one framework or agent."""

    def __init__(self):
        self.wires, self.unfinished, self.broken = {}, 0, 0
        self.ran = {"direct": 0, "guard": 0}

    def add_agent(self, wire, scenario, ways):
        self.wires[wire] = True
        if scenario in judge.AGENT_MUST_RUN:
            self.broken += "guard" in ways and ways["guard"][1] is not None
        elif (wire, scenario) not in judge.AGENT_MAY_RUN:
            self.unfinished += 1
            for via, (cell, _) in ways.items():
                self.ran[via] += cell["ran"] > 0

    def add_framework(self, wire, scenario, via, shown):
        self.wires[wire] = True
        if scenario in judge.MUST_RUN:
            self.broken += via == "guard" and shown.wrong is not None
        elif scenario in judge.MUST_RAISE:
            self.unfinished += via == "direct"
            self.ran[via] += "tool ran" in shown.text

    def cells(self):
        counts = [self.unfinished, self.ran["direct"], self.ran["guard"], self.broken]
        return [", ".join(self.wires), *map(str, counts)]


# Frameworks


def framework_sections(verdict):
    return [section(verdict, *key) for key in sorted(verdict.frameworks, reverse=True)]


def section(verdict, wire, how):
    """One table of frameworks: scenarios down, frameworks across, each directly and guarded."""
    scenarios = verdict.frameworks[wire, how]
    here = [
        name
        for name in FRAMEWORKS
        if any((name, "direct") in columns for columns in scenarios.values())
    ]
    head = ["what the provider sent"] + [named(name) for name in here]
    rows = [
        [label] + [both(scenarios[scenario], name) for name in here]
        for scenario, label in SCENARIOS.items()
        if scenario in scenarios
    ]
    return f"### {wire}, {how}\n\n{table(head, rows)}"


def both(columns, name):
    """What happened directly, an arrow, and what happened guarded if that differs."""
    direct, guard = cell(columns.get((name, "direct"))), cell(columns.get((name, "guard")))
    return direct if direct == guard else f"{direct} → {guard}"


def repeats(verdict):
    """How often a failing turn is asked for, with the retries that each framework makes itself."""
    columns = judge.RETRY_SCENARIOS + judge.ONCE_SCENARIOS
    once = [f"{SCENARIOS[name.split(',')[0]]}, then a complete call" for name in judge.ONCE_SCENARIOS]
    head = ["framework", "wire", "answer"]
    head += [SCENARIOS[name] for name in judge.RETRY_SCENARIOS] + once
    rows = []
    for (name, wire, how), scenarios in sorted(verdict.repeats.items()):
        cells = [scenarios.get(scenario, {}) for scenario in columns]
        shown = [f"{repeat(ways, 'direct')} → {repeat(ways, 'guard')}" for ways in cells]
        rows.append([named(name), wire, how] + shown)
    return table(head, rows)


def repeat(ways, via):
    if via not in ways:
        return "?"
    requests, shown = ways[via]
    return f"{MARK_RED if shown.wrong else ''}{requests}, {shown.text}"


# SDKs


def clients(verdict):
    columns = judge.CALL_SCENARIOS + ["observe"]
    rows = [
        list(row) + [cell(shown.get(column)) for column in columns]
        for row, shown in verdict.clients.items()
    ]
    return table(["client", "wire", "call"] + columns, rows)


def endings(verdict):
    """Per wire: clients down, ends that a gateway could send across."""
    wires = sorted({wire for _, wire, _ in verdict.endings})
    return [endings_of(verdict, wire) for wire in wires]


def endings_of(verdict, wire):
    rows = {row: shown for row, shown in verdict.endings.items() if row[1] == wire}
    columns = [
        ending
        for ending in judge.ENDINGS
        if any(ending == shown_ending for shown in rows.values() for _, shown_ending in shown)
    ]
    body = [
        [f"{who} {call}".strip() if who not in AGENTS else named(who)]
        + [places(shown, ending) for ending in columns]
        for (who, _, call), shown in rows.items()
    ]
    return f"### {wire}\n\n{table(['client', *columns], body)}"


def places(shown, ending):
    """What the client did at each place, once if it did the same at all of them."""
    found = {
        place.removeprefix("fails-"): shown[place, ending]
        for place in judge.ENDING_PLACES
        if (place, ending) in shown
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{place}: {what}" for place, what in found.items())


def cell(shown):
    if shown is None:
        return ""
    return (MARK_RED if shown.wrong else "") + shown.text


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(root, verdict, versions):
    """Puts what was run into `docs/compatibility.md`, and summaries into the README."""
    compatibility, readme = root / "docs" / "compatibility.md", root / "README.md"
    if verdict.agents:
        tables = [agent(verdict, *key) for key in verdict.agents]
        replace(compatibility, "agents", "\n\n".join(tables))
    if verdict.frameworks:
        replace(compatibility, "frameworks", "\n\n".join(framework_sections(verdict)))
    if verdict.agents and verdict.frameworks:
        replace(readme, "tried", tried(verdict))
    if verdict.repeats:
        replace(compatibility, "repeats", repeats(verdict))
    if verdict.clients:
        replace(compatibility, "clients", "\n\n".join([clients(verdict)] + verdict.retries))
    if verdict.endings:
        replace(compatibility, "endings", "\n\n".join(endings(verdict)))
    told = ", ".join(f"{name} {version}" for name, version in versions) + "."
    replace(compatibility, "versions", told)


def replace(file, name, text):
    """Replaces what stands between `<!-- name -->` and `<!-- /name -->`."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = file.read_text().split(start)
    _, after = rest.split(end)
    file.write_text(f"{before}{start}\n{text}\n{end}{after}")
