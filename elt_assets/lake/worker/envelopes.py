"""The envelope of records: the properties of a line besides its data, and the metadata columns of its row.

Used by `blocks`, `records` and `slice_batches`.

Spec: AirbyteMessage of type RECORD (0.19); Singer's RECORD message; the lines of `sync.segments` (form ROWS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from elt_assets.lake.worker.columns import ColumnBuilder
from elt_assets.lake.worker.job import AIRBYTE, ROWS, SINGER, LineRange, ParseJob
from elt_assets.lake.worker.json_texts import Marks
from elt_assets.lake.worker.kinds import Field
from elt_assets.lake.worker.values import WHOLE_RECORD

_MAX_TIME = 10**14
"""Limit of a time in epoch milliseconds: the year 5138. A larger one has another unit."""
_NO_TIME = -1_000
_TIME = Field("", "", "TIMESTAMP", pa.timestamp("us", "UTC"))


@dataclass
class Heads:
    """The properties of some lines besides their data, each in the order of the lines."""

    sequence: np.ndarray  # the positions of the records in their stream
    times: np.ndarray  # the times of extraction in epoch milliseconds
    # What the source itself says of the records, as JSON; None where it says nothing.
    metas: Sequence[Any]
    # The ids of the rows, if the lines are those of a replay; empty where they are not known.
    row_ids: Sequence[str] | None = None


class Envelope:
    """The envelope of the form ROWS.

    Attributes:
        data: returns the data of a decoded line.
    """

    _path = "data"

    def __init__(self, part: LineRange):
        self._stream: Any = Literal[part.stream]
        self._namespace: Any = None if part.namespace is None else Literal[part.namespace]
        self.data = attrgetter(self._path)

    def line_type(self, data: Any) -> Any:
        """Return the type that decodes a line with this type of data."""
        fields = [
            ("data", data),
            ("emitted_at", int),
            ("meta", Raw, None),
            ("row_id", str | None, None),
            ("place", int | None, None),
        ]
        return _struct("Line", fields)

    def put_data(self, line: Any, data: Any) -> None:
        *around, name = self._path.split(".")
        setattr(reduce(getattr, around, line), name, data)

    def unmark(self, line: Any, marks: Marks) -> None:
        """Remove the marks of a repaired line from what the source itself says of the record."""
        line.meta = line.meta and Raw(marks.remove_from(bytes(line.meta)))

    def read_heads(self, lines: Sequence[Any], numbers: np.ndarray, part: LineRange) -> Heads:
        """Return the properties of decoded lines. `numbers`: of these lines in the piece of the part."""
        times = np.array([line.emitted_at for line in lines], np.int64)
        metas = [line.meta for line in lines]
        if not lines or lines[0].row_id is None:
            return Heads(part.first + numbers, times, metas)
        sequence = np.array([line.place for line in lines], np.int64)
        return Heads(sequence, times, metas, [line.row_id for line in lines])


class AirbyteEnvelope(Envelope):
    """The envelope of a RECORD message of the Airbyte Protocol, of one stream."""

    _path = "record.data"

    def line_type(self, data: Any) -> Any:
        namespace = ("namespace", self._namespace)
        record = [
            ("stream", self._stream),
            ("data", data),
            ("emitted_at", Any, None),
            (*namespace, None) if self._namespace is None else namespace,
            ("meta", Raw, None),
            ("file_reference", None, None),
        ]
        return _struct("Line", [("type", Literal["RECORD"]), ("record", _struct("Body", record))])

    def unmark(self, line: Any, marks: Marks) -> None:
        super().unmark(line.record, marks)

    def read_heads(self, lines: Sequence[Any], numbers: np.ndarray, part: LineRange) -> Heads:
        bodies = [line.record for line in lines]
        times: list[Any] = [body.emitted_at for body in bodies]
        try:
            millis = np.array(times, np.int64)
        except (TypeError, ValueError, OverflowError):
            millis = np.array([_whole_millis(time) for time in times], np.int64)
        metas = [body.meta for body in bodies]
        return Heads(part.first + numbers, _fix_times(millis, part.received_at), metas)


class SingerEnvelope(Envelope):
    """The envelope of a RECORD message of Singer, of one stream."""

    _path = "record"

    def line_type(self, data: Any) -> Any:
        fields = [("type", Literal["RECORD"]), ("stream", self._stream), ("record", data)]
        return _struct("Line", [*fields, ("time_extracted", Any, None)])

    def unmark(self, line: Any, marks: Marks) -> None:
        """Do nothing: a tap says nothing of its records."""

    def read_heads(self, lines: Sequence[Any], numbers: np.ndarray, part: LineRange) -> Heads:
        times = [line.time_extracted for line in lines]
        texts = [(time if isinstance(time, str) else None,) for time in times]
        columns = ColumnBuilder(lambda *_: None, has_long_values=False, keeps_number_texts=False)
        (instants,) = columns.build([_TIME], texts, WHOLE_RECORD, range(len(texts)))
        micros = instants.cast(pa.int64()).fill_null(_NO_TIME).to_numpy()
        millis = np.rint(micros / 1000).astype(np.int64)
        return Heads(
            part.first + numbers, _fix_times(millis, part.received_at), [None] * len(lines)
        )


def make_envelope(part: LineRange) -> Envelope:
    """Return the envelope of a part's lines."""
    return {ROWS: Envelope, AIRBYTE: AirbyteEnvelope, SINGER: SingerEnvelope}[part.form](part)


def _struct(name: str, fields: Sequence[Any]) -> Any:
    return msgspec.defstruct(name, fields, kw_only=True, gc=False)


def _fix_times(millis: np.ndarray, default: int) -> np.ndarray:
    """Return times; the default for one that is absent, in another unit, or no number."""
    return np.where((millis >= 0) & (millis < _MAX_TIME), millis, default)


def _whole_millis(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < _MAX_TIME else -1


_WIDTH = 36
_PREFIX = 24
_UTC = pa.timestamp("us", "UTC")

Entry = tuple[str | None, str | None, str | None]
"""A change: the field, the kind of the change and its reason."""
_MALFORMED: Entry = (None, None, "SOURCE_META_MALFORMED")
"""What stands for a change that cannot be read. Its values are not quoted: they may be those of fields that
must not be stored."""


def build_metadata_columns(
    job: ParseJob, head: Heads, changes: Sequence[Sequence[Entry]] | pa.ListArray | None
) -> list[pa.Array]:
    """Return the metadata columns, in the order of `ParseJob.metadata`.

    Args:
        changes: those of each row, also as a column; None if there are none.
    """
    prefix, generation, sync = job.sync_ids
    rows, meta = len(head.times), job.metadata.field(3).type
    ids = _ids(prefix, head.sequence)
    if head.row_ids is not None:
        ids = _restore_ids(prefix, head, ids)
    columns = [
        ids,
        pa.array(head.times * 1000).cast(_UTC),
        pa.repeat(pa.scalar(generation, pa.int64()), rows),
        pa.StructArray.from_arrays(
            [
                pa.repeat(pa.scalar(sync, pa.int64()), rows),
                _lists(changes, rows, meta.field(1).type),
            ],
            fields=list(meta),
        ),
    ]
    if job.partition is not None:
        columns.append(pa.repeat(pa.scalar(job.partition, pa.string()), rows))
    return columns


def _ids(prefix: str, sequence: np.ndarray) -> pa.Array:
    """Return the rows' ids: the prefix, and the position of the record in its stream in hexadecimal."""
    rows = len(sequence)
    out = np.empty((rows, _WIDTH), np.uint8)
    out[:, :_PREFIX] = np.frombuffer(prefix.encode(), np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    for digit in range(_WIDTH - _PREFIX):
        out[:, _WIDTH - 1 - digit] = digits[(sequence >> (4 * digit)) & 15]
    offsets = np.arange(0, _WIDTH * (rows + 1), _WIDTH, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )


def _restore_ids(prefix: str, head: Heads, own: pa.Array) -> pa.Array:
    """Return the ids of replayed rows: their own, or ones as if their sync had started when they were
    extracted."""
    assert head.row_ids is not None
    ids = own.to_pylist()
    for number, (row_id, extracted_at) in enumerate(
        zip(head.row_ids, head.times.tolist(), strict=True)
    ):
        time = f"{extracted_at:012x}"
        ids[number] = row_id or f"{time[:8]}-{time[8:]}{prefix[13:]}{ids[number][_PREFIX:]}"
    return pa.array(ids, pa.string())


def read_reported_changes(meta: Any) -> list[Entry]:
    """Return the changes that the source itself reports in a record's `meta`.

    One that is not as in the protocol is a change of an unknown field, with the reason of `_MALFORMED`.
    """
    try:
        changes = (msgspec.json.decode(meta) or {}).get("changes") or ()
        entries = [(item.get("field"), item.get("change"), item.get("reason")) for item in changes]
    except (msgspec.MsgspecError, TypeError, AttributeError, RecursionError):
        return [_MALFORMED]
    return [
        entry if all(text is None or isinstance(text, str) for text in entry) else _MALFORMED
        for entry in entries
    ]


def _lists(
    changes: Sequence[Sequence[Entry]] | pa.ListArray | None, rows: int, type_: pa.ListType
) -> pa.ListArray:
    if isinstance(changes, pa.ListArray):
        return changes
    if changes is None:
        offsets = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array([], type_.value_type), type=type_)
    ends = np.cumsum([0, *map(len, changes)])
    entries = list(chain.from_iterable(changes))
    parts = [pa.array([entry[n] for entry in entries], pa.string()) for n in range(3)]
    values = pa.StructArray.from_arrays(parts, fields=list(type_.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=type_)
