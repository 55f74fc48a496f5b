"""Conversion of the Arrow batches of a slice to rows of the table, for the task in `slices`.

Columns whose values a table's column holds unchanged are taken over as they are. A batch with any other value
or column is written as lines of JSON, and parsed as the records of a segment are: so a value becomes the same
whichever way its stream is read.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.blocks import BlockParser, BlockRows, find_rejects
from elt_assets.lake.worker.columns import MAX_BYTES
from elt_assets.lake.worker.envelopes import Entry, Heads, build_metadata_columns
from elt_assets.lake.worker.inference import Schema, infer_arrow
from elt_assets.lake.worker.job import ROWS, LineRange, ParseJob
from elt_assets.lake.worker.json_texts import MAX_DEPTH, JsonColumn, is_too_deep
from elt_assets.lake.worker.kinds import DECODING_ERRORS, Field
from elt_assets.lake.worker.values import BlockChanges

_LINES_BYTES = 4 << 20
"""About the bytes of lines of JSON that are parsed at a time."""
_TAKEN_OVER = frozenset(
    {"TEXT", "BOOLEAN", "INTEGER", "BIG_INTEGER", "NUMBER", "BIG_NUMBER", "DATE", "BINARY"}
    | {"TIMESTAMP", "TIMESTAMP_NTZ", "UNREAD"}
)
"""The logical types of which any value of the column's type is valid."""
JSON_OPENINGS = {"JSON": b"", "JSON_OBJECT": b"{", "JSON_ARRAY": b"["}
"""The first byte of the texts of these types."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days since 1970 of 0001-01-01 and 9999-12-31."""
_DAY = 86_400_000_000
WriteLines = Callable[[pa.RecordBatch, int], bytes]
"""Function that returns the rows of a batch as lines of JSON, in the form ROWS. Its second argument is the
time of the records, in milliseconds since 1970."""
Split = Callable[[pa.RecordBatch], "tuple[pa.RecordBatch | None, pa.Array | None]"]


@dataclass
class BatchConverter:
    """Converts the batches of a slice to rows of the table."""

    job: ParseJob
    write_lines: WriteLines
    first: int  # the position in the stream of the slice's first row
    # Returns the fields of a batch, None if its rows are in JSON; and its changes, if it has some. The lake
    # knows them by what the source says, and not by the names of columns.
    split: Split
    _parser: BlockParser | None = field(default=None, init=False)
    _json: defaultdict[str, JsonColumn] = field(
        default_factory=lambda: defaultdict(JsonColumn), init=False
    )

    def convert(self, batch: pa.RecordBatch, first: int) -> Iterator[BlockRows]:
        """Yield the rows of a batch. `first`: the number of its first row in the slice."""
        fields, reported = self.split(batch)
        arrays = None if fields is None else self._take_over(fields)
        if arrays is None:
            types = {} if fields is None or not self.job.infers else self._infer(fields)
            for parsed in self._parse(batch, first):
                parsed.inferred = {**parsed.inferred, **types}
                yield parsed
            return
        emitted_at = _milliseconds()
        numbers = self.first + first + np.arange(len(batch))
        head = Heads(numbers, np.full(len(batch), emitted_at), ())
        changes = _changes(reported, self.job.metadata.field(3).type.field(1).type)
        columns = [*arrays, *build_metadata_columns(self.job, head, changes)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        rejects = find_rejects(self.job, rows, range(len(batch)), BlockChanges())
        if rejects:
            is_kept = np.ones(len(batch), bool)
            is_kept[list(rejects)] = False
            rows = rows.filter(pa.array(is_kept))
        yield self._describe(rows)
        for row in rejects:
            yield from self._parse(batch.slice(row, 1), first + row)

    def _infer(self, batch: pa.RecordBatch) -> dict[str, Schema]:
        """Return the schemas of undeclared columns that have values: their types say more than JSON does."""
        declared = self.job.declared.names
        return {
            column.name: infer_arrow(column.type)
            for column, values in zip(batch.schema, batch.columns, strict=True)
            if column.name not in declared and values.null_count < len(values)
        }

    def _describe(self, rows: pa.RecordBatch) -> BlockRows:
        """Return rows with the numbers of their changes."""
        changes = pc.struct_field(rows.column(self.job.metadata.names[3]), "changes")
        reasons = pc.struct_field(pc.list_flatten(changes), "reason")
        owners = pc.list_parent_indices(changes)
        is_value = pc.fill_null(pc.not_equal(reasons, self.job.keyless), True)
        changed = len(pc.unique(owners.filter(is_value)))
        counts = _count_changes(changes, owners)
        dependent = set(self.job.dependent).intersection(entry[2] for entry in counts)
        # In a table without a key it is a row as any other.
        markers = len(pc.unique(owners.filter(pc.invert(is_value)))) if self.job.key else 0
        return BlockRows(rows, None, (), changed, counts, Counter(), Counter(), dependent, markers)

    @property
    def _schema(self) -> pa.Schema:
        names = [column.name for column in self.job.fields]
        types = [column.type for column in self.job.fields]
        return pa.schema([*map(pa.field, names, types), *self.job.metadata])

    def _take_over(self, batch: pa.RecordBatch) -> list[pa.Array] | None:
        """Return the columns of the table; None if a value has to be converted, or a column is undeclared."""
        sources = {column.source for column in self.job.fields if column.is_read}
        if self.job.extra is not None or not sources.issuperset(batch.schema.names):
            return None
        arrays = []
        for column in self.job.fields:
            position = batch.schema.get_field_index(column.source) if column.is_read else -1
            if position < 0:
                arrays.append(pa.nulls(len(batch), column.type))
                continue
            values = _take_over(batch.column(position), column.type)
            if values is not None and column.kind in JSON_OPENINGS:
                values = self._normalize(
                    values,
                    column,
                    are_values=getattr(batch.column(position).type, "extension_name", None)
                    == "arrow.json",
                )
            elif column.kind not in _TAKEN_OVER:
                values = None
            if values is None:
                return None
            arrays.append(values)
        return arrays

    def _normalize(self, values: pa.Array, column: Field, *, are_values: bool) -> pa.Array | None:
        """Return texts of JSON as the table stores them; None if one is no value of the column's type."""
        opening = JSON_OPENINGS[column.kind]
        if opening:
            fits = pc.or_(pc.starts_with(values, opening), pc.equal(values, "null"))
            if pc.any(pc.invert(fits)).as_py():
                return None
        if (pc.max(pc.binary_length(values)).as_py() or 0) > 2 * MAX_DEPTH:
            is_long = pc.greater(pc.binary_length(values), 2 * MAX_DEPTH)
            if any(is_too_deep(text.encode()) for text in values.filter(is_long).to_pylist()):
                return None
        try:
            return self._json[column.source].normalize(values, are_values=are_values)
        except DECODING_ERRORS:
            return None

    def _parse(self, batch: pa.RecordBatch, first: int) -> Iterator[BlockRows]:
        """Yield the rows of a batch, parsed from lines of JSON."""
        emitted_at = _milliseconds()
        part = LineRange(0, ROWS, 0, 0, self.first, 0, emitted_at, "", None)
        if self._parser is None:
            self._parser = BlockParser(self.job, part)
        step = max(1, min(len(batch), _LINES_BYTES * len(batch) // max(batch.nbytes, 1)))
        for start in range(0, len(batch), step):
            rows = batch.slice(start, step)
            lines = self.write_lines(rows, emitted_at)
            numbers = np.arange(first + start, first + start + len(rows))
            yield self._parser.parse(lines, numbers, part)


def _changes(reported: pa.Array | None, kind: pa.ListType) -> pa.ListArray | None:
    """Return the changes that a batch reports, as the table has them; None if it reports none."""
    if reported is None:
        return None
    entries = pc.list_flatten(reported)
    parts = [
        pc.struct_field(entries, part.name)
        if entries.type.get_field_index(part.name) >= 0
        else pa.nulls(len(entries), pa.string())
        for part in kind.value_type
    ]
    sizes = pc.fill_null(pc.list_value_length(reported), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    values = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def _count_changes(changes: pa.ListArray, owners: pa.Array) -> Counter[Entry]:
    """Return how many rows have each change.

    Args:
        owners: the numbers of the rows of the changes.
    """
    entries = pc.list_flatten(changes)
    if not len(entries):
        return Counter()
    parts = [pc.struct_field(entries, number) for number in range(3)]
    names = ["field", "change", "reason"]
    table = pa.table([*parts, owners], names=[*names, "row"])
    counts = table.group_by(names).aggregate([("row", "count_distinct")]).to_pydict()
    keys = zip(*(counts[name] for name in names), strict=True)
    return Counter(dict(zip(keys, counts["row_count_distinct"], strict=True)))


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _take_over(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return values in the type of a column; None unless it holds each of them unchanged."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type != kind:
        if not _holds(kind, values.type):
            return None
        values = values.cast(kind)
    return values if _is_plain(values) else None


def _holds(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a column can hold all values of another type, as JSON would have them."""
    if pa.types.is_null(other):
        return True
    if pa.types.is_int64(kind):
        return pa.types.is_integer(other) and not pa.types.is_uint64(other)
    if pa.types.is_decimal128(kind):
        whole = kind.precision - kind.scale
        if pa.types.is_integer(other):
            return bool(whole >= 20)
        fits = pa.types.is_decimal(other) and 0 <= other.scale <= kind.scale
        return bool(fits and other.precision - other.scale <= whole)
    if pa.types.is_timestamp(kind):
        return bool(pa.types.is_timestamp(other) and other.tz == kind.tz and other.unit != "ns")
    if pa.types.is_string(kind):
        return bool(pa.types.is_large_string(other) or pa.types.is_string_view(other))
    if pa.types.is_binary(kind):
        return bool(pa.types.is_large_binary(other) or pa.types.is_binary_view(other))
    return False


def _is_plain(values: pa.Array) -> bool:
    """Return whether no value is beyond the limits of a column: its size, its years, or a number's range."""
    kind = values.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(values), skip_nulls=True).as_py() is not False)
    if pa.types.is_date32(kind):
        return _is_between(values.cast(pa.int32()), _FIRST_DAY, _LAST_DAY)
    if pa.types.is_timestamp(kind):
        return _is_between(values.cast(pa.int64()), _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (
            values.nbytes <= MAX_BYTES
            or (pc.max(pc.binary_length(values)).as_py() or 0) <= MAX_BYTES
        )
    return not pa.types.is_nested(kind)


def _is_between(numbers: pa.Array, least: int, most: int) -> bool:
    bounds = pc.min_max(numbers).as_py()
    return bounds["min"] is None or (least <= bounds["min"] and bounds["max"] <= most)
