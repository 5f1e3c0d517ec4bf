"""Writes a bill of materials (CycloneDX 1.5, JSON) of what copilot4d needs at run time, with the installed versions.

    .venv/bin/python .ci/sbom.py sbom.cdx.json      # `make sbom`

Names, versions, licences as the packages state them, and the sha256 that requirements.lock allows.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def normal(name: str) -> str:
    """A package's name as PyPI compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str) -> dict[str, importlib.metadata.Distribution]:
    """A package and all that it needs here, without extras."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [name]
    while waiting:
        each = normal(waiting.pop())
        if each in found:
            continue
        found[each] = importlib.metadata.distribution(each)
        for text in found[each].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def licence(distribution: importlib.metadata.Distribution) -> str:
    """What a package says of its licence."""
    said = distribution.metadata
    classifiers = [c.rpartition("::")[2].strip() for c in said.get_all("Classifier") or [] if c.startswith("License")]
    first_line = next(iter((said.get("License") or "").splitlines()), "")
    return said.get("License-Expression") or "; ".join(classifiers) or first_line or "not stated"


def locked_hashes() -> dict[str, list[str]]:
    """Of each package in requirements.lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.findall(r"^([a-z0-9-]+)==\S+ \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", text, re.MULTILINE)
    return {name: re.findall(r"[0-9a-f]{64}", hashes) for name, hashes in blocks}


def bill() -> dict[str, Any]:
    """The whole document."""
    hashes = locked_hashes()
    components = [
        {
            "type": "library",
            "name": name,
            "version": each.version,
            "purl": f"pkg:pypi/{name}@{each.version}",
            "licenses": [{"license": {"name": licence(each)}}],
            "hashes": [{"alg": "SHA-256", "content": value} for value in hashes.get(name, [])],
        }
        for name, each in sorted(closure("copilot4d").items())
        if name != "copilot4d"
    ]
    own = importlib.metadata.distribution("copilot4d")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "copilot4d", "version": own.version}},
        "components": components,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {sys.argv[1]}")
