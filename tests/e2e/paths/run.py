"""Checks that every base URL of `endstop env` leads its SDK to the right path of the gateway.

Each SDK of table.json is set as `endstop env` prints it, with the URL of a path logger as the
gateway, and makes one call. The path of the call is compared with the table. A test of the gateway
reads the same table and checks where each path leads.
"""

import argparse
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "endstop-e2e"

AT_ONCE = 3
TIMEOUT = 300  # seconds for one call, with the import of the SDK on a busy machine

# A variable, ready or as a comment; an argument of a constructor.
VARIABLE = re.compile(r"(?:# )?export (?P<setting>\w+)='(?P<url>[^']*)'  # (?P<sdks>.+)")
ARGUMENT = re.compile(r"#   (?P<sdks>.+): (?P<setting>\S+) +(?P<url>http\S+)")


def main():
    args = options()
    table = json.loads((HERE / "table.json").read_text())
    rows = [row for row in table if (args.only or "").lower() in row["sdk"].lower()]
    if not rows:
        sys.exit(f"paths: no SDK is called {args.only!r}")
    endstop = args.endstop or build()
    tools = installed_tools(rows)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda row: check(row, endstop, tools), rows))
    for row, wrong in zip(rows, results):
        say(f"{'WRONG' if wrong else 'ok':<6} {row['sdk']:<34} {wrong or row['arrives']}")
    failed = sum(1 for wrong in results if wrong)
    say(f"{len(rows)} base URLs, {failed} wrong")
    sys.exit(1 if failed else 0)


def options():
    parser = argparse.ArgumentParser(prog="scripts/e2e --paths", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="only SDKs whose name contains this")
    parser.add_argument("--endstop", metavar="FILE", help="a built endstop, instead of building one")
    return parser.parse_args()


def say(*words):
    print("paths:", *words, file=sys.stderr, flush=True)


def build():
    say("building endstop")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "endstop-cli"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "endstop"


def check(row, endstop, tools):
    """Makes the call of a row. Returns what is wrong, or None."""
    with Logger() as logger, tempfile.TemporaryDirectory() as home:
        settings = printed(endstop, logger.url)
        setting = settings.get((row["setting"], row["sdk"]))
        if setting is None:
            return f"`endstop env` does not name it for {row['setting']}"
        url, is_variable = setting
        for name, value in row.get("fill", {}).items():
            url = url.replace("{" + name + "}", value)
        environment = base_environment(home, settings)
        if is_variable:
            environment[row["setting"]] = url
        error = call(row, "" if is_variable else url, environment, home, tools)
        if row["arrives"] in logger.posts[:1]:
            return None
        return f"arrived at {logger.posts or 'nowhere'}, expected {row['arrives']}\n{error}"


def printed(endstop, url):
    """Returns the settings of `endstop env`: the URL by setting and SDK, and whether it is a variable."""
    text = subprocess.run(
        [str(endstop), "env", "--url", url], capture_output=True, text=True, check=True
    ).stdout
    settings = {}
    for line in text.splitlines():
        found = VARIABLE.fullmatch(line) or ARGUMENT.fullmatch(line)
        for sdk in found["sdks"].split(", ") if found else []:
            settings[found["setting"], sdk] = (found["url"], found.re is VARIABLE)
    return settings


def base_environment(home, settings):
    """Returns all variables that need nothing filled in, as `eval` sets them, and keys that open nothing."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        # An SDK that bypasses the logger reaches nothing.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    for (setting, _), (url, is_variable) in settings.items():
        if is_variable and "{" not in url:
            environment[setting] = url
    return environment


def call(row, url, environment, home, tools):
    """Runs one call to its end. Returns the end of what it printed: every call fails, by design."""
    name, setting = row["sdk"], row["setting"]
    tool = tools[kind(row)]
    if kind(row) == "npm":
        command = ["node", str(tool / "calls.mjs"), name, setting, url]
    else:
        command = [str(tool), str(HERE / "calls.py"), name, setting, url]
    try:
        done = subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return "the call did not end"
    return (done.stdout + done.stderr)[-1500:]


class Logger:
    """A server that keeps the paths of requests and answers each with an error."""

    def __enter__(self):
        posts = self.posts = []

        class Answer(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(404)

            def do_POST(self):
                posts.append(self.path.split("?")[0])
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.answer(400)

            def answer(self, status):
                body = b'{"error": {"message": "logged", "type": "invalid_request_error"}}'
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def kind(row):
    """Returns what the SDK of a row is installed with: npm, or one of two Pythons."""
    if row["sdk"].endswith("(npm)"):
        return "npm"
    # It does not install beside the newest SDKs.
    return "litellm" if row["sdk"] == "litellm" else "python"


def installed_tools(rows):
    """Returns the pinned packages for these rows, by kind; installed if they are not."""
    tools = {}
    for needed in sorted({kind(row) for row in rows}):
        tools[needed] = node_packages() if needed == "npm" else python_packages(needed)
    return tools


def python_packages(group):
    """Returns a Python with the pinned SDKs."""
    files = [f"{group}.txt", f"{group}-constraints.txt"]

    def fill(folder):
        subprocess.run([sys.executable, "-m", "venv", "venv"], cwd=folder, check=True)
        pip = ["venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pins = ["-r", HERE / files[0], "-c", HERE / files[1]]
        subprocess.run([*pip, *pins], cwd=folder, check=True, stdout=sys.stderr)

    return installed(f"paths-{group}", files, fill) / "venv" / "bin" / "python"


def node_packages():
    """Returns a folder with the pinned packages and the script, which Node expects beside them."""

    def fill(folder):
        for file in ("package.json", "package-lock.json"):
            shutil.copy(HERE / file, folder)
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(["npm", "ci", *flags], cwd=folder, check=True, stdout=sys.stderr)

    folder = installed("paths-npm", ["package.json", "package-lock.json"], fill)
    shutil.copy(HERE / "calls.mjs", folder)
    return folder


def installed(name, files, fill):
    """Returns a folder of the cache that `fill` filled once for this state of the files."""
    state = hashlib.sha256(b"".join((HERE / file).read_bytes() for file in files)).hexdigest()
    folder = CACHE / f"{name}-{state[:16]}"
    done = folder / "installed"
    if not done.is_file():
        say(f"installing from {files[0]} (once; some minutes)")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fill(folder)
        done.touch()
    return folder


if __name__ == "__main__":
    main()
