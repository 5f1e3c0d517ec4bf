"""Writes requirements.lock: the versions of constraints.txt with the sha256 of every file that the index has of them.

    python .ci/lock.py            # write it (`make lock`)
    python .ci/lock.py --check    # say where it differs from constraints.txt, without the network

torch is left out: it comes in builds for CPUs and several CUDA versions, from several indices, under one version.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "requirements.lock"
LEFT_OUT = ("torch",)
HEAD = """\
# What continuous integration installs, with hashes: pip install --no-deps --require-hashes -r requirements.lock
# Made from constraints.txt by `make lock`; torch is not in it (several builds share one version).
"""


def pinned(text: str) -> dict[str, str]:
    """Names, as PyPI normalises them, and versions."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def differences(constraints: str, lock: str) -> list[str]:
    """Where a lock is not that of the constraints."""
    wanted = {name: version for name, version in pinned(constraints).items() if name not in LEFT_OUT}
    found = pinned(lock)
    return [
        f"{name}: {wanted.get(name, 'nothing')} in constraints.txt, {found.get(name, 'nothing')} in requirements.lock"
        for name in sorted({*wanted, *found})
        if wanted.get(name) != found.get(name)
    ]


def hashes(name: str, version: str) -> list[str]:
    """Of all files of a release that were not withdrawn."""
    with urllib.request.urlopen(f"{index_url().rstrip('/')}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    found = set()
    for tag in re.findall(r"<a [^>]*>", page):
        link = re.search(r'href="[^"#]*/([^/"#]+)#sha256=([0-9a-f]{64})"', tag)
        if link and "data-yanked" not in tag and version_of(link[1]) == version:
            found.add(link[2])
    return sorted(found)


@functools.cache
def index_url() -> str:
    """The package index that pip is set up with, or pip's own default."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = os.environ.get("PIP_INDEX_URL") or subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return found.strip() or str(importlib.import_module("pip._internal.models.index").PyPI.simple_url)


def version_of(file: str) -> str | None:
    """The version in the name of a wheel or of an archive of sources."""
    if file.endswith(".whl"):
        return file.split("-")[1]
    archive = re.fullmatch(r".+-([^-]+)\.(tar\.gz|zip)", file)
    return archive[1] if archive else None


def main() -> int:
    """Write or check the lock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    constraints = CONSTRAINTS.read_text(encoding="utf-8")
    if parser.parse_args().check:
        wrong = differences(constraints, LOCK.read_text(encoding="utf-8"))
        print(
            "\n".join(
                [*wrong, "make lock writes it again"] if wrong else ["requirements.lock is that of constraints.txt"]
            )
        )
        return 1 if wrong else 0
    lines = [HEAD]
    for name, version in sorted(pinned(constraints).items()):
        if name not in LEFT_OUT:
            found = hashes(name, version)
            if not found:
                raise SystemExit(f"PyPI has no file of {name} {version}")
            lines.append(f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{h}" for h in found) + "\n")
    LOCK.write_text("".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
