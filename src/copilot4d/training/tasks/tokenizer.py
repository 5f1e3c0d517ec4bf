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
from copilot4d.counter import SampleKey, StepCounter
from copilot4d.datasets.drive_list import DriveList, SweepItems, lengths_of
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.reconstruction import reconstruct
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokenizer.training_loss import TokenizerBatch, training_pass
from copilot4d.tokenizer.voxels import PointBatch
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.tokens.augmented_sweep import augmented_sweep, points_inside
from copilot4d.tokens.scans import ScanConfig, matched_drives, moved_into
from copilot4d.tokens.yardstick import measure_tokens
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
    scan: ScanConfig = field(default_factory=ScanConfig)
    remake_codebook: bool = False  # K-means once the bank is full, also over the codes of `init_from`
    decoder_only: bool = False  # encoder and codebook stay as they are, but for a K-means: tokens keep their meaning

    def __post_init__(self) -> None:
        if self.rays_per_sweep < 1:
            raise UsageError(f"`rays_per_sweep` must be at least 1, got {self.rays_per_sweep}")


_Encoded = tuple[Tensor, Tensor, Tensor | None]  # features (B, H, W, D), tokens (B, H, W), empty columns (B, H, W)


@dataclass(frozen=True)
class _Sample:
    points: Tensor  # (N, 3) inside the region
    other: Tensor  # (M, 3) of another scan of the same moment, in the same frame; none where there is no such scan
    origins: Tensor  # (R, 3)
    directions: Tensor
    depths_m: Tensor  # (R,)


class TokenizerTask(TrainingTask):
    """Every sweep of `drives` is a sample; `held_out` sweeps, a few of each drive, choose the best checkpoint.

    other_scans: drives by name, the same moments seen by other sensors. Half of the time the encoder gets that scan
    instead, and half of the rays are taken from each.
    """

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
        other_scans: Mapping[str, Drive] | None = None,
        held_out_others: Mapping[str, Drive] | None = None,
    ) -> None:
        self.training = config
        self.drives: Sequence[Drive] = drives if isinstance(drives, DriveList) else tuple(drives)
        self.others = (None,) * len(self.drives) if other_scans is None else matched_drives(self.drives, other_scans)
        self.items = SweepItems(lengths_of(self.drives))
        if not self.items:
            raise UsageError("training a tokenizer needs at least one sweep; the chosen drives have none")
        frames = [(drive, i) for drive in held_out for i in range(len(drive))]
        chosen = np.unique(np.linspace(0, len(frames) - 1, min(held_out_sweeps, len(frames))).round().astype(int))
        self.held_out = [frames[i] for i in chosen]
        self.held_out_drives, self.held_out_others = tuple(held_out), dict(held_out_others or {})
        self._seen: list[_Encoded] | None = None  # of this step

    def build_model(self) -> nn.Module:
        """A fresh tokenizer."""
        model = Tokenizer(self.training.tokenizer)
        if self.training.decoder_only:
            for part in (model.encoder, model.codebook):
                part.requires_grad_(False)
        return model

    def sample(self, key: SampleKey) -> _Sample:
        """A moment, augmented: what the encoder gets of it, and some rays of all its scans."""
        scans = self._scans(key)
        scan, generator = self.training.scan, key.generator("scan")
        if scan.sway_deg:
            sway = scan.sway(generator)
            scans = [moved_into(sweep, sway) for sweep in scans]
        if len(scans) > 1 and generator.random() < 0.5:
            scans.reverse()
        draws = key.generator("rays")
        chosen = []
        for sweep in scans:
            wanted = min(self.training.rays_per_sweep // len(scans), len(sweep))
            rows = draws.choice(len(sweep), wanted, replace=False) if wanted else np.zeros(0, dtype=int)
            chosen.append(sweep.select(rows).rays())
        box = self.training.tokenizer.grid.box.astype(np.float32)
        points = [
            points_inside(p, box) for p in (scan.degraded(scans[0], generator).points, *(s.points for s in scans[1:]))
        ]
        return _Sample(
            points=torch.from_numpy(points[0]),
            other=torch.from_numpy(points[1] if len(points) > 1 else np.zeros((0, 3), dtype=np.float32)),
            origins=torch.cat([_floats(rays.origins) for rays, _ in chosen]),
            directions=torch.cat([_floats(rays.directions) for rays, _ in chosen]),
            depths_m=torch.cat([_floats(depths_m) for _, depths_m in chosen]),
        )

    def _scans(self, key: SampleKey) -> list[Sweep]:
        """The sweep of a key, and the other scan of its moment where there is one, augmented, in the sweep's frame."""
        d, frame = self.items[key.item(len(self.items))]
        drive = self.drives[d]
        own: Sweep = drive[frame]
        augmentation = self.training.augmentation.draw(key.generator("augmentation"))
        scans = [augmented_sweep(own, augmentation, drive.ego_box)]
        other = self.others[d]
        if other is not None:
            sweep = _without_ego(other, frame)
            sweep = moved_into(sweep, se3.invert(own.world_from_lidar) @ sweep.world_from_lidar)
            scans.append(augmented_sweep(sweep, augmentation))
        return scans

    def collate(self, samples: Sequence[_Sample]) -> TokenizerBatch:
        """All points and rays in one batch, each with its scene."""

        def scenes(parts: list[Tensor]) -> Tensor:
            return torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(p) for p in parts]))

        def batch(parts: list[Tensor]) -> PointBatch:
            return PointBatch(points=torch.cat(parts), scenes=scenes(parts), count=len(samples))

        other = batch([s.other for s in samples])
        return TokenizerBatch(
            points=batch([s.points for s in samples]),
            other=other if len(other.points) else None,
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
            self._seen.append((done.features, done.tokens, done.empty))
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
        tokens = torch.cat([t.flatten() for _, t, _ in seen])
        counts = world.sum(torch.bincount(tokens, minlength=book.config.codes)).long()
        report = book.update(rows, counts, context.counter.step_torch("kmeans"), remake=self.training.remake_codebook)
        if report.reinitialised:
            world.broadcast(book.weight.data)  # K-means is the same on equal machines; on unequal ones the first wins
            reset_optimizer_state(context.optimizer, [book.weight])
            if context.ema is not None:
                context.ema.restart(model, book.weight)
        return {
            "used": report.used,
            "perplexity": report.perplexity,
            "dead": report.dead,
            "kmeans": float(book.made),
        }

    def _bank_rows(self, seen: Sequence[_Encoded], context: StepContext) -> Tensor:
        """(M, D) a few rows of every sample, in the order of the global batch, whatever the ranks and passes.

        Columns whose token is reserved are left out.
        """
        config = self.training.tokenizer.codebook
        generators = iter(context.counter.sample_torch("bank"))
        batch = len(context.counter.indices) * context.world.size
        each = -(-(config.rows_per_iteration or config.codes) // batch)
        parts = []
        for features, _, empty in seen:
            mine = []
            for b, sample in enumerate(features.flatten(1, 2)):
                if empty is not None:
                    sample = sample[~empty[b].flatten()]
                chosen = torch.randperm(len(sample), generator=next(generators))[:each]
                mine.append(sample[chosen.to(sample.device)].float())
            parts.append(context.world.all_gather_rows(torch.cat(mine)))
        return torch.cat(parts)

    def evaluate(self, model: nn.Module, world: World) -> Mapping[str, float]:
        """Reconstruction of the held-out sweeps, each rank its share; on simulated drives the tokens' yardstick."""
        assert isinstance(model, Tokenizer)
        if not self.held_out:
            return {}
        mine = self.held_out[world.rank :: world.size] or self.held_out[:1]
        scores = score_reconstructions(model, (_without_ego(drive, frame) for drive, frame in mine))
        return {**scores, **measure_tokens(model, self.held_out_drives, self.held_out_others)}

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
        """Names, times and poses of the training drives, and of their other scans."""
        return drives_fingerprint((*self.drives, *(other for other in self.others if other is not None)))

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
