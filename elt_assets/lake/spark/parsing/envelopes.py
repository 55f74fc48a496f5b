"""The envelope of records: the properties of a line besides the record's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.spark.parsing.job import AIRBYTE, ROWS, Job, Part
from elt_assets.lake.spark.parsing.values import checked

_TEXT = pa.string()
_CHANGE = pa.struct([pa.field(name, _TEXT) for name in ("field", "change", "reason")])
_META = pa.struct([pa.field("changes", pa.list_(_CHANGE))])
_UTC = pa.timestamp("us", "UTC")
_MAX_TIME = 10**14
_MAX_SEQUENCE = 1 << 48


@dataclass
class Head:
    """The properties of a block's lines.

    Attributes:
        data: the arrays of the fields that pyarrow has parsed, by the source's name.
        sequence: the places of the records in their stream.
        changes: the changes that the source has reported; None if there are none.
        changed: the positions of the lines with such changes.
    """

    rows: int
    data: Mapping[str, Any]
    sequence: np.ndarray
    extracted_at: Any
    changes: Any
    changed: list[int]


class Envelope:
    """The envelope of the lines of one part; the form ROWS."""

    def __init__(self, job: Job, part: Part):
        self._names, self._part = job.names, part

    def schema(self, fields: list[pa.Field]) -> pa.Schema:
        """Return the schema for pyarrow's JSON reader, with these fields of the data."""
        own = [
            pa.field(self._names.extracted_at, pa.int64()),
            pa.field(self._names.sequence, pa.int64()),
            pa.field(self._names.meta, _META),
        ]
        return pa.schema([*fields, *own])

    def head(self, table: pa.Table, _: np.ndarray, bad: set[int]) -> Head:
        """Return the properties of a parsed block's lines; add to `bad` the lines with other envelopes."""
        own = {name: table.column(name).chunk(0) for name in table.column_names}
        at, sequence = own[self._names.extracted_at], own[self._names.sequence]
        _refuse(~_within(at, _MAX_TIME), bad)
        _refuse(~_within(sequence, _MAX_SEQUENCE), bad)
        places = pc.fill_null(sequence, 0).to_numpy(zero_copy_only=False)
        return _head(table.num_rows, own, places, _in_range(at, 0), own[self._names.meta])


class AirbyteEnvelope(Envelope):
    """A RECORD message of the Airbyte Protocol."""

    def schema(self, fields: list[pa.Field]) -> pa.Schema:
        record = [
            pa.field("stream", _TEXT),
            pa.field("namespace", _TEXT),
            pa.field("data", pa.struct(fields)),
            pa.field("emitted_at", pa.int64()),
            pa.field("meta", _META),
        ]
        return pa.schema([pa.field("type", _TEXT), pa.field("record", pa.struct(record))])

    def head(self, table: pa.Table, numbers: np.ndarray, bad: set[int]) -> Head:
        part, record = self._part, table.column("record").chunk(0)
        data = record.field("data")
        namespace = record.field("namespace")
        _refuse(~_equal(table.column("type").chunk(0), "RECORD"), bad)
        _refuse(~_equal(record.field("stream"), part.stream), bad)
        if part.namespace is None:
            _refuse(_mask(namespace.is_valid()), bad)
        else:
            _refuse(~_equal(namespace, part.namespace), bad)
        _refuse(_mask(data.is_null()), bad)
        _refuse(_mask(record.is_null()), bad)
        at = _in_range(record.field("emitted_at"), part.received_at)
        own = _children(data)
        return _head(len(record), own, part.first + numbers - part.line, at, record.field("meta"))


class SingerEnvelope(Envelope):
    """A RECORD message of Singer. Lines with different versions are not clean: a new version begins a new
    generation."""

    def schema(self, fields: list[pa.Field]) -> pa.Schema:
        return pa.schema(
            [
                pa.field("type", _TEXT),
                pa.field("stream", _TEXT),
                pa.field("record", pa.struct(fields)),
                pa.field("time_extracted", _TEXT),
                pa.field("version", pa.int64()),
            ]
        )

    def head(self, table: pa.Table, numbers: np.ndarray, bad: set[int]) -> Head:
        part = self._part
        own = {name: table.column(name).chunk(0) for name in table.column_names}
        _refuse(~_equal(own["type"], "RECORD"), bad)
        _refuse(~_equal(own["stream"], part.stream), bad)
        _refuse(_mask(own["record"].is_null()), bad)
        if len(pc.unique(own["version"])) > 1:
            bad.update(range(table.num_rows))
        at = self._times(own["time_extracted"], bad)
        sequence = part.first + numbers - part.line
        return _head(table.num_rows, _children(own["record"]), sequence, at, None)

    def _times(self, texts: Any, bad: set[int]) -> Any:
        """Return times in epoch milliseconds, rounded as for a line that is decoded."""
        times = checked(texts, "TIMESTAMP", _UTC, bad.update)
        micros = pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        at = pa.array(np.rint(micros / 1e6 * 1000).astype(np.int64), mask=_mask(times.is_null()))
        return _in_range(at, self._part.received_at)


def envelope_of(job: Job, part: Part) -> Envelope:
    """Return the envelope of a part's lines."""
    if part.form == ROWS:
        return Envelope(job, part)
    return (AirbyteEnvelope if part.form == AIRBYTE else SingerEnvelope)(job, part)


def _head(rows: int, data: Mapping[str, Any], sequence: np.ndarray, at: Any, meta: Any) -> Head:
    times = at.cast(pa.timestamp("ms", "UTC")).cast(_UTC)
    if meta is None or meta.null_count == rows:
        return Head(rows, data, sequence, times, None, [])
    changes = pc.struct_field(meta, "changes")
    counts = pc.fill_null(pc.list_value_length(changes), 0)
    changed = np.flatnonzero(counts.to_numpy(zero_copy_only=False))
    return Head(rows, data, sequence, times, changes if len(changed) else None, changed.tolist())


def _children(data: Any) -> dict[str, Any]:
    return {data.type.field(n).name: data.field(n) for n in range(data.type.num_fields)}


def _in_range(at: Any, default: int) -> Any:
    """Return times in epoch milliseconds; the default for one that is absent or in another unit."""
    fits = _within(at, _MAX_TIME)
    if fits.all():
        return at
    return pc.if_else(pa.array(fits), at, pa.scalar(default, pa.int64()))


def _within(values: Any, limit: int) -> np.ndarray:
    """Return whether each number is at least 0 and below a limit."""
    known = values.null_count == 0
    numbers = (values if known else pc.fill_null(values, -1)).to_numpy(zero_copy_only=False)
    fits: np.ndarray = (numbers >= 0) & (numbers < limit)
    return fits


def _equal(values: Any, text: str) -> np.ndarray:
    return _mask(pc.fill_null(pc.equal(values, text), False))


def _mask(values: Any) -> np.ndarray:
    found: np.ndarray = values.to_numpy(zero_copy_only=False)
    return found


def _refuse(is_bad: np.ndarray, bad: set[int]) -> None:
    if is_bad.any():
        bad.update(np.flatnonzero(is_bad).tolist())
