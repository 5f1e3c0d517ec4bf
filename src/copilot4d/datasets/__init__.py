"""Driving logs on disk, whatever their format, as named, lazy `Drive`s."""

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.folder_writer import write_folder, write_kitti
from copilot4d.datasets.open import open_dataset

__all__ = ["Dataset", "open_dataset", "write_folder", "write_kitti"]
