"""S2Net: X. Weng, J. Nan, K.-H. Lee, R. McAllister, A. Gaidon, N. Rhinehart, K. Kitani, *S2Net: Stochastic Sequential
Pointcloud Forecasting*, ECCV 2022.

SPFNet with two things added: a recurrent core at every level of the encoder, whose memory the decoder joins on the way
up (the pyramid LSTM), and a latent at every future frame. What the latent says comes from the prior, which knows the
past alone; in training from the posterior, which was shown the frame, too. Other draws are other futures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from copilot4d.baselines.range_view.config import RangePrediction, RangeViewNetwork
from copilot4d.baselines.range_view.layers import CircularConv2d, ConvLstm, Decoder, Encoder, LstmState
from copilot4d.baselines.range_view.spfnet import SpfnetConfig, range_and_mask
from copilot4d.errors import check_range


@dataclass(frozen=True, kw_only=True)
class S2netConfig(SpfnetConfig):
    """The paper gives no widths that we could check: these are ours."""

    network: ClassVar[str] = "s2net"

    latent: int = 32  # channels of what is drawn, at each cell of the coarsest map

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("range_view.latent", self.latent, 1, 4096)


class Gaussian(NamedTuple):
    """Independent normal distributions."""

    mean: Tensor
    log_std: Tensor

    def draw(self, noise: Tensor | None) -> Tensor:
        """The mean, moved by noise from a standard normal distribution."""
        return self.mean if noise is None else self.mean + noise * self.log_std.exp()


def gaussian_kl(q: Gaussian, p: Gaussian) -> Tensor:
    """(B, ...) -> (B,) KL(q || p) in nats, summed over all that is not B: 0 where both are the same."""
    ratio = (2 * (q.log_std - p.log_std)).exp()
    apart = ((q.mean - p.mean) * (-p.log_std).exp()).square()
    return (0.5 * (ratio + apart - 1) - (q.log_std - p.log_std)).flatten(1).sum(dim=1)


class S2net(RangeViewNetwork):
    """The network of a configuration."""

    def __init__(self, config: S2netConfig) -> None:
        super().__init__()
        self.config: S2netConfig = config
        widths, latent = config.channels, config.latent
        self.encoder = Encoder(widths)
        self.cores = nn.ModuleList(ConvLstm(width, width) for width in widths[:-1])
        self.core = ConvLstm(widths[-1] + latent, widths[-1])  # the coarsest level's, which hears the latent
        self.prior = GaussianHead(widths[-1], latent)
        self.posterior = GaussianHead(2 * widths[-1], latent)
        self.decoder = Decoder(widths, extra=latent, skips=True)

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """(F, Z, h, w)."""
        config = self.config
        height, width = config.padded_rows // config.row_unit, config.geometry.columns // config.column_unit
        return (config.future_frames, config.latent, height, width)

    def forward(self, past: Tensor, *, future: Tensor | None = None, noise: Tensor | None = None) -> RangePrediction:
        """See `RangeViewNetwork`."""
        finer, state = self._remember(past)
        shown = None if future is None else range_and_mask(self, future)
        outputs, divergences = [], []
        for t in range(self.config.future_frames):
            prior = chosen = self.prior(state.hidden)
            if shown is not None:
                chosen = self.posterior(torch.cat([state.hidden, self.encoder(shown[:, t])[-1]], dim=1))
                divergences.append(gaussian_kl(chosen, prior))
            z = chosen.draw(None if noise is None else noise[:, t])
            outputs.append(self.decoder(torch.cat([state.hidden, z], dim=1), [s.hidden for s in finer]))
            state = self.core(torch.cat([state.hidden, z], dim=1), state)
            finer = [core(s.hidden, s) for core, s in zip(self.cores, finer, strict=True)]
        kl = torch.stack(divergences).mean(dim=0) if divergences else None
        return self.prediction(torch.stack(outputs, dim=2), kl)  # (B, 2, F, H, W)

    def _remember(self, past: Tensor) -> tuple[list[LstmState], LstmState]:
        """The states of all cores after the past: of the finer levels, and of the coarsest."""
        seen = range_and_mask(self, past)
        finer: list[LstmState] = []
        state: LstmState | None = None
        for t in range(seen.shape[1]):
            *maps, coarsest = self.encoder(seen[:, t])
            if state is None:
                state = self.core.start(coarsest)
                finer = [core.start(m) for core, m in zip(self.cores, maps, strict=True)]  # type: ignore[operator]
            silent = coarsest.new_zeros(len(coarsest), self.config.latent, *coarsest.shape[2:])
            state = self.core(torch.cat([coarsest, silent], dim=1), state)
            finer = [core(m, s) for core, m, s in zip(self.cores, maps, finer, strict=True)]
        assert state is not None
        return finer, state

    def blocks(self) -> Sequence[nn.Module]:
        """See `RangeViewNetwork`."""
        return [self.encoder, *self.cores, self.core, self.decoder]


class GaussianHead(nn.Module):
    """A map -> the means and spreads of a latent at each of its cells."""

    def __init__(self, inputs: int, latent: int) -> None:
        super().__init__()
        self.conv = CircularConv2d(inputs, 2 * latent)

    def forward(self, x: Tensor) -> Gaussian:
        """(B, C, h, w)."""
        mean, log_std = self.conv(x).chunk(2, dim=1)
        return Gaussian(mean, log_std.clamp(-6.0, 3.0))
