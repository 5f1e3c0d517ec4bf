"""Everything that a checkpoint must hold to go on as if nothing had happened: model, optimizer, EMA, step, order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from copilot4d.checkpoints.checkpoint import Checkpoint
from copilot4d.checkpoints.tensors import named_state
from copilot4d.checkpoints.weights_check import check_names_and_shapes
from copilot4d.training.distributed import World, gather_to_first, load_full_tensor
from copilot4d.training.ema import Ema

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(kw_only=True)
class TrainingState:
    """What changes while training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: Ema | None
    draw_seed: int  # of all draws: of the run's own seed and, where it began with trained weights, of these
    updates_before: int = 0  # of the weights that it began with, where they are known
    step: int = 0  # updates done
    order: str = ""  # digest of which samples were seen, in their order
    precision: str = "fp32"
    seconds: float = 0.0  # spent training, over all resumptions
    score: float | None = None  # of the newest evaluation; lower is better

    def note_samples(self, step: int, batch: int, seed: int) -> None:
        """Extend the digest by one step's global batch: slots 0 to batch - 1, whose samples follow from the seed."""
        self.order = hashlib.sha256(f"{self.order}:{seed}:{step}:{batch}".encode()).hexdigest()

    def tensors(self, world: World) -> dict[str, dict[str, torch.Tensor]]:
        """Whole tensors by file and name, on the first rank. All ranks must call it: shards are gathered."""
        names: dict[torch.Tensor, str] = {p: name for name, p in self.model.named_parameters()}
        moments = {
            f"{names[parameter]}/{key}": value
            for parameter, state in self.optimizer.state.items()
            for key, value in state.items()
        }
        files = {"model": dict(named_state(self.model)), "optimizer": moments}
        if self.ema is not None:
            files["ema"] = self.ema.shadow
        return {file: gather_to_first(tensors, world) for file, tensors in files.items()}

    def plain(self) -> dict[str, Any]:
        """What state.json holds."""
        return {
            "step": self.step,
            "draw_seed": self.draw_seed,
            "updates_before": self.updates_before,
            "order": self.order,
            "seconds": self.seconds,
            "score": self.score,
            "precision": self.precision,
        }

    def restore(self, checkpoint: Checkpoint | None, world: World) -> None:
        """Take everything from the first rank's checkpoint (the other ranks pass None)."""
        plain = world.broadcast_json(None if checkpoint is None else dict(checkpoint.state))
        load_model(self.model, None if checkpoint is None else checkpoint.tensors("model"), world, checkpoint)
        self._restore_optimizer(checkpoint, world)
        if self.ema is not None:
            shadow = None if checkpoint is None else checkpoint.tensors("ema")
            for name, tensor in self.ema.shadow.items():
                load_full_tensor(tensor, None if shadow is None else shadow[name], world)
        self.step, self.order = int(plain["step"]), str(plain["order"])
        self.seconds, self.score = float(plain["seconds"]), plain["score"]
        # Runs from before these were kept drew by their seed alone, and go on so.
        self.draw_seed = int(plain.get("draw_seed", self.draw_seed))
        self.updates_before = int(plain.get("updates_before", 0))

    def _restore_optimizer(self, checkpoint: Checkpoint | None, world: World) -> None:
        saved = {} if checkpoint is None else checkpoint.tensors("optimizer")
        present = world.broadcast_json(sorted({key.rsplit("/", 1)[0] for key in saved}))
        parameters = dict(self.model.named_parameters())
        for name in present:
            parameter = parameters[name]
            state: dict[str, torch.Tensor] = {key: torch.zeros_like(parameter) for key in MOMENTS}
            # AdamW keeps the step beside the parameter where it is fused, as a float32 scalar.
            fused = bool(self.optimizer.defaults.get("fused"))
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu")
            for key, target in state.items():
                load_full_tensor(target, saved.get(f"{name}/{key}"), world)
            self.optimizer.state[parameter] = state


def load_model(
    model: nn.Module, tensors: Mapping[str, torch.Tensor] | None, world: World, source: Checkpoint | Path | None = None
) -> None:
    """Fill parameters and buffers on all ranks from the first rank's tensors; names and shapes must be the model's."""
    targets = dict(named_state(model))
    if tensors is not None:
        path = source.path if isinstance(source, Checkpoint) else (source or Path("model.safetensors"))
        check_names_and_shapes(targets, tensors, path)
    for name, target in targets.items():
        load_full_tensor(target, None if tensors is None else tensors[name], world)
