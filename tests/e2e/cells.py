"""What the Python runners share: the question, the tool, and how a cell is run and reported.

A runner is called with the roots to try (`--direct URL --observe URL --guard URL`) and the
scenarios to ask for, and prints one JSON line per cell. It judges nothing: `scripts/e2e` does.
"""

import argparse
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

TIMEOUT = 30  # seconds that one call may take; only there so that nothing hangs
CELLS_AT_ONCE = 4

QUESTION = "Write a haiku about the end of a stream into haiku.txt."
TOOL_NAME = "write_file"
TOOL_ABOUT = "Writes content to a file."
TOOL_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "where to write"},
        "content": {"type": "string", "description": "what to write"},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}
# In these scenarios the tool has no parameters, and writes this.
WITHOUT_PARAMETERS = "tool-call-no-args"
BARE = "without parameters"
BARE_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}

_printing = threading.Lock()


def arguments(runner):
    """The command line: what to run, and the roots to run it against."""
    parser = argparse.ArgumentParser(description=runner)
    parser.add_argument("name")
    for via in ("direct", "observe", "guard"):
        parser.add_argument(f"--{via}")
    parser.add_argument("--scenarios", type=lambda names: names.split(","), required=True)
    parser.add_argument(
        "--retried", type=str.split, default=[],
        help="scenarios to ask for with the framework's own retries, separated by spaces",
    )  # fmt: skip
    parser.add_argument("--scratch", default=".", help="a folder for the files that tools write")
    return parser.parse_args()


def roots(args):
    """The roots that were given, by the way to the provider."""
    given = {"direct": args.direct, "observe": args.observe, "guard": args.guard}
    return {via: root for via, root in given.items() if root}


def report(cell):
    # In one write, with line ends on both sides: frameworks print from threads of their own.
    with _printing:
        sys.stdout.write(f"\n{json.dumps(cell)}\n")
        sys.stdout.flush()


def describe(error):
    """A failure in one line, with the name of its class first."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:400]


def is_timeout(error):
    """Whether we gave up waiting: that is a hang, which no cell may count as a refusal."""
    seen = []  # CrewAI raises errors whose chain of causes is a circle
    while error is not None and error not in seen:
        seen.append(error)
        if "Timeout" in type(error).__name__ or "timed out" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def run_all(cells):
    """Runs `(facts, call)` pairs, some at once; `call` fills in the facts and may raise."""
    with ThreadPoolExecutor(CELLS_AT_ONCE) as pool:
        for _ in pool.map(lambda cell: run(*cell), cells):
            pass


def run(facts, call):
    facts.update(raised=None, hung=False)
    try:
        call(facts)
    except BaseException as error:  # noqa: BLE001 whatever an SDK raises is the fact we are after
        facts.update(raised=describe(error), hung=is_timeout(error))
    report(facts)
