"""Networks that predict range images: ST3DCNN, SPFNet and S2Net, and the projection that they share."""

from copilot4d.baselines.range_view.config import RangePrediction, RangeViewConfig, RangeViewNetwork
from copilot4d.baselines.range_view.forecaster import RangeViewForecaster, past_images, sweep_images
from copilot4d.baselines.range_view.geometry import RangeGeometry
from copilot4d.baselines.range_view.presets import RANGE_VIEW, range_view_preset
from copilot4d.baselines.range_view.s2net import S2net, S2netConfig, gaussian_kl
from copilot4d.baselines.range_view.spfnet import Spfnet, SpfnetConfig
from copilot4d.baselines.range_view.st3dcnn import St3dcnn, St3dcnnConfig

__all__ = [
    "RANGE_VIEW", "RangeGeometry", "RangePrediction", "RangeViewConfig", "RangeViewForecaster", "RangeViewNetwork",
    "S2net", "S2netConfig", "Spfnet", "SpfnetConfig", "St3dcnn", "St3dcnnConfig", "gaussian_kl", "past_images",
    "range_view_preset", "sweep_images",
]  # fmt: skip
