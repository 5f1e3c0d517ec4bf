"""`Tokenizer`: sweeps to tokens, tokens to scenes, scenes to depths along rays.

Axes: B sweeps, H/W tokens (H along x, W along y), R rays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from copilot4d.errors import UsageError
from copilot4d.geometry import Rays, Sweep
from copilot4d.layers.init import init_fan_in
from copilot4d.rendering import SOME_OPACITY, RayBatch
from copilot4d.tokenizer.codebook import Codebook
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.decoder import Decoder
from copilot4d.tokenizer.encoder import Encoder
from copilot4d.tokenizer.feature_grid import FeatureGrid
from copilot4d.tokenizer.renderer import Sampling, render_rays
from copilot4d.tokenizer.scene import Rendering, Scene
from copilot4d.tokenizer.skipping import CoarseBranch, mask_grid, ray_mask, repeated, true_mask, without_columns
from copilot4d.tokenizer.voxels import PointBatch, Voxels, voxelise


class Tokenizer(nn.Module):
    """The paper's tokenizer. `mode` in its config leaves out the coarse branch, or the feature grid."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        self.config = config
        dim, grid = config.backbone.dims[0], config.grid
        self.encoder = Encoder(config)
        self.codebook = Codebook(config.codebook)
        self.decoder = Decoder(config)
        self.mask_grid = mask_grid(grid, config.skipping.pool)
        self.feature_grid: FeatureGrid | None = None
        self.coarse_branch: CoarseBranch | None = None
        if config.mode != "voxel_centres":
            self.feature_grid = FeatureGrid(config.feature_grid, dim, grid, config.map_size)
            init_fan_in(self.feature_grid)
            nn.init.constant_(self.feature_grid.occupancy.bias, config.feature_grid.occupancy_bias)
        if config.mode != "no_skipping":
            self.coarse_branch = CoarseBranch(dim, config.logits_per_cell, grid.shape[2])
            init_fan_in(self.coarse_branch)
            nn.init.constant_(self.coarse_branch.linear.bias, config.skipping.initial_bias)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.codebook.weight.device

    @property
    def code_vectors(self) -> Tensor:
        """(K, D) what the codes mean, for networks that read tokens."""
        return self.codebook.weight.detach()

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of another tokenizer to start this one from: a coarser feature grid becomes one of its own cells."""
        name = "feature_grid.linear.weight"
        if self.feature_grid is None or name not in tensors:
            return dict(tensors)
        return {**tensors, name: self.feature_grid.refined(tensors[name])}

    @torch.no_grad()
    def encode(self, sweeps: Sequence[Sweep] | PointBatch) -> Tensor:
        """Sweeps, each in its own frame -> (B, H, W) int64 tokens."""
        voxels = self.voxels(sweeps)
        return self.codebook.nearest(self.encoder(voxels), self.empty_columns(voxels))

    def encode_features(self, sweeps: Sequence[Sweep] | PointBatch) -> Tensor:
        """(B, H, W, D): encoder outputs before quantisation."""
        return self.encoder(self.voxels(sweeps))  # type: ignore[no-any-return]

    def voxels(self, sweeps: Sequence[Sweep] | PointBatch) -> Voxels:
        """What the encoder reads of sweeps."""
        batch = sweeps if isinstance(sweeps, PointBatch) else PointBatch.of(sweeps, self.device)
        return voxelise(batch, self.config.grid)

    def empty_columns(self, voxels: Voxels) -> Tensor | None:
        """(B, H, W) bool: the columns whose token is reserved because they hold no point; None where none is."""
        return voxels.empty_columns(self.config.tokens) if self.config.codebook.reserved else None

    @torch.no_grad()
    def decode(self, tokens: Tensor) -> Scene:
        """(B, H, W) tokens -> scenes. `decode_codes` is the same with gradients."""
        if tokens.ndim != 3 or tuple(tokens.shape[1:]) != self.config.tokens or tokens.is_floating_point():
            expected = f"(B, {self.config.tokens[0]}, {self.config.tokens[1]}) of integers"
            raise UsageError(f"tokens must be {expected}, got {tuple(tokens.shape)} of {tokens.dtype}")
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.config.vocabulary:
            raise UsageError(
                f"tokens must lie in [0, {self.config.vocabulary}), got {int(tokens.min())} to {int(tokens.max())}; "
                "MASK is not a token that can be decoded"
            )
        tokens = tokens.long()
        return self.decode_codes(self.codebook.embed(tokens), self.codebook.is_empty(tokens))

    def decode_codes(self, codes: Tensor, empty: Tensor | None = None) -> Scene:
        """(B, H, W, D) quantised features -> scenes; empty: (B, H, W) bool, columns that are free space."""
        features = self.decoder(codes)
        logits = None if self.coarse_branch is None else without_columns(self.coarse_branch(features), empty)
        return Scene(features=features, coarse_logits=logits, empty=empty)

    @torch.no_grad()
    def render(
        self,
        scene: Scene,
        rays: RayBatch | Sequence[Rays],
        *,
        seed: int | None = 0,
        skipping: bool | None = None,
        mask: Tensor | None = None,
    ) -> Rendering:
        """What rays see, each in its scene's frame (one `Rays` per scene).

        seed: of the logistic noise on the coarse branch; None: without noise. skipping: False samples everywhere; None
        samples the cells of `mask_of`. mask: (B, X, Y, Z) bool on `mask_grid`, to sample those cells instead.
        """
        if self.feature_grid is None:
            raise UsageError("a tokenizer of mode 'voxel_centres' renders no rays; use `voxel_centres(scene)`")
        if not isinstance(rays, RayBatch):
            if len(rays) != len(scene):
                raise UsageError(f"one Rays per scene is needed: {len(rays)} for {len(scene)} scenes")
            rays = RayBatch.of(rays, self.device)
        config = self.config.rendering
        if skipping is None and mask is None:
            mask = self.mask_of(scene, None if seed is None else torch.Generator().manual_seed(seed))
        elif skipping and mask is None:
            mask = self.skipping_mask(scene, seed)
        elif skipping is False:
            mask = None
        sampling = Sampling(
            grid=self.mask_grid, mask=mask, step_m=config.step_m, max_samples=config.inference_max_samples
        )
        seen, samples = render_rays(self.feature_grid, scene.features, rays, sampling, config.depth)
        depth = seen.depth_m
        entry, leave = rays.span(self.mask_grid)
        missed = ~(leave > entry)
        exit_m = leave.masked_fill(missed, 0.0)
        inside = (seen.opacity > 0) & (depth <= exit_m)
        # The un-normalised sum comes short of a surface that is half transparent: it answers for opaque rays alone.
        enough = config.min_opacity if config.depth == "sum" else min(SOME_OPACITY, config.min_opacity)
        return Rendering(
            rays=rays, depth_m=depth, opacity=seen.opacity, exit_m=exit_m, missed=missed, samples=samples,
            returned=inside & (seen.opacity >= config.min_opacity), answered=inside & (seen.opacity >= enough),
        )  # fmt: skip

    def skipping_mask(self, scene: Scene, seed: int | None = 0) -> Tensor:
        """(B, X, Y, Z) bool on `mask_grid`: the cells where the coarse branch expects points."""
        if scene.coarse_logits is None:
            raise UsageError("a tokenizer of mode 'no_skipping' has no coarse branch to skip by")
        mask = self.mask_of(scene, None if seed is None else torch.Generator().manual_seed(seed))
        assert mask is not None
        return mask

    def mask_of(
        self, scene: Scene, generator: torch.Generator | None, held: Sequence[Voxels] | None = None
    ) -> Tensor | None:
        """(B, X, Y, Z) bool on `mask_grid`: the cells in which rays are sampled; None: in all of them.

        The same function for training and inference. held: in training, what is known to hold points; the option
        `training_mask: true` then samples there alone, as a literal reading of the paper has it.
        """
        config = self.config
        free = None if scene.empty is None else repeated(scene.empty, self.mask_grid.shape[0] // config.tokens[0])
        if scene.coarse_logits is None:
            levels = self.mask_grid.shape[2]
            return None if free is None else (~free)[..., None].expand(-1, -1, -1, levels)
        if held is None:
            return ray_mask(scene.coarse_logits, config.skipping, generator)
        true = torch.stack([true_mask(voxels, config.skipping.pool) for voxels in held]).any(dim=0)
        if free is not None:
            true &= ~free[..., None]
        if config.rendering.training_mask == "true":
            return true
        return ray_mask(scene.coarse_logits.detach(), config.skipping, generator, true)
