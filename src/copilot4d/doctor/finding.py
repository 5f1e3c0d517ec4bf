"""`Finding`: one thing that the doctor noticed, its evidence and its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from copilot4d.errors import DataError

Severity = Literal["problem", "remark"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was noticed, where, how that is known, and what to do. A `remark` needs no fixing; a `problem` does."""

    code: str  # stable, for programs: "poses-inverted"
    severity: Severity
    title: str
    evidence: str
    remedy: str
    where: str = ""  # a drive or a file


@dataclass(frozen=True, kw_only=True)
class GroupedFinding:
    """The same finding in several places, told once."""

    code: str
    severity: Severity
    title: str
    remedy: str
    cases: tuple[Finding, ...]


def problem(code: str, where: str, title: str, evidence: str, remedy: str) -> Finding:
    """Something that must be fixed before the data is used."""
    return Finding(code=code, severity="problem", title=title, evidence=evidence, remedy=remedy, where=where)


def remark(code: str, where: str, title: str, evidence: str, remedy: str) -> Finding:
    """Something worth knowing that spoils nothing."""
    return Finding(code=code, severity="remark", title=title, evidence=evidence, remedy=remedy, where=where)


def from_data_error(error: DataError, what: Literal["data set", "drive", "sweep"]) -> Finding:
    """A loader's complaint about the whole data set, a drive or a sweep as a finding."""
    return problem(
        f"{what.replace(' ', '-')}-unusable", str(error.path), f"A {what} cannot be read: {error.field}",
        f"expected {error.expected}, found {error.found}", error.remedy,
    )  # fmt: skip


def grouped(findings: Iterable[Finding]) -> list[GroupedFinding]:
    """Findings with one code, title and remedy together; problems first, otherwise in the order they came."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.code, finding.title, finding.remedy), []).append(finding)
    told = [
        GroupedFinding(code=code, severity=cases[0].severity, title=title, remedy=remedy, cases=tuple(cases))
        for (code, title, remedy), cases in groups.items()
    ]
    return sorted(told, key=lambda group: group.severity != "problem")


def listed(items: Sequence[object], most: int = 8) -> str:
    """The first few of many, for a sentence: "3, 7, 9 and 12 more"."""
    shown = ", ".join(str(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
