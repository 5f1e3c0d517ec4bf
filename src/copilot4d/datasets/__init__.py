"""Driving logs on disk, whatever their format, as named, lazy `Drive`s."""

from copilot4d.datasets.dataset import Dataset

__all__ = ["Dataset"]
