"""Model cards: the README.md of a folder of weights. YAML front matter that the Hugging Face hub reads, then text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot4d.config import to_yaml
from copilot4d.progress import duration
from copilot4d.version import __version__

RESEARCH_ONLY = "Not for use in a vehicle: this is a research model, without any guarantee of safety."
FORECAST = """from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets.windows import read_clip, window_at

model = load_forecaster("{place}")
drive = open_dataset("path/to/log")["drive"]
clip = read_clip(drive, window_at(drive, 40, "1s"))       # five past sweeps, five future ones
future = model.forecast(clip.past, clip.future_poses)
future.sweeps[0].points                                   # (N, 3), metres, in that frame's lidar frame"""
ENCODE = """from copilot4d.checkpoints.load_tokenizer import load_tokenizer

tokenizer = load_tokenizer("path/to/this/folder").tokenizer
tokens = tokenizer.encode(sweeps)                         # (B, H, W) int64
scene = tokenizer.decode(tokens)
tokenizer.render(scene, [sweep.rays()[0] for sweep in sweeps]).depth_m"""
PART = "This folder is one part of a model. Load the model folder, which contains this folder:"
USE = {
    "tokenizer": ("", ENCODE),
    "occupancy_4d": ("", FORECAST.format(place="path/to/this/folder")),
    "world_model": (PART, FORECAST.format(place="path/to/model/folder")),
    "depth_selector": (PART, FORECAST.format(place="path/to/model/folder")),
}
CITATION = """@inproceedings{zhang2024copilot4d,
  title     = {Copilot4D: Learning Unsupervised World Models for Autonomous Driving via Discrete Diffusion},
  author    = {Zhang, Lunjun and Xiong, Yuwen and Yang, Ze and Casas, Sergio and Hu, Rui and Urtasun, Raquel},
  booktitle = {International Conference on Learning Representations},
  year      = {2024}
}"""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One measured number, with what is needed to compare it."""

    metric: str  # "chamfer"
    value: float
    dataset: str  # "KITTI Odometry, sequence 08"
    protocol: str  # the protocol's name: only scores of the same protocol can be compared


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a user must know about weights: what they are, their training, their scores and their limits."""

    title: str
    summary: str
    trained_on: Sequence[str]
    steps: int
    samples: int
    training_s: float
    hardware: str
    scores: Sequence[Score] = field(default_factory=tuple)
    limits: str = RESEARCH_ONLY
    license: str = "apache-2.0"
    command: str = ""  # that trained it

    def text(self, kind: str, parameters: int) -> str:
        """README.md of a folder of this kind."""
        sections = {
            "": f"{self.summary} It has {_count(parameters)} parameters.",
            "Training": self._training(),
            "How to use it": _use(kind),
            "Scores": self._scores(),
            "Limits": self.limits,
            "Licence": f"The weights are licensed under `{self.license}`. copilot4d, which reads them, is under "
            "Apache-2.0.",
            "Citation": "The model follows this paper. It is an independent implementation, not by its authors.\n\n"
            f"```bibtex\n{CITATION}\n```",
        }
        text = [f"---\n{to_yaml(self._front(kind)).rstrip()}\n---", f"# {self.title}"]
        text += [f"## {heading}\n\n{body}" if heading else body for heading, body in sections.items()]
        return "\n\n".join([*text, f"Written by copilot4d {__version__}."]) + "\n"

    def _front(self, kind: str) -> dict[str, Any]:
        tags = ["lidar", "world-model", "point-cloud", "autonomous-driving", kind.replace("_", "-")]
        front: dict[str, Any] = {
            "license": self.license, "library_name": "copilot4d", "tags": list(dict.fromkeys(tags)),
        }  # fmt: skip
        if self.scores:
            name = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
            front["model-index"] = [{"name": name, "results": [_result(score) for score in self.scores]}]
        return front

    def _training(self) -> str:
        lines = [f"- Data: {'; '.join(self.trained_on)}"]
        if self.steps:
            length = f"{self.steps} steps, {self.samples} samples, {duration(self.training_s)} on {self.hardware}"
        else:
            length = "not recorded in this folder"
        lines.append(f"- Length: {length}")
        if self.command:
            lines += ["- Commands:", "", "```bash", self.command, "```"]
        return "\n".join(lines)

    def _scores(self) -> str:
        if not self.scores:
            return "Not scored."
        rows = [f"| {s.metric} | {s.value:.4g} | {s.dataset} | {s.protocol} |" for s in self.scores]
        return "\n".join(["Smaller is better.", "", "| score | value | data | protocol |", "|---|---|---|---|", *rows])


def _use(kind: str) -> str:
    before, code = USE.get(kind, ("", FORECAST.format(place="path/to/this/folder")))
    block = f"```python\n{code}\n```"
    return f"{before}\n\n{block}" if before else block


def _count(parameters: int) -> str:
    return f"{parameters / 1e6:.2f} million" if parameters >= 100_000 else f"{parameters:,}"


def _result(score: Score) -> dict[str, Any]:
    slug = re.sub(r"[^a-z0-9]+", "-", score.dataset.lower()).strip("-")
    return {
        "task": {"type": "point-cloud-forecasting", "name": "Point cloud forecasting"},
        "dataset": {"type": slug, "name": score.dataset},
        "metrics": [{"type": score.metric, "value": float(score.value), "name": f"{score.metric} ({score.protocol})"}],
    }
