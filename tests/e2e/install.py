"""Installs what the runners need into a cache folder, once per state of the requirement files."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Tools(NamedTuple):
    python: Path
    node: Path
    rust: Path


def tools(here, cache, kinds, say):
    """The tools for these kinds of runners, installed if they are not."""
    if kinds & {"python", "framework"}:
        install(
            cache / "python",
            [here / "requirements.txt", here / "constraints.txt"],
            python_packages,
            say,
        )
    if kinds & {"npm", "npm framework"}:
        install(
            cache / "node", [here / "package.json", here / "package-lock.json"], node_packages, say
        )
        for script in here.glob("*.mjs"):  # Node looks for packages beside the script
            shutil.copy(script, cache / "node")
    if "rust" in kinds:
        rust_client(here / "rust-client", cache / "rust", say)
    return Tools(
        cache / "python" / "venv" / "bin" / "python",
        cache / "node",
        cache / "rust" / "debug" / "endstop-e2e-rust-client",
    )


def install(folder, files, packages, say):
    """Calls `packages` unless the folder was filled from exactly these files."""
    stamp = folder / "installed-from"
    state = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if stamp.is_file() and stamp.read_text() == state:
        return
    say(f"e2e: installing from {files[0].name} (once; some minutes)")
    clear(folder)
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy(file, folder)
    packages(folder)
    stamp.write_text(state)


def python_packages(folder):
    check([sys.executable, "-m", "venv", "venv"], folder)
    pip = ["venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    check([*pip, "-r", "requirements.txt", "-c", "constraints.txt"], folder)


def node_packages(folder):
    check(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)


def rust_client(source, target, say):
    say("e2e: building the Rust client (the first time takes some minutes)")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    check(["cargo", "build", "--locked", "--quiet"], source, environment)


def check(command, folder, environment=None):
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)


def versions(here):
    """What was run, as `(name, version)`, read from the requirement files."""
    pins = (
        line.split("==")
        for line in (here / "requirements.txt").read_text().splitlines()
        if "==" in line
    )
    python = [(f"Python {name}", version) for name, version in pins]
    packages = json.loads((here / "package.json").read_text())["dependencies"]
    cargo = (here / "rust-client" / "Cargo.lock").read_text()
    crates = [("Rust " + name, crate_version(cargo, name)) for name in ("async-openai", "genai")]
    return python + [(f"npm {name}", version) for name, version in packages.items()] + crates


def crate_version(lock, name):
    after = lock.split(f'name = "{name}"\nversion = "')[1]
    return after.split('"')[0]
