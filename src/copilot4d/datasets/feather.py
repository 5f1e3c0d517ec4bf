"""Sweeps in .feather files (Arrow IPC): columns x, y, z, and where there, intensity, origin_x, origin_y, origin_z."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
from numpy.typing import NDArray

from copilot4d.datasets.arrow_sizes import check_feather_size
from copilot4d.datasets.point_fields import (
    INTENSITY_NAMES,
    ORIGIN_NAMES,
    USED_NAMES,
    Array,
    PointFile,
    damaged,
    missing_columns,
)
from copilot4d.errors import DataError

_POSITIONS = ("x", "y", "z")


def read_feather(path: Path, time_names: Sequence[str] = ()) -> PointFile:
    """The points of one file; only the columns that are used are read and uncompressed.

    The arrays (N, 3) come in column order: the file has whole columns, and to weave them into rows costs more.
    """
    try:
        with pa.OSFile(str(path)) as source:
            table = _read_table(path, source, time_names)
            table.validate()
            batches = table.to_batches()
    except (pa.ArrowException, ValueError, KeyError, NotImplementedError, MemoryError) as error:
        raise damaged(path, "a whole .feather file (version 2)", error) from error
    intensity = [name for name in INTENSITY_NAMES if name in table.column_names][:1]
    origins = ORIGIN_NAMES if all(name in table.column_names for name in ORIGIN_NAMES) else ()
    time_name = next((name for name in time_names if name in table.column_names), None)
    times = None if time_name is None else table.column(time_name).combine_chunks().to_numpy(zero_copy_only=False)
    columns, finite = _columns(batches, (*_POSITIONS, *intensity, *origins), table.num_rows)
    return PointFile(
        points=columns[:3].T,
        intensity=columns[3] if intensity else None,
        origins=columns[-3:].T if origins else None,
        times=times,
        known_finite=finite,
    )


def write_feather(path: Path, fields: Mapping[str, Array]) -> None:
    """Version 2, one float32 column per field, lz4 where this pyarrow has it."""
    table = pa.table({name: pa.array(np.ascontiguousarray(values)) for name, values in fields.items()})
    compression = "lz4" if pa.Codec.is_available("lz4") else "uncompressed"
    pa.feather.write_feather(table, str(path), compression=compression, chunksize=max(1, table.num_rows))


def _read_table(path: Path, source: pa.NativeFile, time_names: Sequence[str]) -> pa.Table:
    """The used columns. One sweep is too small for threads: handing it to them costs more than they save."""
    reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
    schema = reader.schema
    if any(name not in schema.names for name in _POSITIONS):
        raise missing_columns(path, schema.names)
    used = {*USED_NAMES, *[name for name in time_names if name in schema.names][:1]}
    indices = [k for k, name in enumerate(schema.names) if name in used]
    twice = [name for name in sorted(used) if schema.names.count(name) > 1]
    if twice:
        raise DataError(
            path, "columns", expected="each name once", found=f"{schema.names.count(twice[0])} columns {twice[0]}",
            remedy="write one column of that name",
        )  # fmt: skip
    for k in indices:
        if not (pa.types.is_floating(schema.types[k]) or pa.types.is_integer(schema.types[k])):
            raise DataError(
                path, f"column {schema.names[k]}", expected="numbers", found=f"the type {schema.types[k]}",
                remedy="write plain numbers",
            )  # fmt: skip
    check_feather_size(path, source, reader.num_record_batches)
    if len(indices) == len(schema.names):
        return reader.read_all()
    source.seek(0)
    options = pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
    return pa.ipc.open_file(source, options=options).read_all()


def _columns(batches: list[pa.RecordBatch], names: tuple[str, ...], rows: int) -> tuple[NDArray[np.float32], bool]:
    """(len(names), rows) float32, and whether all are finite, seen while they are fresh in the processor's cache.

    Values that are null become NaN.
    """
    columns = np.empty((len(names), rows), dtype=np.float32)
    squares, start = 0.0, 0
    with np.errstate(over="ignore", invalid="ignore"):
        for batch in batches:
            for column, name in zip(columns, names, strict=True):
                part = column[start : start + batch.num_rows]
                part[:] = batch.column(name).to_numpy(zero_copy_only=False)
                squares += float(np.vdot(part, part))
            start += batch.num_rows
    return columns, math.isfinite(squares)
