"""Pictures of point clouds: bird's-eye views, labelled panels, GIF and MP4, one self-contained HTML page.

Everything here sees points (and arrays of pixels) only. Images are (H, W, 3) uint8.
"""

from copilot4d.pictures.bev import bev_image
from copilot4d.pictures.files import encode_png, write_png
from copilot4d.pictures.page import Page
from copilot4d.pictures.panels import Cell, Legend, blank, panel
from copilot4d.pictures.storyboard import Frame, Look, Story, forecast_film, forecast_panel, forecast_strip
from copilot4d.pictures.video import encode_gif, write_gif, write_mp4
from copilot4d.pictures.viewer import Cloud, Horizon, Plan, Viewer, compared

__all__ = [
    "Cell", "Cloud", "Frame", "Horizon", "Legend", "Look", "Page", "Plan", "Story", "Viewer", "bev_image", "blank",
    "compared", "encode_gif", "encode_png", "forecast_film", "forecast_panel", "forecast_strip", "panel", "write_gif",
    "write_mp4", "write_png",
]  # fmt: skip
