"""The report in words and as a page: a stranger must find what is wrong, where, and what to do."""

import io
import re

import pytest
from rich.console import Console

from copilot4d.datasets import write_folder, write_kitti
from copilot4d.doctor import Finding, examine, grouped
from copilot4d.doctor.finding import listed
from copilot4d.doctor.html import write_page
from copilot4d.doctor.report import cases, headline, render, verdict
from copilot4d.geometry import se3
from tests.doctor.logs import healthy_log, with_poses

LOG = healthy_log()


def text_of(report):
    console = Console(file=io.StringIO(), width=160)
    console.print(render(report))
    return console.file.getvalue()


@pytest.fixture(scope="module")
def inverted(tmp_path_factory):
    root = tmp_path_factory.mktemp("inverted")
    write_folder(with_poses(LOG, se3.invert(LOG.world_from_lidar)), root / "town")
    return examine(root / "town")


def test_the_words_say_what_is_there_and_what_to_do(inverted):
    words = " ".join(text_of(inverted).split())
    for expected in (
        "folder, 1 drive", "14", "5 Hz", "metres", "+z", "1.73 m", "(0.00, 0.00, 0.00)", "PROBLEM",
        "The poses are inverted", "To fix it: invert every pose", "Verdict: 1 problem to fix",
    ):  # fmt: skip
        assert expected in words


def test_brackets_in_names_are_no_markup(tmp_path):
    write_kitti(LOG[:3], tmp_path, name="[red]00[/red]".replace("/", "_"))
    assert "[red]00[_red]" in text_of(examine(tmp_path))


def test_the_page_has_the_findings_and_three_pictures_a_drive(inverted, tmp_path):
    page = write_page(inverted, tmp_path / "out" / "report.html").read_text()
    assert "The poses are inverted" in page
    assert "invert every pose" in page
    assert len(re.findall(r"data:image/png;base64,", page)) == 3
    assert not re.findall(r"(src|href)=\"http", page)


def test_the_page_of_a_tree_that_cannot_be_opened(tmp_path):
    report = examine(tmp_path / "nowhere")
    page = write_page(report, tmp_path / "report.html").read_text()
    assert "cannot be opened" in page
    assert "cannot be opened" in headline(report)


def finding(where, code="a", severity="problem", evidence="seen"):
    return Finding(code=code, severity=severity, title=code.upper(), evidence=evidence, remedy="mend", where=where)


def test_the_same_finding_is_told_once_and_problems_come_first():
    told = grouped([finding("1", "r", "remark"), finding("1"), finding("2"), finding("3")])
    assert [(group.code, len(group.cases)) for group in told] == [("a", 3), ("r", 1)]
    many = grouped([finding(str(i)) for i in range(40)])[0]
    assert cases(many)[0] == "0: seen"
    assert cases(many)[-1] == "... and 34 more"
    assert listed([1, 2, 3], 2) == "1, 2 and 1 more"


def test_a_healthy_verdict_counts_remarks(tmp_path):
    write_kitti(LOG[:3], tmp_path, name="00")
    report = examine(tmp_path)
    assert verdict(report) == "Verdict: healthy, nothing to fix (2 remarks)."
    assert "frames 3..9 are missing" in " ".join(text_of(report).split())
