"""sensor_msgs/PointCloud2 -> columns: any order of fields, any datatype, any padding, organised or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# sensor_msgs/PointField.datatype
DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


class CloudError(ValueError):
    """A cloud that contradicts itself; the words say how. The caller knows the topic and the time."""


def cloud_columns(message: Any) -> Mapping[str, NDArray[Any]]:
    """Every field of count 1 as a column (N,), N = width x height, in the message's byte order.

    Rows of an organised cloud may be padded (row_step), points too (point_step).
    """
    width, height, step = int(message.width), int(message.height), int(message.point_step)
    order = ">" if message.is_bigendian else "<"
    names, formats, offsets = [], [], []
    for field in message.fields:
        kind = DATATYPES.get(int(field.datatype))
        if kind is None:
            raise CloudError(f"field {field.name} has the datatype {field.datatype}, and 1 to 8 exist")
        size = np.dtype(kind).itemsize
        if int(field.offset) + size * max(1, int(field.count)) > step:
            raise CloudError(f"field {field.name} ends beyond the {step} bytes of a point")
        if int(field.count) in (0, 1) and field.name not in names:  # some writers leave the count at 0
            names.append(field.name)
            formats.append(order + kind)
            offsets.append(int(field.offset))
    if not names:
        raise CloudError("it has no fields")
    row_step = int(message.row_step) or width * step
    data = np.asarray(message.data, dtype=np.uint8)
    if row_step < width * step or data.size < row_step * (height - 1) + width * step:
        raise CloudError(f"{data.size} bytes of data, where {height} rows of {width} points of {step} bytes were said")
    layout = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": step})
    if row_step == width * step:
        points = np.frombuffer(data, layout, width * height)
    else:
        rows = [np.frombuffer(data, layout, width, row * row_step) for row in range(height)]
        points = np.concatenate(rows) if rows else np.empty(0, layout)
    return {name: points[name] for name in names}
