"""How a run starts: the model with its first weights, or the checkpoint to go on from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from copilot4d.checkpoints.checkpoint import Checkpoint, CheckpointStore, RunIdentity, open_checkpoint, read_tensors
from copilot4d.checkpoints.pretrained import stated_config
from copilot4d.checkpoints.remote_checkpoints import CopiedStore
from copilot4d.checkpoints.tensors import named_state
from copilot4d.config import completed, default_values, differences, to_mapping
from copilot4d.counter import counter_seed
from copilot4d.errors import DataError, TrainingError, UsageError
from copilot4d.training.distributed import World, broadcast_module_state
from copilot4d.training.precision import Precision, choose_precision
from copilot4d.training.settings import TrainingConfig
from copilot4d.training.state import load_model
from copilot4d.training.task import TrainingTask

# Conventions that follow from the data, which must be the same anyway: checkpoints from before them do not state them.
FOLLOW_FROM_DATA = ("intervals_s",)


def build_model(task: TrainingTask, config: TrainingConfig, world: World) -> nn.Module:
    """Fresh weights that depend on the seed alone, the same on all ranks."""
    torch.manual_seed(counter_seed(config.seed, "initial weights", 0))
    model = task.build_model()
    if config.parallel != "fully_shard":  # which moves its shards itself: the whole may not fit the device
        model = model.to(world.device)
    broadcast_module_state(model, world)
    return model.train()


def run_identity(task: TrainingTask, config: TrainingConfig) -> RunIdentity:
    """What resuming demands to be the same: task, its config, recipe, seed, data."""
    return RunIdentity(
        task=task.name,
        config={"recipe": to_mapping(config.recipe), "seed": config.seed, "task": dict(task.config())},
        defaults={"recipe": default_values(config.recipe), "task": dict(task.default_config())},
        data_fingerprint=task.data_fingerprint(),
        conventions=task.conventions(),
    )


def checkpoint_to_resume(
    store: CheckpointStore, identity: RunIdentity, world: World
) -> tuple[Checkpoint | None, int]:  # fmt: skip
    """The newest intact checkpoint (on the first rank; None on the others) and its step (0: a new run).

    Where the store is copied to a URL, a newer one there is fetched; those of another run there are refused.
    """
    found, trouble = None, ""
    if world.is_first:
        try:
            if isinstance(store, CopiedStore):
                for step in store.remote.steps()[-1:]:
                    check_same_content(store.remote.content(step), f"{store.remote.url}, step {step},", identity)
                store.remote.bring(store)
            found = store.newest()
            if found is not None:
                check_same_run(found, identity)
        except (DataError, UsageError) as error:
            if world.size == 1:
                raise
            trouble = str(error)
    trouble = world.broadcast_json(trouble)
    if trouble:
        raise UsageError(trouble)
    return found, int(world.broadcast_json(0 if found is None else found.step))


def check_same_run(checkpoint: Checkpoint, identity: RunIdentity) -> None:
    """Refuse to go on with another task, recipe, config or data than the checkpoint's.

    A setting that did not exist when the checkpoint was written had its default.
    """
    try:
        check_same_content(checkpoint.content, str(checkpoint.path), identity)
    except UsageError as error:
        raise UsageError(
            f"{error}. Use the run's own settings, or start anew from its weights: {checkpoint.path} as "
            "training.init_from, another training.run"
        ) from None


def check_same_content(content: Mapping[str, Any], where: str, identity: RunIdentity) -> None:
    """UsageError where a manifest's content is another run's."""
    mine, other = identity.content(), dict(content)
    if isinstance(stated := other.get("config"), Mapping):
        other["config"] = completed(stated, identity.defaults)
    if isinstance(stated := other.get("conventions"), Mapping):
        other["conventions"] = {k: v for k, v in mine["conventions"].items() if k in FOLLOW_FROM_DATA} | {**stated}
    keys = ("task", "config", "data_fingerprint", "conventions")
    changed = differences({k: other.get(k) for k in keys}, {k: mine[k] for k in keys})
    if changed:
        raise UsageError(f"{where} is from a run with other settings: {', '.join(changed)} differ")


def agree_on_precision(
    config: TrainingConfig, recorded: str | None, world: World, report: Callable[[str], None]
) -> Precision:
    """The first rank probes for all; a resumed run keeps its precision unless another one is asked for."""
    choice: dict[str, str] = {}
    if world.is_first:
        wanted = config.precision
        if wanted == "auto" and recorded in ("fp32", "bf16"):
            choice = {"name": recorded, "reason": "as this run began"}
        else:
            try:
                chosen = choose_precision(wanted, world.device)
                choice = {"name": chosen.name, "reason": chosen.reason}
            except UsageError as error:
                if world.size == 1:
                    raise
                choice = {"error": str(error)}
    choice = world.broadcast_json(choice)
    if "error" in choice:
        raise UsageError(choice["error"])
    if recorded is not None and choice["name"] != recorded:
        report(f"this run was trained in {recorded} so far and goes on in {choice['name']}")
    report(f"precision {choice['name']}: {choice['reason']}")
    return Precision(name="bf16" if choice["name"] == "bf16" else "fp32", reason=choice["reason"])


@dataclass(frozen=True)
class Lineage:
    """What a run began with: which weights, and how many updates they had had, where that is known."""

    weights_sha256: str = ""
    updates: int = 0

    def draw_seed(self, seed: int) -> int:
        """The seed of all draws of a run. One that continues trained weights repeats none of the draws they have seen,
        and two runs that continue each other never draw the same.
        """
        return counter_seed(seed, f"after {self.weights_sha256}", self.updates) if self.weights_sha256 else seed


def initialise_from(model: nn.Module, source: Path, world: World, report: Callable[[str], None]) -> Lineage:
    """Weights of a checkpoint, of a run's newest checkpoint, or of a pretrained folder; averaged ones where there are.

    Step, moments and data order start anew: this is for fine-tuning. What a pretrained folder left out because using
    the model does not need it (a codebook's bank) stays as it is; modules with a `begin_trained` method are told. A
    model with an `adapted` method may turn weights of other sizes into its own.
    """
    tensors, left_out, trouble, lineage = None, list[str](), "", ["", 0]
    if world.is_first:
        try:
            tensors, left_out = weights_of(source), left_out_of(source)
            lineage = [_digest(tensors), updates_of(source)]
        except DataError as error:
            if world.size == 1:
                raise
            trouble = str(error)
    if trouble := world.broadcast_json(trouble):
        raise TrainingError(trouble)
    left_out = world.broadcast_json(left_out)
    if tensors is not None:
        tensors = {name: tensor for name, tensor in named_state(model) if name in left_out} | tensors
        if hasattr(model, "adapted"):
            tensors = model.adapted(tensors)  # type: ignore[operator]
    load_model(model, tensors, world, source)
    for module in model.modules():
        if hasattr(module, "begin_trained"):
            module.begin_trained()  # type: ignore[operator]
    report(f"starting from the weights of {source}")
    digest, updates = world.broadcast_json(lineage)
    return Lineage(str(digest), int(updates))


def part_of(source: Path, task: str) -> Path:
    """The folder of a task's own weights in a model folder (`tokenizer/`, `world_model/`); any other place as it is."""
    part = source / task
    return part if (part / "model.safetensors").is_file() else source


def weights_of(source: Path) -> dict[str, torch.Tensor]:
    """Parameters and buffers in a run, checkpoint or pretrained folder."""
    if (source / "checkpoints").is_dir():
        newest = CheckpointStore(folder=source / "checkpoints").newest()
        if newest is None:
            raise DataError(source, "checkpoints", expected="an intact checkpoint", found="none",
                            remedy="pass a run that has saved one")  # fmt: skip
        return _averaged(newest)
    if (source / "state.json").exists():
        return _averaged(open_checkpoint(source))
    if (source / "model.safetensors").is_file():
        return read_tensors(source / "model.safetensors")
    raise DataError(source, "weights",
                    expected="a run, a checkpoint, a model folder or a folder with model.safetensors",
                    found="none of these",
                    remedy="pass such a folder; pickled weights (.pt, .bin, .ckpt) are never read")  # fmt: skip


def updates_of(source: Path) -> int:
    """How many updates the weights of a run or checkpoint have had, over all runs that continued each other; else 0."""
    found = None
    if (source / "checkpoints").is_dir():
        found = CheckpointStore(folder=source / "checkpoints").newest()
    elif (source / "state.json").exists():
        found = open_checkpoint(source)
    return 0 if found is None else found.step + int(found.state.get("updates_before", 0))


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def left_out_of(source: Path) -> list[str]:
    """Names of the tensors that a pretrained folder says it left out; none in runs and checkpoints."""
    return stated_config(source)["left_out"] if (source / "config.json").is_file() else []


def _averaged(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    tensors = checkpoint.tensors("model")
    return {**tensors, **checkpoint.tensors("ema")} if checkpoint.has("ema") else tensors
