"""Writes the verdict down as Markdown."""

import judge

SCENARIOS = {
    "tool-call": "complete tool call",
    "tool-call-parallel": "two complete tool calls",
    "tool-call-stop": "complete tool call that ends with the word for a natural stop",
    "cut-before-word": "connection closed after text, no word for the end",
    "done-without-word": "text, end marker, no word for the end",
    "done-without-word-tool-call": "tool call, end marker, no word for the end",
    "cut-in-tool-call": "connection closed inside the arguments",
    "cut-after-args": "connection closed after arguments that parse",
    "length-half-args": "output limit inside the arguments",
    "length-whole-args": "output limit after arguments that parse",
    "unknown-word": "text with a word that nobody knows",
    "unknown-word-tool-call": "tool call with a word that nobody knows",
    "finish-error": "the word for the end is `error`",
    "error-late": "error in the middle",
    "reset": "connection reset after text",
    "reset-in-tool-call": "connection reset inside the arguments",
}
FRAMEWORKS = ["LangChain", "pydantic-ai", "openai-agents", "AI SDK"]
MARK_RED = "❌ "


def page(verdict):
    parts = []
    if verdict.frameworks:
        parts += [
            "## Agent frameworks",
            *(section(verdict, *key) for key in sorted(verdict.frameworks, reverse=True)),
        ]
    if verdict.clients:
        parts += ["## SDKs", clients(verdict)]
    return "\n\n".join(parts + verdict.retries)


def section(verdict, wire, how):
    """One table of frameworks: scenarios down, ways across."""
    scenarios = verdict.frameworks[wire, how]
    here = [
        name
        for name in FRAMEWORKS
        if any((name, "direct") in columns for columns in scenarios.values())
    ]
    ways = [(name, via) for name in here for via in ("direct", "guard")]
    head = ["what the provider sent"] + [
        name if via == "direct" else "guarded" for name, via in ways
    ]
    rows = [
        [label] + [cell(scenarios[scenario].get(way)) for way in ways]
        for scenario, label in SCENARIOS.items()
        if scenario in scenarios
    ]
    return f"### {wire}, {how}\n\n{table(head, rows)}"


def clients(verdict):
    columns = judge.CALL_SCENARIOS + ["observe"]
    rows = [
        list(row) + [cell(shown.get(column)) for column in columns]
        for row, shown in verdict.clients.items()
    ]
    return table(["client", "wire", "call"] + columns, rows)


def cell(shown):
    if shown is None:
        return ""
    return (MARK_RED if shown.wrong else "") + shown.text


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(root, verdict, versions):
    """Puts what was run into `docs/compatibility.md`, and the first table into the README."""
    compatibility = root / "docs" / "compatibility.md"
    if verdict.frameworks:
        keys = sorted(verdict.frameworks, reverse=True)
        text = "\n\n".join(section(verdict, *key) for key in keys)
        replace(compatibility, "frameworks", text)
        replace(
            root / "README.md",
            "frameworks",
            section(verdict, "OpenAI chat", "streamed").split("\n\n", 1)[1],
        )
    if verdict.clients:
        replace(compatibility, "clients", "\n\n".join([clients(verdict)] + verdict.retries))
    replace(
        compatibility,
        "versions",
        ", ".join(f"{name} {version}" for name, version in versions) + ".",
    )


def replace(file, name, text):
    """Replaces what stands between `<!-- name -->` and `<!-- /name -->`."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = file.read_text().split(start)
    _, after = rest.split(end)
    file.write_text(f"{before}{start}\n{text}\n{end}{after}")
