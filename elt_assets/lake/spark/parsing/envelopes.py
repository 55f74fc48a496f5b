"""The envelope of records: the properties of a line besides the record's data.

Spec: AirbyteMessage of type RECORD (0.19); Singer's RECORD message; the lines of `sync.segments` (form ROWS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from elt_assets.lake.spark.parsing.job import AIRBYTE, ROWS, Part
from elt_assets.lake.spark.types.changes import Misfit
from elt_assets.lake.spark.types.repair import Marks
from elt_assets.lake.spark.types.times import CLEAN, cast_times, instant

_MAX_TIME = 10**14
"""Limit of a time in epoch milliseconds: the year 5138. A larger one has another unit."""
_UTC = pa.timestamp("us", "UTC")


@dataclass
class Head:
    """The properties of some lines besides their data, each in the order of the lines.

    Attributes:
        sequence: the places of the records in their stream.
        at: the times of extraction in epoch milliseconds.
        metas: what the source itself says of the records, as JSON; None where it says nothing.
        row_ids: the ids of the rows, if the lines are those of a replay; empty where they are not known.
    """

    sequence: np.ndarray
    at: np.ndarray
    metas: Sequence[Any]
    row_ids: Sequence[str] | None = None


class Envelope:
    """The envelope of the form ROWS."""

    levels = 1
    """Objects around the data."""

    def type_of(self, data: Any) -> Any:
        """Return the type that decodes a line with this type of data."""
        fields = [
            ("data", data),
            ("emitted_at", int),
            ("meta", Raw, None),
            ("row_id", str | None, None),
            ("place", int | None, None),
        ]
        return _struct("Line", fields)

    def data(self, line: Any) -> Any:
        return line.data

    def put(self, line: Any, data: Any) -> None:
        line.data = data

    def unmark(self, line: Any, marks: Marks) -> None:
        """Remove the marks of a repaired line from what the source itself says of the record."""
        line.meta = line.meta and Raw(marks.without(bytes(line.meta)))

    def head(self, lines: Sequence[Any], numbers: np.ndarray, part: Part) -> Head:
        """Return the properties of decoded lines. `numbers`: of these lines in the piece of the part."""
        sequence = part.first + numbers - part.line
        at = np.array([line.emitted_at for line in lines], np.int64)
        metas = [line.meta for line in lines]
        if not lines or lines[0].row_id is None:
            return Head(sequence, at, metas)
        places = np.array([line.place for line in lines], np.int64)
        return Head(places, at, metas, [line.row_id for line in lines])


class AirbyteEnvelope(Envelope):
    """The envelope of a RECORD message of the Airbyte Protocol, of one stream."""

    levels = 2

    def __init__(self, part: Part):
        self._stream: Any = Literal[part.stream]
        self._namespace = None if part.namespace is None else Literal[part.namespace]

    def type_of(self, data: Any) -> Any:
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

    def data(self, line: Any) -> Any:
        return line.record.data

    def put(self, line: Any, data: Any) -> None:
        line.record.data = data

    def unmark(self, line: Any, marks: Marks) -> None:
        super().unmark(line.record, marks)

    def head(self, lines: Sequence[Any], numbers: np.ndarray, part: Part) -> Head:
        bodies = [line.record for line in lines]
        at = _milliseconds([body.emitted_at for body in bodies], part.received_at)
        return Head(part.first + numbers - part.line, at, [body.meta for body in bodies])


class SingerEnvelope(Envelope):
    """The envelope of a RECORD message of Singer, of one stream."""

    def __init__(self, part: Part):
        self._stream: Any = Literal[part.stream]

    def type_of(self, data: Any) -> Any:
        fields = [("type", Literal["RECORD"]), ("stream", self._stream), ("record", data)]
        return _struct("Line", [*fields, ("time_extracted", Any, None)])

    def data(self, line: Any) -> Any:
        return line.record

    def put(self, line: Any, data: Any) -> None:
        line.record = data

    def unmark(self, line: Any, marks: Marks) -> None:
        """Do nothing: a tap says nothing of its records."""

    def head(self, lines: Sequence[Any], numbers: np.ndarray, part: Part) -> Head:
        at = _instants([line.time_extracted for line in lines], part.received_at)
        return Head(part.first + numbers - part.line, at, [None] * len(lines))


def envelope_of(part: Part) -> Envelope:
    """Return the envelope of a part's lines."""
    if part.form == ROWS:
        return Envelope()
    return AirbyteEnvelope(part) if part.form == AIRBYTE else SingerEnvelope(part)


def _struct(name: str, fields: Sequence[Any]) -> Any:
    return msgspec.defstruct(name, fields, kw_only=True, gc=False)


def _milliseconds(values: list[Any], default: int) -> np.ndarray:
    """Return times; the default for one that is absent, in another unit, or no number."""
    try:
        times_ = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        times_ = np.array([_whole(value) for value in values], np.int64)
    return np.where((times_ >= 0) & (times_ < _MAX_TIME), times_, default)


def _whole(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < _MAX_TIME else -1


def _instants(values: list[Any], default: int) -> np.ndarray:
    """Return the times of Singer's texts, rounded to milliseconds; the default where there is none."""
    texts = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    is_clean = pc.fill_null(pc.match_substring_regex(texts, CLEAN["TIMESTAMP"]), False)
    if pc.all(is_clean, min_count=0).as_py():
        try:
            micros = cast_times("TIMESTAMP", texts, _UTC).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:  # a day that its month does not have
            micros = None
        if micros is not None:
            return _milliseconds(np.rint(micros / 1000).astype(np.int64).tolist(), default)
    found = [_instant(value) for value in values]
    return _milliseconds(found, default)


def _instant(value: Any) -> int:
    try:
        return round(instant(value, lambda *_: None) / 1000) if isinstance(value, str) else -1
    except Misfit:
        return -1
