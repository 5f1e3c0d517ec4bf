"""What is installed and what is given away: pinned by hash, listed with licences, free of others' pictures."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_pins_what_the_constraints_pin():
    """`make lock` writes it again. What is new in the constraints is installed without a hash until then."""
    lock = script("lock")
    text = (ROOT / "requirements.lock").read_text()
    wrong = lock.differences((ROOT / "constraints.txt").read_text(), text)
    assert [line for line in wrong if not line.endswith("nothing in requirements.lock")] == []
    assert len(wrong) < 20
    assert "torch" not in lock.pinned(text)
    blocks = re.split(r"\n(?=[a-z])", text.split("\n", 2)[2])
    assert len(blocks) == len(lock.pinned(text))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)


def test_a_lock_that_differs_is_told():
    lock = script("lock")
    constraints, text = "torch==2.0\nA_b==1.0\nc==2\n", "a-b==1.0 \\\n    --hash=sha256:0\nd==1 \\\n"
    assert lock.differences(constraints, text) == [
        "c: 2 in constraints.txt, nothing in requirements.lock", "d: nothing in constraints.txt, 1 in requirements.lock"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "version"),
    [("a_b-1.2.3-py3-none-any.whl", "1.2.3"), ("a-b-1.2.post1.tar.gz", "1.2.post1"), ("a.exe", None)],
)
def test_versions_are_read_from_file_names(file, version):
    assert script("lock").version_of(file) == version


def test_the_bill_of_materials_lists_what_is_installed_with_licences_and_hashes():
    parts = {part["name"]: part for part in script("sbom").bill()["components"]}
    assert {"torch", "numpy", "viser", "pykdtree"} <= set(parts)
    assert "pytest" not in parts
    assert all(part["licenses"][0]["license"]["name"] != "not stated" for part in parts.values())
    assert parts["numpy"]["hashes"]
    listed = (DOCS / "licences.md").read_text()
    for name, part in parts.items():  # what is stricter than most must be told
        if re.search(r"GPL", part["licenses"][0]["license"]["name"]):
            assert name in listed, name


def test_pictures_made_from_kitti_are_in_no_archive():
    stated = (DOCS / "licences.md").read_text()
    pictures = {path for pattern in re.findall(r"`docs/(\S+?\.png)`", stated) for path in DOCS.glob(pattern)}
    assert len(pictures) >= 3
    packed = {ROOT / file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert ROOT / "src" / "copilot4d" / "errors.py" in packed
    assert ROOT / "docs" / "pictures" / "street.png" in packed
    assert not pictures & packed


def test_packages_whose_private_attributes_are_read_have_an_upper_bound():
    """A new version may drop them without a word."""
    project = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'"viser>=[\d.]+,<[\d.]+"', project)
