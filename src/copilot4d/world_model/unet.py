"""The three-level spatio-temporal U-Net. Axes: B batch, T frames, H/W tokens of the map, C channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from copilot4d.errors import UsageError, check_range
from copilot4d.layers.init import scale_residuals
from copilot4d.layers.resample import LevelMerging, PatchMerging
from copilot4d.layers.swin import SwinBlock
from copilot4d.layers.temporal import AttentionMask, KeyValueCache, TemporalBlock
from copilot4d.layers.windows import WindowGrid, reorder


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """The network's sizes, one entry per feature level, finest first. A group is 2 spatial blocks, then 1 temporal."""

    dims: tuple[int, ...] = (256, 384, 512)
    heads: tuple[int, ...] = (8, 12, 16)
    windows: tuple[int, ...] = (8, 8, 16)
    down_groups: tuple[int, ...] = (2, 2, 1)
    up_groups: tuple[int, ...] = (2, 1)
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        levels = len(self.dims)
        for name, wanted in (
            ("heads", levels),
            ("windows", levels),
            ("down_groups", levels),
            ("up_groups", levels - 1),
        ):
            values = getattr(self, name)
            key = f"world_model.unet.{name}"
            if len(values) != wanted:
                raise UsageError(f"{key} needs {wanted} numbers for {levels} feature levels, got {values}")
            if any(v < 1 for v in values):
                raise UsageError(f"{key} must be positive, got {values}")
        check_range("the number of levels of world_model.unet.dims", levels, 1, 8)
        check_range("world_model.unet.dims", self.dims, 1, 8192)
        check_range("world_model.unet.windows", self.windows, 1, 64)
        check_range("world_model.unet.down_groups", self.down_groups, 1, 64)
        check_range("world_model.unet.up_groups", self.up_groups, 1, 64)
        check_range("world_model.unet.mlp_ratio", self.mlp_ratio, 0.01, 32)
        if any(dim % heads for dim, heads in zip(self.dims, self.heads, strict=True)):
            raise UsageError(
                f"world_model.unet.heads must divide its dims, got heads {self.heads} for dims {self.dims}"
            )

    def residuals(self, level: int) -> int:
        """L of a feature level: its Transformer blocks, down and up, times two."""
        groups = self.down_groups[level] + (self.up_groups[level] if level < len(self.up_groups) else 0)
        return 2 * 3 * groups

    def sizes(self, tokens: tuple[int, int]) -> list[tuple[int, int]]:
        """The feature map's sides at each level; UsageError where they cannot be halved."""
        factor = 2 ** (len(self.dims) - 1)
        if tokens[0] % factor or tokens[1] % factor:
            raise UsageError(
                f"world_model.tokens must be divisible by {factor} for {len(self.dims)} levels, got {tokens}"
            )
        return [(tokens[0] >> level, tokens[1] >> level) for level in range(len(self.dims))]


class SpatioTemporalUNet(nn.Module):
    """Down through the levels with Patch Merging, up with Level Merging, back at the resolution of the input."""

    def __init__(self, config: UNetConfig, tokens: tuple[int, int]) -> None:
        super().__init__()
        self.config = config
        sizes = config.sizes(tokens)

        def stage(level: int, groups: int) -> Stage:
            return Stage(
                dim=config.dims[level], heads=config.heads[level], groups=groups, size=sizes[level],
                window=config.windows[level], mlp_ratio=config.mlp_ratio,
            )  # fmt: skip

        levels = range(len(config.dims))
        self.down = nn.ModuleList(stage(level, config.down_groups[level]) for level in levels)
        self.up = nn.ModuleList(stage(level, config.up_groups[level]) for level in levels[:-1])
        self.shrink = nn.ModuleList(PatchMerging(config.dims[i], config.dims[i + 1]) for i in levels[:-1])
        self.merge = nn.ModuleList(LevelMerging(config.dims[i + 1], config.dims[i]) for i in levels[:-1])

    def forward(
        self,
        x: Tensor,
        conditions: Sequence[Tensor],
        *,
        mask: AttentionMask = AttentionMask.CAUSAL,
        cache: UNetCache | None = None,
        checkpointing: bool = False,
    ) -> Tensor:
        """(B, T, H, W, C) -> (B, T, H, W, C). conditions: per level (B, T, 1, 1, C), added where the level begins."""
        caches = iter(cache.blocks) if cache is not None else None
        skips: list[Tensor] = []
        for level, stage in enumerate(self.down):
            x = stage(x + conditions[level], mask=mask, caches=caches, checkpointing=checkpointing)
            if level < len(self.shrink):
                skips.append(x)
                x = self.shrink[level](x)
        for level in reversed(range(len(self.up))):
            x = self.merge[level](x, skips.pop())
            x = self.up[level](x, mask=mask, caches=caches, checkpointing=checkpointing)
        return x

    def new_cache(self, frames: int) -> UNetCache:
        """An empty cache for up to `frames` frames."""
        blocks = [module for module in self.modules() if isinstance(module, TemporalBlock)]
        return UNetCache([KeyValueCache(frames) for _ in blocks])

    def scale_residuals(self) -> None:
        """The paper's residual scaling: each layer before a residual connection times sqrt(1 / L) of its level."""
        for level, down in enumerate(self.down):
            layers = list(cast(Stage, down).residual_outputs())
            if level < len(self.up):
                layers += cast(Stage, self.up[level]).residual_outputs()
                layers.append(cast(LevelMerging, self.merge[level]).reduce)
            scale_residuals(layers, self.config.residuals(level))


class Stage(nn.Module):
    """Groups of blocks at one resolution."""

    def __init__(
        self, *, dim: int, heads: int, groups: int, size: tuple[int, int], window: int, mlp_ratio: float
    ) -> None:
        super().__init__()
        plain = WindowGrid.fitted(*size, window, shifted=False)
        shifted = WindowGrid.fitted(*size, window, shifted=True)
        self.groups = nn.ModuleList(Group(dim, heads, (plain, shifted), mlp_ratio) for _ in range(groups))

    def forward(
        self, x: Tensor, *, mask: AttentionMask, caches: Iterator[KeyValueCache] | None, checkpointing: bool
    ) -> Tensor:
        """(B, T, H, W, C) -> (B, T, H, W, C); tokens go back to row-major order only at the end."""
        shape = x.shape
        x = x.flatten(2, 3)  # (B, T, N, C)
        order: WindowGrid | None = None
        for module in self.groups:
            group = cast(Group, module)
            cache = next(caches) if caches is not None else None
            x = group(x, order, mask=mask, cache=cache, checkpointing=checkpointing and x.requires_grad)
            order = group.order
        return reorder(x.flatten(0, 1), order, None).view(shape)

    def residual_outputs(self) -> list[nn.Linear]:
        """The linear layers whose outputs are added to the main branch."""
        return [layer for group in self.groups for layer in cast(Group, group).residual_outputs()]


class Group(nn.Module):
    """Two spatial blocks, plain and shifted windows, then one temporal block."""

    def __init__(self, dim: int, heads: int, grids: tuple[WindowGrid, WindowGrid], mlp_ratio: float) -> None:
        super().__init__()
        self.spatial = nn.ModuleList(SwinBlock(dim, heads, grid, mlp_ratio) for grid in grids)
        self.temporal = TemporalBlock(dim, heads, mlp_ratio)
        self.order = grids[-1]  # in which it leaves its tokens; attention over time does not mind

    def forward(
        self,
        x: Tensor,
        order: WindowGrid | None,
        *,
        mask: AttentionMask,
        cache: KeyValueCache | None,
        checkpointing: bool,
    ) -> Tensor:
        """(B, T, N, C) tokens in `order` -> (B, T, N, C) tokens in `self.order`.

        checkpointing: the backward pass computes each block anew, one at a time.
        """
        run = partial(checkpoint, use_reentrant=False) if checkpointing else _call
        batch, frames = x.shape[:2]
        x = x.flatten(0, 1)
        for module in self.spatial:
            block = cast(SwinBlock, module)
            x = run(block, reorder(x, order, block.grid))
            order = block.grid
        result: Tensor = run(self.temporal, x.view(batch, frames, *x.shape[1:]), mask=mask, cache=cache)
        return result

    def residual_outputs(self) -> list[nn.Linear]:
        """The linear layers whose outputs are added to the main branch."""
        spatial = [layer for block in self.spatial for layer in cast(SwinBlock, block).residual_outputs()]
        return [*spatial, *self.temporal.residual_outputs()]


def _call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
    return module(*arguments, **named)


class UNetCache:
    """The past, as far as the network needs it: keys and values of every temporal block, in order of execution."""

    def __init__(self, blocks: list[KeyValueCache]) -> None:
        self.blocks = blocks
        self.first_position = 0  # in time, of the first frame
        self.newest_tokens: Tensor | None = None  # (B, n, H, W) of the newest frames that were kept

    @property
    def length(self) -> int:
        """How many frames are kept."""
        return self.blocks[0].length

    def keep(self, frames: int) -> None:
        """Keep the first `frames` frames of the last pass."""
        for block in self.blocks:
            block.keep(frames)

    def repeated(self, times: int) -> UNetCache:
        """Every row of the batch `times` times."""
        copy = UNetCache([block.repeated(times) for block in self.blocks])
        copy.first_position = self.first_position
        if self.newest_tokens is not None:
            copy.newest_tokens = self.newest_tokens.repeat_interleave(times, dim=0)
        return copy
