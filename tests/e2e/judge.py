"""Judges the cells: what each shows, and whether it is red.

Directly, whatever happens is a fact: the first column of a table only records it. Through the
gateway there is right and wrong:

- *observe* changes nothing: the caller sees what it saw directly;
- *guard* changes nothing about a finished turn, makes every unfinished one raise, and no tool runs
  from an unfinished turn. Where a client fails loudly or recovers by itself directly, it does so
  behind guard too.
"""

from collections import defaultdict
from typing import NamedTuple

from cells import BARE, WITHOUT_PARAMETERS

# The late one is held for so long that the gateway sends keep-alives.
FINISHED = ["complete", "tool-call", "tool-call-late=1500", "length"]
UNFINISHED = [
    "cut-before-word", "cut-in-tool-call", "cut-after-args", "length-whole-args",
    "done-without-word-tool-call", "unknown-word-tool-call",
]  # fmt: skip

# Complete calls, and how often the tool must run: neither less nor more.
MUST_RUN = {
    "tool-call": 1, "tool-call-parallel": 2, "tool-call-stop": 1, "tool-call-no-args": 1,
    "tool-call-late=1500": 1,
}  # fmt: skip
# Nothing may be run from these, and the caller must be told.
MUST_RAISE = [
    "cut-in-tool-call", "cut-after-args", "cut-after-call", "cut-in-second-call",
    "length-half-args", "length-whole-args", "done-without-word-tool-call",
    "unknown-word-tool-call", "error-after-call", "reset-in-tool-call", "cut-before-word",
    "error-late", "reset",
]  # fmt: skip
# Text alone, with an end that is odd but proven: the caller may be shown it as it came.
MAY_PASS = ["done-without-word", "unknown-word", "finish-error"]

CALL_SCENARIOS = FINISHED + UNFINISHED
RUN_SCENARIOS = list(MUST_RUN) + MUST_RAISE + MAY_PASS
# Failing turns that a framework is asked for with the retries that it makes by default.
RETRY_SCENARIOS = ["cut-after-args", "length-whole-args", "error-late"]
# The first answer fails, the next is complete: a framework that asks again recovers.
ONCE_SCENARIOS = ["cut-after-args,tool-call", "error-after-call,tool-call", "reset,tool-call"]

# Agents: complete calls, and how often the tool must run.
AGENT_MUST_RUN = {
    "tool-call": 1, "tool-call-parallel": 2, "tool-call-no-args": 1, "tool-call-late=1500": 1,
}  # fmt: skip
# Complete, but odd: behind guard as directly, or refused loudly.
AGENT_MAY_RUN = {
    ("OpenAI chat", "no-marker-tool-call"): 1,
    ("OpenAI chat", "choices-tool-call"): 2,
}
AGENT_UNFINISHED = [
    "cut-in-tool-call", "cut-after-args", "cut-after-call", "cut-in-second-call",
    "length-half-args", "length-whole-args", "length-late=1500", "unknown-word-tool-call",
    "no-marker-tool-call", "done-without-word-tool-call", "error-after-call",
    "reset-in-tool-call", "choices-cut-call", "cut-before-word", "error-late",
]  # fmt: skip
# The first answer fails, the next is complete: an agent that asks again recovers.
AGENT_ONCE = [
    "cut-in-tool-call,tool-call", "cut-after-call,tool-call", "error-after-call,tool-call",
    "length-whole-args,tool-call", "cut-before-word,tool-call", "malformed-call,tool-call",
]  # fmt: skip
AGENT_DEFAULTS = ["cut-after-call", "length-whole-args"]
# The wires that have no end marker of their own, or only one choice, or no word for a malformed call.
AGENT_NOT_ON = {
    "malformed-call,tool-call": {"OpenAI Responses", "OpenAI chat", "Anthropic Messages"},
    "no-marker-tool-call": {"OpenAI Responses", "Gemini"},
    "choices-tool-call": {"OpenAI Responses", "Anthropic Messages", "Gemini"},
    "choices-cut-call": {"OpenAI Responses", "Anthropic Messages", "Gemini"},
    "length-half-args": {"Gemini"},
    "done-without-word-tool-call": {"OpenAI Responses"},
}
# On Responses, the last event is the finish reason: nothing can be sent without it.
NOT_ON = {("OpenAI Responses", "done-without-word-tool-call")}


# Ends that a gateway could send, as parts of the simulated provider's scenarios: see
# `endstop sim --list`. Three places: before any content, after text, inside a call's arguments.
ENDING_PLACES = ["fails-early", "fails-late", "fails-in-call"]
ENDINGS = [
    "frame", "frame-abort", "abort", "refused", "refused-abort", "frame-failed", "refused-invalid",
    "refused-incomplete", "failed", "invalid", "incomplete", "frame-mark",
]  # fmt: skip


def is_ending_of(wire, place, ending):
    """Whether the wire has this end: only Responses has terminal events of its own for a failure."""
    terminal = any(part in ("failed", "invalid", "incomplete") for part in ending.split("-"))
    if terminal:
        return wire == "OpenAI Responses"
    if "mark" in ending and wire not in ("OpenAI chat", "Anthropic Messages", "Mistral"):
        return False
    return not (place == "fails-in-call" and wire in ("Gemini", "Ollama"))


# Calls that ask for a plain body, which has no end of a stream.
PLAIN_CALLS = [
    "create", "converse", "chat", "complete", "generate_content", "generateContent",
    "generateText", "exec_chat",
]  # fmt: skip


def is_always_run(scenario, retries):
    """Whether an agent behind guard is always run in this row, without --all too."""
    complete = ["tool-call", "tool-call-parallel"]
    return retries == "lowered" and scenario in complete + AGENT_UNFINISHED


def agent_rows(wire):
    """All rows of an agent on a wire: `(scenario, retries)`."""
    odd = [scenario for on, scenario in AGENT_MAY_RUN if on == wire]
    lowered = list(AGENT_MUST_RUN) + odd
    lowered += [name for name in AGENT_UNFINISHED if name not in odd] + AGENT_ONCE
    lowered = [name for name in lowered if wire not in AGENT_NOT_ON.get(name, ())]
    rows = [(scenario, "lowered") for scenario in lowered]
    return rows + [(scenario, "default") for scenario in AGENT_DEFAULTS]


class Shown(NamedTuple):
    """A cell of a table: what it says, and what is wrong with it."""

    text: str
    wrong: str | None = None


class Verdict(NamedTuple):
    clients: dict  # (client, wire, call) -> {column: Shown}
    frameworks: dict  # (wire, how) -> {scenario: {(framework, via): Shown}}
    endings: dict  # (client, wire, call) -> {(place, ending): what the client did}
    agents: dict  # (agent, wire) -> {(scenario, retries): {via: (cell, what is wrong)}}
    repeats: dict  # (framework, wire, how) -> {scenario: {via: (requests, Shown)}}
    retries: list  # sentences
    reds: list  # sentences


def judge(cells, tags):
    """The verdict on all cells; `tags` are those of the requests that reached the provider."""
    cells = [cell for cell in cells if (cell["wire"], cell["scenario"]) not in NOT_ON]
    calls = [cell for cell in cells if "client" in cell and "tag" not in cell]
    clients = judge_clients([cell for cell in calls if not is_ending(cell)])
    endings = show_endings([cell for cell in cells if is_ending(cell)])
    runs = [cell for cell in cells if "framework" in cell]
    frameworks = judge_frameworks([cell for cell in runs if cell.get("retries") != "default"])
    repeats = count_repeats([cell for cell in runs if cell.get("retries") == "default"])
    agents = judge_agents([cell for cell in cells if "agent" in cell and not is_ending(cell)])
    retries = [judge_retry(cell, tags) for cell in cells if "tag" in cell and "client" in cell]
    reds = [
        f"{', '.join(row)}: {column}: {shown.wrong}"
        for row, columns in clients.items()
        for column, shown in columns.items()
        if shown.wrong
    ]
    reds += [
        f"{framework}, {', '.join(section)}: {scenario}: {via}: {shown.wrong}"
        for section, scenarios in frameworks.items()
        for scenario, columns in scenarios.items()
        for (framework, via), shown in columns.items()
        if shown.wrong
    ]
    reds += [
        f"{', '.join(who)}: {scenario} ({retries} retries): {via}: {wrong}"
        for who, rows in agents.items()
        for (scenario, retries), ways in rows.items()
        for via, (_, wrong) in ways.items()
        if wrong
    ]
    reds += [
        f"{', '.join(who)}: {scenario}, with its own retries: {shown.wrong}"
        for who, scenarios in repeats.items()
        for scenario, ways in scenarios.items()
        for _, shown in ways.values()
        if shown.wrong
    ]
    reds += [shown.wrong for shown in retries if shown.wrong]
    sentences = [shown.text for shown in retries]
    return Verdict(clients, frameworks, endings, agents, repeats, sentences, reds)


# Clients


def judge_clients(cells):
    rows = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        rows[cell["client"], cell["wire"], cell["call"]][cell["scenario"]][cell["via"]] = cell
    return {row: judge_client(scenarios) for row, scenarios in sorted(rows.items())}


def judge_client(scenarios):
    asked = [scenario for scenario in CALL_SCENARIOS if scenario in scenarios]
    columns = {scenario: guarded(scenario, scenarios[scenario]) for scenario in asked}
    columns["observe"] = observed(scenarios)
    return columns


def guarded(scenario, ways):
    direct, guard = ways.get("direct"), ways.get("guard")
    if direct is None or guard is None:
        return Shown("?", "not run")
    if direct["hung"] or guard["hung"]:
        return Shown("hung", "a call did not end")
    if scenario in FINISHED:
        return finished(scenario, direct, guard)
    text = f"{loudness(direct)} → {loudness(guard)}"
    return Shown(text, None if guard["raised"] else f"guard did not raise: {outcome(guard)}")


def finished(scenario, direct, guard):
    if scenario != "length" and direct["raised"]:
        return Shown("fails", f"fails directly: {direct['raised']}")
    if outcome(direct) != outcome(guard):
        return Shown("changed", f"guard changed it: {outcome(direct)} became {outcome(guard)}")
    return Shown("raises, as ever" if direct["raised"] else "same")


def observed(scenarios):
    for scenario, ways in scenarios.items():
        direct, observe = ways.get("direct"), ways.get("observe")
        if direct is None or observe is None:
            return Shown("?", f"{scenario} was not run")
        if observe["hung"] or outcome(direct) != outcome(observe):
            change = f"{outcome(direct)} became {outcome(observe)}"
            return Shown(f"{scenario} changed", f"observe changed {scenario}: {change}")
    return Shown("same")


def outcome(cell):
    """What the caller got; of a failure its class, as messages carry addresses and ids."""
    if cell["raised"]:
        return "raised " + cell["raised"].split(":")[0]
    return cell["text"], cell["word"], [(call["name"], call["args"]) for call in cell["calls"]]


def loudness(cell):
    return "raises" if cell["raised"] else "silent"


def judge_retry(cell, tags):
    count = tags.count(cell["tag"])
    sentence = (
        f"{cell['client']}, {cell['call']}: a refused tool call was asked for {count} time(s)."
    )
    if count == 1 and cell["raised"]:
        return Shown(sentence)
    return Shown(sentence, f"{sentence} It must raise and ask once: {cell['raised']}")


# Frameworks


def judge_frameworks(cells):
    by_place = {
        (cell["wire"], cell["how"], cell["scenario"], cell["framework"], cell["via"]): cell
        for cell in cells
    }
    sections = defaultdict(lambda: defaultdict(dict))
    for (wire, how, scenario, framework, via), cell in by_place.items():
        whole = by_place.get((wire, how, "tool-call", framework, "direct"))
        direct = by_place.get((wire, how, scenario, framework, "direct"))
        shown = judge_run(cell, whole["written"] if whole else [], direct)
        sections[wire, how][scenario][framework, via] = shown
    return sections


def judge_run(cell, whole, direct=None):
    text = describe_run(cell, whole)
    if cell["hung"]:
        return Shown("hung", "a run did not end")
    bare = cell["scenario"] == WITHOUT_PARAMETERS
    if bare and direct and not direct["written"]:
        # Some frameworks take a call without any arguments for a malformed one.
        same = text == describe_run(direct, whole)
        return Shown(text, None if same else f"directly: {describe_run(direct, whole)}; here: {text}")
    if cell["scenario"] in MUST_RUN:
        expected = ([BARE] if bare else whole[:1]) * MUST_RUN[cell["scenario"]]
        well = cell["written"] and not cell["raised"] and cell["written"] == expected
        return Shown(text, None if well else f"a complete call must run: {text}: {cell['raised']}")
    if cell["via"] == "direct":
        return Shown(text)
    if cell["written"]:
        return Shown(text, "the tool ran from an unfinished turn")
    if cell["scenario"] in MUST_RAISE and not cell["raised"]:
        return Shown(text, "the caller was not told")
    return Shown(text)


def describe_run(cell, whole):
    """What happened: did the tool run, with what, and how did the run end."""
    end = "raised" if cell["raised"] else "success"
    if not cell["written"]:
        return end
    if cell["scenario"] in MUST_RUN:
        return f"ran, {end}"
    cut = set(cell["written"]) - set(whole)
    return f"**tool ran{', content cut' if cut else ''}**, {end}"


def count_repeats(cells):
    """How often each failing turn was asked for, with the retries that the framework makes itself."""
    rows = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        row = rows[cell["framework"], cell["wire"], cell["how"]]
        row[cell["scenario"]][cell["via"]] = cell
    return {
        who: {
            scenario: {
                via: (cell["requests"], judge_repeat(cell, ways, scenarios)) for via, cell in ways.items()
            }
            for scenario, ways in scenarios.items()
        }
        for who, scenarios in rows.items()
    }


def judge_repeat(cell, ways, scenarios):
    """A run with the framework's own retries. Of a turn that fails once it may recover; it must where it
    does directly, or at least raise if it does so without having seen the failure."""
    recovered = cell["written"] and cell["requests"] > 1
    end = "recovered" if recovered else "tool ran" if cell["written"] else "success"
    end = "still asking" if cell["hung"] else "raised" if cell["raised"] else end
    if cell["via"] == "direct":
        return Shown(end)
    if len(cell["written"]) > ("," in cell["scenario"]) or end == "tool ran":
        return Shown(end, "the tool ran from an unfinished turn")
    if cell["hung"] and cell["requests"] <= 1:
        return Shown("hung", "a run did not end")
    if end == "success":
        return Shown(end, "the caller was not told")
    direct = ways.get("direct")
    # The provider's own error in a response with status 200 keeps its kind, and frameworks ask again after a
    # server error: they recover where it passes.
    if cell["hung"] and direct and direct["raised"] and "error" not in cell["scenario"]:
        return Shown(end, f"the direct run raises, this goes on asking: {direct['raised']}")
    recovers = direct and "," in cell["scenario"] and direct["requests"] > 1 and not direct["raised"]
    if recovers and cell["raised"] and not is_blind(cell["scenario"], scenarios):
        return Shown(end, f"the direct run recovers, this does not: {cell['raised']}")
    return Shown(end)


def is_blind(scenario, scenarios):
    """Whether the framework takes this failure for a success, if every answer fails this way. It asks again
    after one as it would after any answer: an ending that tells it makes it raise."""
    direct = scenarios.get(scenario.split(",")[0], {}).get("direct")
    return direct is not None and not (direct["raised"] or direct["hung"])


# Agents


def judge_agents(cells):
    by_place = {
        (cell["agent"], cell["wire"], cell["scenario"], cell["retries"], cell["via"]): cell
        for cell in cells
    }
    tables = defaultdict(lambda: defaultdict(dict))
    for (agent, wire, scenario, retries, via), cell in by_place.items():
        direct = by_place.get((agent, wire, scenario, retries, "direct"))
        tables[agent, wire][scenario, retries][via] = cell, judge_agent(cell, direct)
    return tables


def judge_agent(cell, direct):
    """What is wrong with a run of an agent; `direct` is the same run without the gateway, if it was
    made."""
    scenario = cell["scenario"]
    if cell["hung"] and cell["requests"] == 0:
        return "the agent asked for nothing in its time"
    if scenario in AGENT_MUST_RUN:
        times = AGENT_MUST_RUN[scenario]
        well = succeeded(cell) and cell["ran"] == times
        return None if well else f"a complete turn must run {times} call(s): {describe_agent(cell)}"
    if cell["via"] == "direct":
        return None
    if (cell["wire"], scenario) in AGENT_MAY_RUN:
        same = direct is None or (cell["ran"] == direct["ran"] and succeeded(cell))
        refused = cell["ran"] == 0 and is_loud(cell)
        return None if same or refused else f"neither run nor refused: {describe_agent(cell)}"
    if cell["ran"] > (1 if "," in scenario else 0):
        return f"the tool ran from an unfinished turn: {describe_agent(cell)}"
    if "," in scenario:
        return judge_recovery(cell, direct)
    if cell["hung"]:
        loud = cell["retries"] == "lowered" and direct is not None and is_loud(direct)
        return "still asking, where the direct run fails loudly" if loud else None
    if direct is not None and fails(direct) and not fails(cell):
        return f"the direct run ends with exit code {direct['exit']}: {describe_agent(cell)}"
    return None if is_loud(cell) else f"the user was not told: {describe_agent(cell)}"


def judge_recovery(cell, direct):
    """A turn that fails once: the agent recovers, or says that it failed, as it does directly. What would
    end the same again, such as an output limit, is no reason to ask again."""
    repeats = cell["scenario"].startswith("length")
    if direct is not None and is_loud(direct) and not is_loud(cell) and (repeats or not recovered(cell)):
        return f"the direct run fails loudly, this does not: {describe_agent(cell)}"
    if recovered(cell):
        return None
    if direct is not None and recovered(direct):
        return f"the direct run recovers, this does not: {describe_agent(cell)}"
    return None if is_loud(cell) else f"the user was not told: {describe_agent(cell)}"


def succeeded(cell):
    return cell["exit"] == 0 and not cell["error"]


def fails(cell):
    """Whether a script sees the failure."""
    return cell["exit"] not in (0, None)


def is_loud(cell):
    return fails(cell) or cell["error"]


def recovered(cell):
    """Whether the tool ran once, from the second answer: the first is unfinished."""
    return succeeded(cell) and cell["ran"] == 1 and cell["requests"] > 1


def describe_agent(cell):
    end = "still asking" if cell["hung"] else f"exit {cell['exit']}"
    return f"ran {cell['ran']} time(s), {end}, {cell['requests']} request(s), {cell['said']!r}"


# Ends that a gateway could send: facts, which nobody judges


# How the message of a failure that a gateway reports begins.
OURS = "endstop: "


def is_ending(cell):
    return cell["scenario"].startswith("fails-")


def show_endings(cells):
    rows = defaultdict(dict)
    for cell in cells:
        place, ending = cell["scenario"].split("=")
        call = cell.get("call", "")
        if call in PLAIN_CALLS or not is_ending_of(cell["wire"], place, ending):
            continue
        who = cell.get("client") or cell["agent"]
        shown = show_agent_end(cell) if "agent" in cell else show_client_end(cell)
        rows[who, cell["wire"], call][place, ending] = shown
    return dict(sorted(rows.items()))


def show_client_end(cell):
    if cell["hung"]:
        return "**hung**"
    if not cell["raised"]:
        return f"**silent** ({cell['word'] or 'no word'})"
    return "raises" if OURS in cell["raised"] else "raises, our words lost"


def show_agent_end(cell):
    end = "**still asking**" if cell["hung"] else f"exit {cell['exit']}"
    loud = "" if is_loud(cell) or cell["hung"] else "**silent**, "
    words = "" if OURS in cell["said"] else ", our words lost"
    count = f"{cell['requests']} request{'' if cell['requests'] == 1 else 's'}"
    return f"{loud}{end}, {count}{words}"
