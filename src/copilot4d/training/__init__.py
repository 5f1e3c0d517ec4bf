"""Training: one loop for the tokenizer, the world model and learned baselines, from a laptop to a cluster.

A model is trained by implementing `TrainingTask` and calling `train(task, TrainingConfig(...))`.
"""

from copilot4d.checkpoints.checkpoint import Checkpoint, CheckpointStore, open_checkpoint
from copilot4d.counter import SampleKey, StepCounter
from copilot4d.training.distributed import World, open_world
from copilot4d.training.journal import LogRecord, Observer
from copilot4d.training.loop import TrainingResult, train
from copilot4d.training.optimizer import Recipe, paper_recipe, parameter_groups
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.task import StepContext, TrainingTask

__all__ = [
    "Checkpoint", "CheckpointStore", "LogRecord", "Observer", "Recipe", "SampleKey", "StepContext", "StepCounter",
    "TrainingConfig", "TrainingResult", "TrainingTask", "World", "open_checkpoint", "open_world", "paper_recipe",
    "parameter_groups", "train",
]  # fmt: skip
