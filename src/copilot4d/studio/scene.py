"""The 3D scene of one browser window: clouds, the ego, its ways, and waypoints to drag.

A cloud is sent when it is first seen; after that the time slider only switches it on and off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import viser

from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.studio.clouds import FUTURES, Cloud, ColourBy, Label, colours, colours_key
from copilot4d.studio.moment import StudioMoment
from copilot4d.studio.plan import WAYPOINTS, PlannedWay
from copilot4d.studio.run import Run

EGO_SIZE_M = (4.6, 1.9, 1.5)
WAY_COLOUR = (255, 120, 200)
_ABOVE_ROAD_M = 0.15  # ways and handles float a little, so that the road's points do not hide them


@dataclass
class _Sent:
    """A cloud that the browser has. The sweep is held, so that its identity stays its own."""

    sweep: Sweep
    colours_key: tuple[object, ...]
    handle: viser.PointCloudHandle


class Scene:
    """Keeps the browser's nodes in step with what is to be seen. Not safe for several threads: the view has a lock."""

    def __init__(self, client: viser.ClientHandle, *, dragged: Callable[[bool], None]) -> None:
        self._scene = client.scene
        self._atomic = client.atomic
        self._dragged = dragged  # called while a waypoint moves (False) and when it is let go (True)
        self._sent: dict[str, _Sent] = {}
        self._labels: dict[str, tuple[Label, viser.LabelHandle]] = {}
        self._ego: viser.BoxHandle | None = None
        self._grid: viser.GridHandle | None = None
        self._ways: dict[str, tuple[object, viser.LineSegmentsHandle]] = {}
        self._waypoints: list[viser.TransformControlsHandle] = []
        self._moment: StudioMoment | None = None

    def show_clouds(
        self, moment: StudioMoment, wanted: Sequence[Cloud], by: ColourBy, point_size_m: float, *,
        truth_beside_m: float = 0.0, labels: Sequence[Label] = (),
    ) -> None:  # fmt: skip
        """Send what is new, switch what is known, remove what is gone. Truth stands so far to the left."""
        with self._atomic():
            self._show_labels(labels)
            names = {cloud.name for cloud in wanted}
            for name in [name for name in self._sent if name not in names]:
                self._sent.pop(name).handle.remove()
            for cloud in wanted:
                self._show(moment, cloud, by, point_size_m, truth_beside_m if cloud.is_truth else 0.0)

    def show_ego(self, moment: StudioMoment, world_from_lidar: FloatArray) -> None:
        """The ego's body at one of its poses, and the ground around the newest one."""
        seen = se3.relative_motion(moment.world_from_reference, world_from_lidar)
        wxyz = se3.quaternion_from_rotation(seen[:3, :3])
        middle = se3.transform_points(seen, np.array([[0.0, 0.0, moment.ground_m + EGO_SIZE_M[2] / 2]]))[0]
        if self._ego is None:
            self._ego = self._scene.add_box(
                "/ego", dimensions=EGO_SIZE_M, color=WAY_COLOUR, wireframe=True, cast_shadow=False
            )
        self._ego.wxyz, self._ego.position = wxyz, middle
        if self._moment is not moment:
            self._moment = moment
            self._grid = self._scene.add_grid(
                "/ground", width=160.0, height=160.0, cell_size=10.0, section_size=50.0, plane="xy",
                cell_color=(70, 74, 84), section_color=(95, 100, 112), position=(0.0, 0.0, moment.ground_m - 0.05),
            )  # fmt: skip

    def show_ways(self, moment: StudioMoment, way: PlannedWay, runs: Sequence[Run]) -> None:
        """The plan's way in pink, and those of the runs that are shown for comparison in their colours."""
        wanted: dict[str, tuple[object, FloatArray, tuple[int, int, int], float]] = {
            "/ways/plan": (way, way.line_m, WAY_COLOUR, 0.22)
        }
        if len(runs) > 1:
            for order, run in enumerate(runs):
                wanted[f"/ways/run_{order}"] = (run, run.way, FUTURES[order % len(FUTURES)], 0.12)
        for name in [name for name in self._ways if name not in wanted]:
            self._ways.pop(name)[1].remove()
        lift = np.array([0.0, 0.0, moment.ground_m + _ABOVE_ROAD_M])
        for name, (owner, line, colour, width) in wanted.items():
            if name in self._ways and self._ways[name][0] is owner:
                continue
            raised = (line + lift).astype(np.float32)
            segments = np.stack([raised[:-1], raised[1:]], axis=1)  # (M - 1, 2, 3)
            handle = self._scene.add_line_segments(name, points=segments, colors=colour, thickness=width)
            self._ways[name] = (owner, handle)

    def show_waypoints(self, moment: StudioMoment, way: PlannedWay, *, visible: bool, dragged: bool) -> None:
        """Put the handles where the plan leads. Those that were dragged stay: the hand may be further already."""
        if not self._waypoints:
            self._waypoints = [self._waypoint(k) for k in range(WAYPOINTS)]
        for handle, place in zip(self._waypoints, way.waypoints_m, strict=True):
            handle.visible = visible
            if not dragged:
                handle.position = (float(place[0]), float(place[1]), moment.ground_m + _ABOVE_ROAD_M)

    def waypoints_m(self) -> FloatArray:
        """(K, 2): where the handles are now."""
        return np.array([handle.position[:2] for handle in self._waypoints])

    def clear_clouds(self) -> None:
        """Remove all clouds, as when another moment is chosen."""
        with self._atomic():
            self._show_labels(())
            while self._sent:
                self._sent.popitem()[1].handle.remove()

    def node_count(self) -> int:
        """How many clouds the browser holds."""
        return len(self._sent)

    def _show_labels(self, wanted: Sequence[Label]) -> None:
        """A label is sent again only where its words or its place changed."""
        for name in [name for name in self._labels if name not in {label.name for label in wanted}]:
            self._labels.pop(name)[1].remove()
        for label in wanted:
            known = self._labels.get(label.name)
            if known is None or known[0] != label:
                if known is not None:
                    known[1].remove()
                handle = self._scene.add_label(f"/labels/{label.name}", label.text, position=label.place_m)
                self._labels[label.name] = (label, handle)

    def _show(self, moment: StudioMoment, cloud: Cloud, by: ColourBy, point_size_m: float, beside_m: float) -> None:
        sent = self._sent.get(cloud.name)
        if sent is not None and sent.sweep is not cloud.sweep:
            del self._sent[cloud.name]
            sent.handle.remove()
            sent = None
        if sent is None and not cloud.visible:
            return
        if sent is None:
            handle = self._scene.add_point_cloud(
                cloud.name, points=cloud.points(moment), colors=colours(cloud, moment, by), point_size=point_size_m,
                point_shape="circle", precision="float32", point_shading="flat", position=(0.0, beside_m, 0.0),
            )  # fmt: skip
            self._sent[cloud.name] = _Sent(cloud.sweep, colours_key(cloud, by), handle)
            return
        if cloud.visible and sent.colours_key != colours_key(cloud, by):
            sent.handle.colors = colours(cloud, moment, by)
            sent.colours_key = colours_key(cloud, by)
        if cloud.visible:
            sent.handle.point_size = point_size_m
            if sent.handle.position[1] != beside_m:
                sent.handle.position = (0.0, beside_m, 0.0)
        sent.handle.visible = cloud.visible

    def _waypoint(self, k: int) -> viser.TransformControlsHandle:
        handle = self._scene.add_transform_controls(
            f"/waypoints/{k}", scale=2.2, line_width=4.0, disable_rotations=True, active_axes=(True, True, False),
            depth_test=False,
        )  # fmt: skip

        def moved(event: viser.TransformControlsEvent) -> None:
            self._dragged(event.phase == "end")

        handle.on_update(moved)
        return handle
