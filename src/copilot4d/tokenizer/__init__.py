"""The tokenizer: point clouds to discrete tokens and back (docs/tokenizer.md)."""

from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from copilot4d.tokenizer.codebook import Codebook, CodebookConfig
from copilot4d.tokenizer.config import BackboneConfig, RenderingConfig, TokenizerConfig
from copilot4d.tokenizer.feature_grid import FeatureGridConfig
from copilot4d.tokenizer.generation import GeneratedPoints, generate_points, voxel_centres
from copilot4d.tokenizer.losses import LossConfig
from copilot4d.tokenizer.scene import Rendering, Scene
from copilot4d.tokenizer.skipping import SkippingConfig
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokenizer.training_loss import TokenizerBatch, training_pass
from copilot4d.tokenizer.voxels import PointBatch

__all__ = [
    "BackboneConfig", "Codebook", "CodebookConfig", "FeatureGridConfig", "GeneratedPoints", "LossConfig", "PointBatch",
    "Rendering", "RenderingConfig", "Scene", "SkippingConfig", "Tokenizer", "TokenizerBatch", "TokenizerConfig",
    "estimate_beam_pattern", "generate_points", "training_pass", "voxel_centres",
]  # fmt: skip
