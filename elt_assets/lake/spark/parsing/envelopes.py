"""The envelope of records: the properties of a line besides the record's data.

Spec: AirbyteMessage of type RECORD (0.19); Singer's RECORD message; the lines of `sync.segments` (form ROWS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from elt_assets.lake.spark.parsing.job import AIRBYTE, ROWS, SINGER, LineRange
from elt_assets.lake.spark.types.changes import WHOLE_RECORD
from elt_assets.lake.spark.types.columns import ColumnBuilder
from elt_assets.lake.spark.types.fields import Field
from elt_assets.lake.spark.types.repair import Marks

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
