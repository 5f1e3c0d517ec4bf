"""The counterfactual measurement over many moments: from its JSON lines to a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of how many."""

    count: int
    of: int

    @property
    def value(self) -> float:
        """A fraction; NaN of nothing."""
        return self.count / self.of if self.of else float("nan")

    def text(self) -> str:
        """As a percentage with its counts."""
        return f"{100 * self.value:.0f}% ({self.count}/{self.of})" if self.of else "- (0/0)"


@dataclass(frozen=True, kw_only=True)
class WhatIfSummary:
    """Obedience: a share of (moment, plan); `pairs`: of (moment, plan, one other plan); reaction: of moments."""

    moments: int
    obedience: Mapping[str, Share]  # "all", "moving"
    pairs: Mapping[str, Share]  # nearer to the own truth than to one other
    chamfer: Mapping[str, Mapping[str, float]]  # "all", "moving" -> plan -> mean over moments, m^2
    reaction: Share
    displacement: Mapping[str, float] = field(default_factory=dict)  # mean true and imagined, metres

    def text(self) -> str:
        """A few lines for a person."""
        lines = []
        for kind in ("all", "moving"):
            chamfers = ", ".join(f"{plan} {value:.2f}" for plan, value in self.chamfer[kind].items())
            lines.append(
                f"{kind} points: obedience {self.obedience[kind].text()}, pairs {self.pairs[kind].text()}; "
                f"Chamfer to the own truth (m²): {chamfers}"
            )
        words = f"reaction {self.reaction.text()}"
        if self.reaction.of:
            true_m, imagined_m = self.displacement["true_m"], self.displacement["imagined_m"]
            words += f"; displacement {true_m:.2f} m true, {imagined_m:.2f} m imagined"
        return "\n".join([*lines, words])


def summarise(lines: Sequence[Mapping[str, Any]]) -> WhatIfSummary:
    """Lines of benchmarks/counterfactual.py, one per moment."""
    obeyed: dict[str, Share] = {}
    pairs: dict[str, Share] = {}
    chamfers: dict[str, dict[str, float]] = {}
    for kind in ("all", "moving"):
        entries = [(plan, entry) for line in lines for plan, entry in line[kind].items()]
        told = [(plan, entry) for plan, entry in entries if entry["obeys"] is not None]
        obeyed[kind] = Share(count=sum(entry["obeys"] for _, entry in told), of=len(told))
        nearer = [
            _number(entry["chamfer"][plan]) < _number(entry["chamfer"][other])
            for plan, entry in told
            for other in entry["told_apart"]
        ]
        pairs[kind] = Share(count=sum(nearer), of=len(nearer))
        own: dict[str, list[float]] = {}
        for plan, entry in entries:
            own.setdefault(plan, []).append(_number(entry["chamfer"][plan]))
        chamfers[kind] = {plan: _mean(values) for plan, values in own.items()}
    reactions = [line["reaction"] for line in lines if line["reaction"] is not None]
    return WhatIfSummary(
        moments=len(lines),
        obedience=obeyed,
        pairs=pairs,
        chamfer=chamfers,
        reaction=Share(count=sum(r["reacts"] for r in reactions), of=len(reactions)),
        displacement={name: _mean([_number(r[name]) for r in reactions]) for name in ("true_m", "imagined_m")},
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _mean(values: Sequence[float]) -> float:
    """Over the values that exist."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
