"""What agents see: the leader on their own way, room behind a junction, and an ego that is where it should not be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.agents import Population
from copilot4d.simulator.lanes import LaneTable

FAR_M = 1e6
SIBLING_M = 12.0  # whoever turns off another way is still followed until its rear has gone this far
LOOK_AHEAD_M = 45


@dataclass(frozen=True, kw_only=True)
class Leaders:
    """Whoever is next ahead of each agent; a gap of FAR_M means that there is none."""

    gap_m: FloatArray
    speed_m_s: FloatArray
    same_lane: NDArray[np.bool_]  # whether somebody is ahead on the agent's own lane


def place(
    lanes: LaneTable, people: Population, lane: NDArray[np.int64], previous: NDArray[np.int64],
    following: NDArray[np.int64], s_m: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """(A, 2) middles and (A,) headings: each body is a chord whose two guide points lie on its way."""
    front = along(lanes, lane, previous, following, s_m + people.wheelbase_m / 2)
    rear = along(lanes, lane, previous, following, s_m - people.wheelbase_m / 2)
    chord = front - rear
    return 0.5 * (front + rear), np.arctan2(chord[:, 1], chord[:, 0])


def along(
    lanes: LaneTable,
    lane: NDArray[np.int64],
    previous: NDArray[np.int64],
    following: NDArray[np.int64],
    s_m: FloatArray,
) -> FloatArray:
    """Points on an agent's way; a position before its lane lies on the previous one, one beyond it on the next."""
    here = np.maximum(lane, 0)
    beyond = (s_m > lanes.length_m[here]) & (following >= 0)
    before = (s_m < 0) & (previous >= 0)
    on = np.where(beyond, following, np.where(before, previous, here))
    s = np.where(beyond, s_m - lanes.length_m[here], np.where(before, s_m + lanes.length_m[on], s_m))
    return lanes.locate(on, s)


def leaders(
    lanes: LaneTable, length_m: FloatArray, lane: NDArray[np.int64], following: NDArray[np.int64], s_m: FloatArray,
    speed: FloatArray,
) -> Leaders:  # fmt: skip
    """Look along the own lane, the next one and the one after it, and at those who have just turned off elsewhere."""
    n, count = len(lane), len(lanes)
    order = np.lexsort((s_m, lane))
    sorted_lane = lane[order]
    last = np.full(count + 1, -1, dtype=np.int64)  # the hindmost agent of each lane; the spare entry is "no lane"
    first_rows = np.flatnonzero(np.r_[True, sorted_lane[1:] != sorted_lane[:-1]])
    last[sorted_lane[first_rows]] = order[first_rows]
    last[count] = -1  # where an agent off the lanes (lane -1) has just been written
    ahead = np.full(n, -1, dtype=np.int64)
    same = sorted_lane[1:] == sorted_lane[:-1]
    ahead[order[:-1][same]] = order[1:][same]
    ahead[lane < 0] = -1
    here = np.maximum(lane, 0)
    gap, leader_speed = np.full(n, FAR_M), np.zeros(n)
    base = np.zeros(n)
    nxt = np.where(lane >= 0, following, count)
    after = np.array([lanes.successors[f][0] if 0 <= f < count else count for f in nxt.tolist()])
    base_next = lanes.length_m[here] - s_m
    base_after = base_next + np.where(nxt < count, lanes.length_m[np.minimum(nxt, count - 1)], 0.0)
    for who, offset in ((ahead, base - s_m), (last[nxt], base_next), (last[after], base_after)):
        distance = offset + s_m[who] - (length_m + length_m[who]) / 2
        nearer = (who >= 0) & (who != np.arange(n)) & (distance < gap)
        gap, leader_speed = np.where(nearer, distance, gap), np.where(nearer, speed[who], leader_speed)
    for a in np.flatnonzero((ahead < 0) & (lane >= 0) & (base_next < 40.0)).tolist():
        for sibling in lanes.successors[int(lane[a])]:
            b = int(last[sibling])
            if b >= 0 and sibling != following[a] and s_m[b] - length_m[b] / 2 < min(SIBLING_M, 4 * length_m[b]):
                distance = base_next[a] + s_m[b] - (length_m[a] + length_m[b]) / 2
                if distance < gap[a]:
                    gap[a], leader_speed[a] = distance, speed[b]
    # Two that have turned off different ways beside each other: the hinder one still follows until they have parted.
    for a in np.flatnonzero((lane >= 0) & (lanes.origin[here] >= 0) & (s_m < SIBLING_M)).tolist():
        others = (lane >= 0) & (lanes.origin[here] == lanes.origin[lane[a]]) & (lane != lane[a]) & (s_m > s_m[a])
        for b in np.flatnonzero(others & (s_m - length_m / 2 < np.minimum(SIBLING_M, 4 * length_m))).tolist():
            distance = s_m[b] - s_m[a] - (length_m[a] + length_m[b]) / 2
            if distance < gap[a]:
                gap[a], leader_speed[a] = distance, speed[b]
    return Leaders(gap_m=gap, speed_m_s=leader_speed, same_lane=ahead >= 0)


def room_at_start(lanes: LaneTable, length_m: FloatArray, lane: NDArray[np.int64], s_m: FloatArray) -> FloatArray:
    """(L,) the free length behind the rear of each lane's hindmost agent."""
    room = np.full(len(lanes), FAR_M)
    on = lane >= 0
    np.minimum.at(room, lane[on], (s_m - length_m / 2)[on])
    return room


def ego_in_the_way(
    lanes: LaneTable, people: Population, lane: NDArray[np.int64], following: NDArray[np.int64], s_m: FloatArray,
    pose: FloatArray, speed: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """(A,) gap to the ego's body and its speed along the agent's way, where the ego sticks out of its lane or drives
    a path of its own. An ego on its lane is seen as any leader is.
    """
    n = len(people)
    gap, along_speed = np.full(n, FAR_M), np.zeros(n)
    ego_xy = pose[0, :2]
    if lane[0] >= 0:
        middle = lanes.locate(lane[:1], s_m[:1])[0]
        if np.linalg.norm(middle - ego_xy) < 0.5:
            return gap, along_speed
    near = np.flatnonzero((np.linalg.norm(pose[:, :2] - ego_xy, axis=1) < LOOK_AHEAD_M + 15) & (lane >= 0))
    near = near[(near != 0) & ~people.walks[near]]
    if not len(near):
        return gap, along_speed
    steps = np.arange(0.0, LOOK_AHEAD_M, 0.75)
    s = s_m[near, None] + steps
    on = np.broadcast_to(lane[near, None], s.shape)
    nxt = np.broadcast_to(following[near, None], s.shape)
    after = np.array([lanes.successors[f][0] for f in following[near].tolist()])[:, None]
    s_next = s - lanes.length_m[on]
    s_after = s_next - lanes.length_m[nxt]
    which = np.where(s_next <= 0, on, np.where(s_after <= 0, nxt, after))
    points = lanes.locate(which, np.where(s_next <= 0, s, np.where(s_after <= 0, s_next, s_after)))
    cos, sin = np.cos(pose[0, 3]), np.sin(pose[0, 3])
    delta = points - ego_xy
    forward, left = cos * delta[..., 0] + sin * delta[..., 1], cos * delta[..., 1] - sin * delta[..., 0]
    margin = people.width_m[near, None] / 2 + 0.4
    hit = (np.abs(forward) < people.length_m[0] / 2 + margin) & (np.abs(left) < people.width_m[0] / 2 + margin)
    ahead = hit.any(axis=1)
    first = steps[np.argmax(hit, axis=1)]
    gap[near] = np.where(ahead, np.maximum(first - people.length_m[near] / 2, 0.0), FAR_M)
    along_speed[near] = np.maximum(0.0, speed[0] * np.cos(pose[0, 3] - pose[near, 3]))
    return gap, along_speed
