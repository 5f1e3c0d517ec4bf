"""What the demo's numbers say, in words: pure functions from scores to sentences. No winner is assumed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from copilot4d.cli.score_table import Column

COLUMNS = (
    Column("chamfer_roi", "Chamfer (m²)"),
    Column("roi_l1_median", "median error of a ray (m)"),
    Column("roi_l1_mean", "mean error of a ray (m)"),
    Column("roi_absrel_mean", "mean error (% of range)", 100.0),
)
SPOKEN = {
    "chamfer_roi": "Chamfer",
    "roi_l1_median": "the median error of a ray",
    "roi_l1_mean": "the mean error of a ray",
    "roi_absrel_mean": "the mean error in % of range",
}
EVEN = 0.02  # of a score: nearer than this is called even
WHY_BASELINES_ARE_STRONG = (
    "Most of a street stands still, and there the past, carried along by the ego's motion, is hard to beat. What a "
    "learned model can add is what moves and what was hidden."
)


def verdict(model: str, means: Mapping[str, Mapping[str, float]]) -> str:
    """Column by column: is the model better than the best of the others? {name: metrics} -> a sentence, or nothing.

    >>> others = {"roi_l1_median": math.nan, "roi_l1_mean": math.nan, "roi_absrel_mean": math.nan}
    >>> verdict("a", {"a": {"chamfer_roi": 2.0, **others}, "b": {"chamfer_roi": 4.0, **others}})
    "a is better than the best of the others in Chamfer (0.50 times b's)."
    """
    found: dict[str, list[str]] = {"better than": [], "about as good as": [], "worse than": []}
    for metric, ratio, rival in ratios(model, means):
        how = "about as good as" if abs(ratio - 1) < EVEN else "better than" if ratio < 1 else "worse than"
        found[how].append(f"{SPOKEN[metric]} ({ratio:.2f} times {rival}'s)")
    said: list[str] = []
    for how, columns in found.items():
        if columns:
            whom = f"{how} the best of the others" if not said else how.removesuffix(" than").removesuffix(" as")
            said.append(f"{whom} in {_listed(columns)}")
    return f"{model} is {', and '.join(said)}." if said else ""


def ratios(model: str, means: Mapping[str, Mapping[str, float]]) -> list[tuple[str, float, str]]:
    """Of each column that can be compared: its metric, the model's score over the best of the others, and whose it is.

    A score of 0 by another model cannot be compared with.
    """
    compared = []
    for metric, *_ in COLUMNS:
        others = {name: values[metric] for name, values in means.items() if name != model and values[metric] > 0}
        own = means[model][metric]
        if others and not math.isnan(own):
            rival = min(others, key=lambda name: others[name])
            compared.append((metric, own / others[rival], rival))
    return compared


def obeys(table: Mapping[str, Mapping[str, float]]) -> str:
    """{forecast under: {truth of: Chamfer}} -> under which plans the forecast is nearest to its own plan's truth."""
    astray = [plan for plan, row in table.items() if min(row, key=lambda name: row[name]) != plan]
    if not astray:
        return "Here it does, under every plan."
    if len(astray) == len(table):
        return "Here it does under no plan."
    others = [plan for plan in table if plan not in astray]
    return f"Here it does under {_listed(others)}, but not under {_listed(astray)}."


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
