"""What a stranger does: a fresh checkout and environment, every command and snippet of the README; then the wheel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_data import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

RUN_BY_CI_ITSELF = {"make test"}  # running it here would run this test again


def fenced(language: str) -> list[str]:
    """The README's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def readme_commands() -> list[str]:
    lines = (line.split(" # ")[0].strip() for block in fenced("bash") for line in block.splitlines())
    return [line for line in lines if line]


def run(command: list[str] | str, folder: Path, **environment: str) -> str:
    """Run to the end, or fail with what it printed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VIRTUAL_ENV", "PYTHON", "COPILOT4D", "MAKE"))}
    done = subprocess.run(
        ["bash", "-c", command] if isinstance(command, str) else command, cwd=folder, env=clean | environment,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """The files that git knows, as they are now, without any environment."""
    folder = tmp_path_factory.mktemp("stranger") / "copilot4d"
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], REPOSITORY)
    for name in listed.splitlines():
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def assert_weights_were_used(checkout: Path, demo: Path) -> None:
    """The demo's model is the shipped one where the repository has it."""
    shipped = (checkout / "src" / "copilot4d" / "weights" / "mini").is_dir()
    scores = json.loads((demo / "scores.json").read_text())
    assert (scores["model"] == "mini") == shipped


def test_every_command_of_the_readme_works_in_a_fresh_checkout(checkout):
    commands = readme_commands()
    assert commands[:2] == ["make demo", "make test"]
    ci = (checkout / ".ci" / "run").read_text()
    assert "make check test test-slow" in ci
    path = f"{checkout / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        if command not in RUN_BY_CI_ITSELF:
            run(command, checkout, PATH=path)
    assert_weights_were_used(checkout, checkout / "demo")
    page = (checkout / "demo" / "index.html").read_text()
    assert "<img" in page
    assert not re.findall(r'(?:src|href)="https?:', page), "the page must work offline"
    for block in fenced("python"):
        assert run([str(checkout / ".venv/bin/python"), "-c", block], checkout).strip()


def test_the_wheel_installs_into_a_fresh_environment_and_works_from_anywhere(checkout, tmp_path):
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")], checkout)
    (wheel,) = (tmp_path / "dist").glob("copilot4d-*.whl")
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", str(environment)], tmp_path)
    constraints = checkout / "constraints.txt"
    run([str(environment / "bin/pip"), "install", "--quiet", "-c", str(constraints), str(wheel)], tmp_path)
    copilot4d = str(environment / "bin" / "copilot4d")
    assert run([copilot4d, "--version"], tmp_path).startswith("copilot4d ")
    run([copilot4d, "demo", "--out", "demo"], tmp_path)
    assert (tmp_path / "demo" / "index.html").stat().st_size > 10_000
    assert_weights_were_used(checkout, tmp_path / "demo")
