"""Scores of forecasts by the field's protocol (docs/scoring.md). Sees points only."""

from copilot4d.evaluation.chamfer import chamfer, chamfer_torch
from copilot4d.evaluation.frame_score import FrameScore, score_frame
from copilot4d.evaluation.protocol import Protocol, protocol_by_name
from copilot4d.evaluation.runner import evaluate_dataset
from copilot4d.evaluation.scores import ScoreFile

__all__ = [
    "FrameScore", "Protocol", "ScoreFile", "chamfer", "chamfer_torch", "evaluate_dataset", "protocol_by_name",
    "score_frame",
]  # fmt: skip
