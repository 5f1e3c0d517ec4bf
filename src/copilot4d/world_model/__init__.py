"""The world model: discrete diffusion over the tokens of lidar frames, conditioned on the past and the ego's motion."""

from copilot4d.world_model.actions import Actions, TokenFrame, actions_of
from copilot4d.world_model.loss import DenoisingLoss, denoising_loss
from copilot4d.world_model.model import Prediction, WorldModel, WorldModelConfig
from copilot4d.world_model.noise import draw_noise
from copilot4d.world_model.objectives import DiffusionConfig, Objective, make_denoising
from copilot4d.world_model.rollout import Rollout, generate, rollout, sample_frame
from copilot4d.world_model.sampler import Draws, SamplerConfig
from copilot4d.world_model.unet import UNetConfig

__all__ = [
    "Actions", "DenoisingLoss", "DiffusionConfig", "Draws", "Objective", "Prediction", "Rollout", "SamplerConfig",
    "TokenFrame", "UNetConfig", "WorldModel", "WorldModelConfig", "actions_of", "denoising_loss", "draw_noise",
    "generate", "make_denoising", "rollout", "sample_frame",
]  # fmt: skip
