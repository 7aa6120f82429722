"""Judges the cells: what each shows, and whether it is red.

Directly, whatever happens is a fact: the first column of a table only records it. Through the
gateway there is right and wrong:

- *observe* changes nothing: the caller sees what it saw directly;
- *guard* changes nothing about a finished turn, makes every unfinished one raise, and no tool runs
  from an unfinished turn.
"""

from collections import defaultdict
from typing import NamedTuple

FINISHED = ["complete", "tool-call", "length"]
UNFINISHED = [
    "cut-before-word", "cut-in-tool-call", "cut-after-args", "length-whole-args",
    "done-without-word-tool-call", "unknown-word-tool-call",
]  # fmt: skip

# Complete calls, and how often the tool must run: neither less nor more.
MUST_RUN = {"tool-call": 1, "tool-call-parallel": 2, "tool-call-stop": 1}
# Nothing may be run from these, and the caller must be told.
MUST_RAISE = [
    "cut-in-tool-call", "cut-after-args", "length-half-args", "length-whole-args",
    "done-without-word-tool-call", "unknown-word-tool-call", "reset-in-tool-call",
    "cut-before-word", "error-late", "reset",
]  # fmt: skip
# Text alone, with an end that is odd but proven: the caller may be shown it as it came.
MAY_PASS = ["done-without-word", "unknown-word", "finish-error"]

CALL_SCENARIOS = FINISHED + UNFINISHED
RUN_SCENARIOS = list(MUST_RUN) + MUST_RAISE + MAY_PASS


class Shown(NamedTuple):
    """A cell of a table: what it says, and what is wrong with it."""

    text: str
    wrong: str | None = None


class Verdict(NamedTuple):
    clients: dict  # (client, wire, call) -> {column: Shown}
    frameworks: dict  # (wire, how) -> {scenario: {(framework, via): Shown}}
    retries: list  # sentences
    reds: list  # sentences


def judge(cells, tags):
    """The verdict on all cells; `tags` are those of the requests that reached the provider."""
    clients = judge_clients([cell for cell in cells if "client" in cell and "tag" not in cell])
    frameworks = judge_frameworks([cell for cell in cells if "framework" in cell])
    retries = [judge_retry(cell, tags) for cell in cells if "tag" in cell]
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
    reds += [shown.wrong for shown in retries if shown.wrong]
    return Verdict(clients, frameworks, [shown.text for shown in retries], reds)


# Clients


def judge_clients(cells):
    rows = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        rows[cell["client"], cell["wire"], cell["call"]][cell["scenario"]][cell["via"]] = cell
    return {row: judge_client(scenarios) for row, scenarios in sorted(rows.items())}


def judge_client(scenarios):
    columns = {
        scenario: guarded(scenario, scenarios.get(scenario, {})) for scenario in CALL_SCENARIOS
    }
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
        shown = judge_run(cell, whole["written"] if whole else [])
        sections[wire, how][scenario][framework, via] = shown
    return sections


def judge_run(cell, whole):
    text = describe_run(cell, whole)
    if cell["hung"]:
        return Shown("hung", "a run did not end")
    if cell["scenario"] in MUST_RUN:
        expected = whole[:1] * MUST_RUN[cell["scenario"]]
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
