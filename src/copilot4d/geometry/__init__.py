"""Rigid motions, grids, rays and the types that carry lidar data. No networks, no disk."""

from copilot4d.geometry import clock, se3
from copilot4d.geometry.rays import BeamPattern, Rays, RaySegment, inside_box, intersect_box, rays_through
from copilot4d.geometry.sweep import Clip, Drive, Sweep, gathered_sweep, sweep_on
from copilot4d.geometry.voxel_grid import VoxelGrid

__all__ = [
    "BeamPattern", "Clip", "Drive", "RaySegment", "Rays", "Sweep", "VoxelGrid", "clock", "gathered_sweep",
    "inside_box", "intersect_box", "rays_through", "se3", "sweep_on",
]  # fmt: skip
