"""Training the tokenizer: sweeps of any drives, some rays of each, and the care of the codebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from copilot4d.config import default_values, to_mapping
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, Sweep, inside_box
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.reconstruction import clean_sweep, reconstruct
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokenizer.training_loss import TokenizerBatch, training_pass
from copilot4d.tokenizer.voxels import PointBatch
from copilot4d.training.augmentation import AugmentationConfig
from copilot4d.training.counter import SampleKey, StepCounter
from copilot4d.training.distributed import World
from copilot4d.training.fingerprint import drives_fingerprint
from copilot4d.training.optimizer import reset_optimizer_state
from copilot4d.training.task import StepContext, TrainingTask
from copilot4d.training.tokenizer_scores import reconstruction_picture, score_reconstructions


@dataclass(frozen=True, kw_only=True)
class TokenizerTraining:
    """What a tokenizer is trained on, beside the drives."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    rays_per_sweep: int = 4096  # supervised at each visit of a sweep
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)

    def __post_init__(self) -> None:
        if self.rays_per_sweep < 1:
            raise UsageError(f"--rays-per-sweep must be at least 1, got {self.rays_per_sweep}")


@dataclass(frozen=True)
class _Sample:
    points: Tensor  # (N, 3) inside the region
    origins: Tensor  # (R, 3)
    directions: Tensor
    depths_m: Tensor  # (R,)


class TokenizerTask(TrainingTask):
    """Every sweep of `drives` is a sample; `held_out` sweeps, a few of each drive, choose the best checkpoint."""

    name = "tokenizer"
    score = "chamfer_roi"
    may_skip_parameters = True  # a batch whose rays meet no occupied cell leaves the feature grid out

    def __init__(
        self,
        config: TokenizerTraining,
        drives: Sequence[Drive],
        held_out: Sequence[Drive] = (),
        *,
        held_out_sweeps: int = 8,
    ) -> None:
        self.training = config
        self.drives = tuple(drives)
        self.items = [(d, i) for d, drive in enumerate(self.drives) for i in range(len(drive))]
        if not self.items:
            raise UsageError("training a tokenizer needs at least one sweep; the chosen drives have none")
        frames = [(drive, i) for drive in held_out for i in range(len(drive))]
        chosen = np.unique(np.linspace(0, len(frames) - 1, min(held_out_sweeps, len(frames))).round().astype(int))
        self.held_out = [frames[i] for i in chosen]
        self._seen: list[tuple[Tensor, Tensor]] | None = None  # of this step: features (B, H, W, D), tokens (B, H, W)

    def build_model(self) -> nn.Module:
        """A fresh tokenizer."""
        return Tokenizer(self.training.tokenizer)

    def sample(self, key: SampleKey) -> _Sample:
        """A sweep, augmented, and some of its rays."""
        drive, frame = self._item(key)
        sweep = self.training.augmentation.draw(key.generator("augmentation")).sweep(_without_ego(drive, frame))
        sweep = clean_sweep(sweep)
        wanted = min(self.training.rays_per_sweep, len(sweep))
        chosen = key.generator("rays").choice(len(sweep), wanted, replace=False) if wanted else np.zeros(0, dtype=int)
        rays, depths_m = sweep.select(chosen).rays()
        inside = inside_box(sweep.points, self.training.tokenizer.grid.box.astype(np.float32))
        return _Sample(
            points=torch.from_numpy(sweep.points[inside]),
            origins=_floats(rays.origins),
            directions=_floats(rays.directions),
            depths_m=_floats(depths_m),
        )

    def collate(self, samples: Sequence[_Sample]) -> TokenizerBatch:
        """All points and rays in one batch, each with its scene."""

        def scenes(parts: list[Tensor]) -> Tensor:
            return torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(p) for p in parts]))

        points = [s.points for s in samples]
        return TokenizerBatch(
            points=PointBatch(points=torch.cat(points), scenes=scenes(points), count=len(samples)),
            rays=RayBatch(
                origins=torch.cat([s.origins for s in samples]),
                directions=torch.cat([s.directions for s in samples]),
                scenes=scenes([s.origins for s in samples]),
            ),
            true_depths_m=torch.cat([s.depths_m for s in samples]),
        )

    def loss(self, model: nn.Module, batch: Any, counter: StepCounter) -> Mapping[str, Tensor]:
        """All losses of the tokenizer."""
        assert isinstance(model, Tokenizer)
        counts = torch.bincount(batch.rays.scenes, minlength=batch.points.count).tolist()
        draws = [
            g.random(n, dtype=np.float32) for g, n in zip(counter.sample_generators("jitter"), counts, strict=True)
        ]
        offsets = torch.from_numpy(np.concatenate(draws)).to(batch.rays.origins.device)
        done = training_pass(model, batch, offsets=offsets, noise=counter.step_torch("skipping"))
        if self._seen is not None:
            self._seen.append((done.features, done.tokens))
        return done.losses

    def before_step(self, context: StepContext) -> None:
        """Begin to note what the encoder puts out."""
        self._seen = []

    def after_step(self, context: StepContext) -> Mapping[str, float]:
        """Fill the memory bank, count use, and make the codebook anew where it died: the same on every rank."""
        model, world = context.model, context.world
        assert isinstance(model, Tokenizer)
        seen, self._seen = self._seen or [], None
        book = model.codebook
        rows = self._bank_rows(seen, context)
        tokens = torch.cat([t.flatten() for _, t in seen])
        counts = world.sum(torch.bincount(tokens, minlength=book.config.codes)).long()
        report = book.update(rows, counts, context.counter.step_torch("kmeans"))
        if report.reinitialised:
            world.broadcast(book.weight.data)  # K-means is the same on equal machines; on unequal ones the first wins
            reset_optimizer_state(context.optimizer, [book.weight])
        return {
            "used": report.used,
            "perplexity": report.perplexity,
            "dead": report.dead,
            "kmeans": float(book.made),
        }

    def _bank_rows(self, seen: Sequence[tuple[Tensor, Tensor]], context: StepContext) -> Tensor:
        """(M, D) a few rows of every sample, in the order of the global batch, whatever the ranks and passes."""
        config = self.training.tokenizer.codebook
        generators = iter(context.counter.sample_torch("bank"))
        batch = len(context.counter.indices) * context.world.size
        each = -(-(config.rows_per_iteration or config.codes) // batch)
        parts = []
        for features, _ in seen:
            mine = []
            for sample in features.flatten(1, 2):
                chosen = torch.randperm(len(sample), generator=next(generators))[:each]
                mine.append(sample[chosen.to(sample.device)].float())
            parts.append(context.world.all_gather_rows(torch.cat(mine)))
        return torch.cat(parts)

    def evaluate(self, model: nn.Module, world: World) -> Mapping[str, float]:
        """Reconstruction of the held-out sweeps; each rank takes its share."""
        assert isinstance(model, Tokenizer)
        if not self.held_out:
            return {}
        mine = self.held_out[world.rank :: world.size] or self.held_out[:1]
        return score_reconstructions(model, (_without_ego(drive, frame) for drive, frame in mine))

    def pictures(self, model: nn.Module, world: World) -> Mapping[str, NDArray[np.uint8]]:
        """Truth beside reconstruction for the first and the middle held-out sweep."""
        assert isinstance(model, Tokenizer)
        shown = [self.held_out[i] for i in sorted({0, len(self.held_out) // 2})] if self.held_out else []
        drawn = {}
        for k, (drive, frame) in enumerate(shown):
            made = reconstruct(model, _without_ego(drive, frame))
            drawn[f"reconstruction_{k}"] = reconstruction_picture(model, made, title=f"{drive.name}, sweep {frame}")
        return drawn

    def config(self) -> Mapping[str, Any]:
        """The tokenizer, the rays, the augmentation."""
        return to_mapping(self.training)

    def default_config(self) -> Mapping[str, Any]:
        """Of the same."""
        return default_values(self.training)

    def conventions(self) -> Mapping[str, Any]:
        """What tokens mean."""
        config = self.training.tokenizer
        return {
            "tokens": "(H, W), H along x, W along y",
            "grid": to_mapping(config.grid),
            "vocabulary": config.vocabulary,
            "token_shape": list(config.tokens),
        }

    def data_fingerprint(self) -> str:
        """Names, times and poses of the training drives."""
        return drives_fingerprint(self.drives)

    def describe(self, key: SampleKey) -> Mapping[str, Any]:
        """Drive and frame."""
        drive, frame = self._item(key)
        return {"drive": drive.name, "frame": frame}

    def shard_units(self, model: nn.Module) -> Sequence[nn.Module]:
        """The Swin blocks."""
        assert isinstance(model, Tokenizer)
        stages = (model.encoder.fine, model.encoder.coarse, model.decoder.coarse, model.decoder.fine)
        return [block for stage in stages for block in stage.blocks]

    def compile_targets(self, model: nn.Module) -> Sequence[nn.Module]:
        """The Swin blocks: all else has shapes that change with the sweep."""
        return self.shard_units(model)

    def _item(self, key: SampleKey) -> tuple[Drive, int]:
        d, frame = self.items[key.item(len(self.items))]
        return self.drives[d], frame


def _without_ego(drive: Drive, frame: int) -> Sweep:
    sweep: Sweep = drive[frame]
    return sweep.without_box(drive.ego_box)


def _floats(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32))  # a copy: rays from one origin are a read-only view
