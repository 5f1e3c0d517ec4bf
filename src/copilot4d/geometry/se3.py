"""Rigid motions as 4x4 matrices, over any batch shape.

Names carry frames: `a_from_b` maps coordinates in b to coordinates in a, so that chains compose by eye:
`a_from_c = compose(a_from_b, b_from_c)`. Quaternions are (w, x, y, z). All functions keep the floating dtype of what
they are given (float32 stays float32), except where they say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]

RIGID_TOLERANCE = 1e-3  # text files carry six digits or so; a real pose is far nearer to rigid than this


def identity(shape: tuple[int, ...] = (), dtype: Any = np.float64) -> FloatArray:
    """(*shape, 4, 4) identity motions."""
    return np.broadcast_to(np.eye(4, dtype=dtype), (*shape, 4, 4)).copy()


def from_rotation_translation(rotation: FloatArray, translation: FloatArray) -> FloatArray:
    """(..., 3, 3) and (..., 3) -> (..., 4, 4)."""
    rotation, translation = np.asarray(rotation), np.asarray(translation)
    shape = np.broadcast_shapes(rotation.shape[:-2], translation.shape[:-1])
    motion = identity(shape, dtype=np.result_type(rotation, translation, np.float32))
    motion[..., :3, :3] = rotation
    motion[..., :3, 3] = translation
    return motion


def from_quaternion(quaternion_wxyz: FloatArray, translation: FloatArray) -> FloatArray:
    """(..., 4) wxyz and (..., 3) -> (..., 4, 4)."""
    return from_rotation_translation(rotation_from_quaternion(quaternion_wxyz), translation)


def from_yaw(yaw: float | FloatArray, translation: FloatArray | tuple[float, float, float] = (0, 0, 0)) -> FloatArray:
    """A turn about z by `yaw` radians (counter-clockwise seen from above), then a shift: (...,) -> (..., 4, 4)."""
    yaw = np.asarray(yaw, dtype=np.float64)
    cos, sin = np.cos(yaw), np.sin(yaw)
    zero, one = np.zeros_like(yaw), np.ones_like(yaw)
    rotation = np.stack([cos, -sin, zero, sin, cos, zero, zero, zero, one], axis=-1).reshape(*yaw.shape, 3, 3)
    return from_rotation_translation(rotation, np.asarray(translation, dtype=np.float64))


def compose(*motions: FloatArray) -> FloatArray:
    """a_from_b, b_from_c, c_from_d, ... -> a_from_last. Batch shapes broadcast."""
    result = motions[0]
    for motion in motions[1:]:
        result = result @ motion
    return result


def invert(a_from_b: FloatArray) -> FloatArray:
    """a_from_b -> b_from_a, using that the rotation is orthogonal."""
    rotation_t = np.swapaxes(a_from_b[..., :3, :3], -1, -2)
    inverse = identity(a_from_b.shape[:-2], dtype=a_from_b.dtype)
    inverse[..., :3, :3] = rotation_t
    inverse[..., :3, 3] = -(rotation_t @ a_from_b[..., :3, 3:4])[..., 0]
    return inverse


def relative_motion(world_from_a: FloatArray, world_from_b: FloatArray) -> FloatArray:
    """a_from_b: where b is, seen from a."""
    return compose(invert(world_from_a), world_from_b)


def transform_points(a_from_b: FloatArray, points_in_b: FloatArray) -> FloatArray:
    """(..., 4, 4), (..., N, 3) -> (..., N, 3) in a, in the points' dtype (summed in the wider one)."""
    moved = _rotated(a_from_b, points_in_b)
    moved += a_from_b[..., None, :3, 3]
    return moved.astype(points_in_b.dtype, copy=False)


def rotate_vectors(a_from_b: FloatArray, vectors_in_b: FloatArray) -> FloatArray:
    """(..., 4, 4), (..., N, 3) -> (..., N, 3): directions turn, they do not shift."""
    return _rotated(a_from_b, vectors_in_b).astype(vectors_in_b.dtype, copy=False)


def _rotated(a_from_b: FloatArray, vectors_in_b: FloatArray) -> FloatArray:
    """(..., N, 3) turned, in the wider dtype. Written out: BLAS starts threads for a product as thin as N x 3 by 3 x 3,
    which costs several times the arithmetic.
    """
    shape = np.broadcast_shapes(a_from_b.shape[:-2], vectors_in_b.shape[:-2]) + vectors_in_b.shape[-2:]
    turned = np.empty(shape, dtype=np.result_type(a_from_b, vectors_in_b))
    x, y, z = np.moveaxis(vectors_in_b, -1, 0)
    for row in range(3):
        rx, ry, rz = np.moveaxis(a_from_b[..., row, :3, None], -2, 0)
        turned[..., row] = rx * x + ry * y + rz * z
    return turned


def rotation_from_quaternion(quaternion_wxyz: FloatArray) -> FloatArray:
    """(..., 4) wxyz, normalised here -> (..., 3, 3)."""
    q = np.asarray(quaternion_wxyz)
    if not np.issubdtype(q.dtype, np.floating):
        q = q.astype(np.float64)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return np.stack(rows, axis=-1).reshape(*q.shape[:-1], 3, 3)


def quaternion_from_rotation(rotation: FloatArray) -> FloatArray:
    """(..., 3, 3) -> (..., 4) wxyz with w >= 0. Each matrix uses the best conditioned of four formulas."""
    r = np.asarray(rotation)
    m = {(i, j): r[..., i, j] for i in range(3) for j in range(3)}
    # Row k holds 4 q_k (w, x, y, z): each is exact where q_k is far from zero.
    candidates = np.stack(
        [
            np.stack([1 + m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]], -1),
            np.stack([m[2, 1] - m[1, 2], 1 + m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]], -1),
            np.stack([m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], 1 - m[0, 0] + m[1, 1] - m[2, 2], m[1, 2] + m[2, 1]], -1),
            np.stack([m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], 1 - m[0, 0] - m[1, 1] + m[2, 2]], -1),
        ],
        axis=-2,
    )  # (..., 4 formulas, 4)
    best = np.argmax(np.diagonal(candidates, axis1=-2, axis2=-1), axis=-1)
    q = np.take_along_axis(candidates, best[..., None, None], axis=-2)[..., 0, :]
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[..., :1] < 0, -q, q)  # type: ignore[no-any-return]


def slerp(q0_wxyz: FloatArray, q1_wxyz: FloatArray, s: float | FloatArray) -> FloatArray:
    """The shorter arc between unit quaternions: s = 0 gives q0, s = 1 gives q1 up to sign. s: (...,)."""
    s = np.asarray(s, dtype=np.result_type(q0_wxyz, q1_wxyz))[..., None]
    dot = np.sum(q0_wxyz * q1_wxyz, axis=-1, keepdims=True)
    q1 = np.where(dot < 0, -q1_wxyz, q1_wxyz)
    angle = np.arccos(np.clip(np.abs(dot), 0.0, 1.0))
    sine = np.sin(angle)
    near = sine < 1e-6  # almost equal: the straight line is exact to rounding
    safe = np.where(near, 1.0, sine)
    blended = np.where(
        near, (1 - s) * q0_wxyz + s * q1, (np.sin((1 - s) * angle) * q0_wxyz + np.sin(s * angle) * q1) / safe
    )
    return blended / np.linalg.norm(blended, axis=-1, keepdims=True)  # type: ignore[no-any-return]


def interpolate(world_from_a: FloatArray, world_from_b: FloatArray, s: float | FloatArray) -> FloatArray:
    """The motion at fraction s of the way from a to b: rotation by slerp, translation on the straight line.

    s has any shape that broadcasts with the batch shape of the poses; s outside [0, 1] extrapolates.
    """
    s = np.asarray(s, dtype=np.result_type(world_from_a, world_from_b))
    rotation = slerp(
        quaternion_from_rotation(world_from_a[..., :3, :3]), quaternion_from_rotation(world_from_b[..., :3, :3]), s
    )
    start, end = world_from_a[..., :3, 3], world_from_b[..., :3, 3]
    return from_quaternion(rotation, start + s[..., None] * (end - start))


def interpolate_trajectory(times: FloatArray, world_from_body: FloatArray, query_times: FloatArray) -> FloatArray:
    """Poses at `query_times` on a trajectory sampled at increasing `times` (N,): (N, 4, 4) -> (M, 4, 4).

    Queries outside the trajectory extrapolate the first or last segment.
    """
    times, query = np.asarray(times, dtype=np.float64), np.asarray(query_times, dtype=np.float64)
    if len(times) == 1:
        return np.broadcast_to(world_from_body[0], (*query.shape, 4, 4)).copy()
    after = np.clip(np.searchsorted(times, query, side="right"), 1, len(times) - 1)
    fraction = (query - times[after - 1]) / (times[after] - times[after - 1])
    return interpolate(world_from_body[after - 1], world_from_body[after], fraction)


def rotation_angle(a_from_b: FloatArray) -> FloatArray:
    """(..., 4, 4) -> (...,) the angle of the rotation in radians, in [0, pi]; accurate near 0 and near pi."""
    r = a_from_b[..., :3, :3]
    axis = np.stack([r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]], axis=-1)
    trace = np.trace(r, axis1=-2, axis2=-1)
    return np.arctan2(np.linalg.norm(axis, axis=-1), trace - 1)  # type: ignore[no-any-return]


def yaw_of(a_from_b: FloatArray) -> FloatArray:
    """(..., 4, 4) -> (...,) heading of b's x axis in a's xy plane, radians."""
    return np.arctan2(a_from_b[..., 1, 0], a_from_b[..., 0, 0])


def rigidity_error(motion: FloatArray) -> FloatArray:
    """(..., 4, 4) -> (...,) how far from a rigid motion: max |R R^T - 1|, a wrong last row, or a mirror (>= 1)."""
    rotation = motion[..., :3, :3]
    orthogonality = np.abs(rotation @ np.swapaxes(rotation, -1, -2) - np.eye(3)).max(axis=(-2, -1))
    last_row = np.abs(motion[..., 3, :] - np.array([0, 0, 0, 1])).max(axis=-1)
    mirror = np.where(np.linalg.det(rotation) < 0, 1.0, 0.0)
    error = np.maximum(np.maximum(orthogonality, last_row), mirror)
    return np.where(np.isfinite(motion).all(axis=(-2, -1)), error, np.inf)


def nearest_rigid(motion: FloatArray) -> FloatArray:
    """The rigid motion nearest to one that is rigid up to rounding (poses read from text): polar decomposition."""
    u, _, vt = np.linalg.svd(motion[..., :3, :3])
    return from_rotation_translation(u @ vt, motion[..., :3, 3])
