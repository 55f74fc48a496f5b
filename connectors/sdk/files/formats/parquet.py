"""Parquet. Row groups are read as they are; columns without a type of their own in the lake become JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.sdk.arrow_records import list_values
from connectors.sdk.columns.conversion import shorten_singles
from connectors.sdk.columns.types import BIG_DECIMAL
from connectors.sdk.encoding import encode
from connectors.sdk.files.formats.file_format import PART_BYTES, FilePart, estimate_rows
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows, make_file_error, refuse_doubles
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage

_BATCH_ROWS = 1 << 16
_GROUP_BYTES = PART_BYTES // 2
"""About the bytes, compressed, of the row groups of a part."""
_BATCH_BYTES, _BUFFER_BYTES = 16 << 20, 4 << 20
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


@dataclass(frozen=True)
class Parquet:
    """The format of Parquet files."""

    mixed: str = "json"

    def sample(self, storage: Storage, file: FileVersion) -> Shapes:
        with storage.open_file(file) as source:
            schema = _open(file, source).schema_arrow
        return {column.name: _shape_of(column.type) for column in schema}

    def split(self, storage: Storage, file: FileVersion) -> Sequence[FilePart]:
        if file.size <= PART_BYTES:
            return [FilePart(estimate_rows(file, 40, compressed=False))]
        with storage.guard_read(file), storage.open_file(file) as source:
            reader = _open(file, source)
        metadata = reader.metadata
        parts, first, size, rows = [], 0, 0, 0
        for number in range(metadata.num_row_groups):
            size += _count_bytes(reader, number)
            rows += metadata.row_group(number).num_rows
            if size >= _GROUP_BYTES or number == metadata.num_row_groups - 1:
                parts.append(FilePart(rows, first, number + 1))
                first, size, rows = number + 1, 0, 0
        return parts or [FilePart(0)]

    def read(
        self, storage: Storage, rows: FileRows, part: FilePart, kinds: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        del kinds
        with storage.open_file(rows.file) as source:
            reader = _open(rows.file, source)
            names = reader.schema_arrow.names
            refuse_doubles(rows.file, names, "write it with other names")
            first, end = part.bounds or (0, reader.metadata.num_row_groups)
            if any(_count_bytes(reader, group) > PART_BYTES for group in range(first, end)):
                reader = _open(rows.file, source, is_large=True)
            for group in range(first, end):
                size = _batch_rows(reader.metadata.row_group(group))
                for batch in reader.iter_batches(size, row_groups=[group], use_threads=False):
                    yield rows.complete(_convert(batch))


def _open(file: FileVersion, source: Any, *, is_large: bool = False) -> pq.ParquetFile:
    """Return the reader of a file. A large row group is read bit by bit; others with few requests."""
    buffers = {"pre_buffer": not is_large, "buffer_size": _BUFFER_BYTES if is_large else 0}
    try:
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **buffers)
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())
        if "Parquet" not in text and "thrift" not in text:
            raise
        raise make_file_error(
            file, f"it is no Parquet file, or is not complete: {text}", "replace it, or exclude it"
        ) from error


def _count_bytes(reader: pq.ParquetFile, number: int) -> int:
    group = reader.metadata.row_group(number)
    return sum(group.column(n).total_compressed_size for n in range(group.num_columns))


def _batch_rows(group: Any) -> int:
    """Return a number of rows that fits in memory: a row may have megabytes."""
    size = max(group.total_byte_size, 1)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES * max(group.num_rows, 1) // size)))


def _shape_of(kind: pa.DataType) -> ColumnShape:
    """Return the type of a column."""
    kind = _plain(kind)
    if pa.types.is_struct(kind):
        return ColumnShape({"object"}, {inner.name: _shape_of(inner.type) for inner in kind})
    if _is_list(kind):
        return ColumnShape({"array"}, items=_shape_of(kind.value_type))
    if pa.types.is_null(kind):
        return ColumnShape()
    return ColumnShape({_name_of(kind)})


def _name_of(kind: pa.DataType) -> str:
    return next((name for test, name in _NAMES if test(kind)), "string")


def _is_exact_decimal(kind: pa.DataType) -> bool:
    if not pa.types.is_decimal(kind) or kind.scale < 0:
        return False
    whole = kind.precision - kind.scale
    return bool(
        kind.scale <= BIG_DECIMAL.places and whole <= BIG_DECIMAL.digits - BIG_DECIMAL.places
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary or an extension."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_list(kind: pa.DataType) -> bool:
    is_fixed = pa.types.is_fixed_size_list(kind)
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or is_fixed
    ) or _is_list_view(kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_json(kind: pa.DataType) -> bool:
    """Return whether a column becomes JSON."""
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind)) or _is_list(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _convert(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns the SDK can convert to JSON."""
    columns = [_convert_column(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _convert_column(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        return _convert_column(column.storage)
    kind = column.type
    convert = next((convert for test, convert in _CONVERSIONS if test(kind)), None)
    return column if convert is None else convert(column)


def _convert_timestamps(column: pa.Array) -> pa.Array:
    """Return timestamps in UTC; those in nanoseconds in microseconds, if they have no more digits."""
    kind = column.type
    zone = "UTC" if kind.tz else None
    if kind.tz != zone:
        column = column.cast(pa.timestamp(kind.unit, zone))
    if kind.unit == "ns":
        try:
            return column.cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            return column
    return column


def _convert_decimals(column: pa.Array) -> pa.Array:
    """Return decimals; those that the lake has no type for as texts."""
    if _name_of(column.type) == "decimal":
        return column
    return pa.array([None if v is None else f"{v:f}" for v in column.to_pylist()], pa.string())


def _convert_floats(column: pa.Array) -> pa.Array:
    """Return floats of 32 bits as doubles with the same shortest text: 0.1, and not 0.10000000149011612."""
    return shorten_singles(column.cast(pa.float32()))


def _convert_durations(column: pa.Array) -> pa.Array:
    """Return durations as texts, such as `1 day, 0:00:00.000001`: any number of days, to the nanosecond."""
    unit = _NANOSECONDS[column.type.unit]
    values = column.cast(pa.int64()).to_pylist()
    texts = [None if value is None else _describe_duration(value * unit) for value in values]
    return pa.array(texts, pa.string())


def _describe_duration(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    days, seconds = divmod(seconds, 86_400)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if fraction:
        text += f".{fraction:09}" if fraction % 1000 else f".{fraction // 1000:06}"
    return text if not days else f"{days} day{'' if abs(days) == 1 else 's'}, {text}"


def _write_json(column: pa.Array) -> pa.Array:
    """Return nested values as texts of JSON."""
    values = _json_values(column)
    texts = [None if value is None else encode(value).decode() for value in values]
    return pa.array(texts, pa.string())


def _json_values(column: pa.Array) -> list[Any]:
    """Return values as JSON has them."""
    if isinstance(column, pa.ExtensionArray):
        return _json_values(column.storage)
    kind = column.type
    if pa.types.is_struct(kind):
        return _json_objects(column)
    if pa.types.is_map(kind) or _is_list(kind):
        return _json_lists(column)
    return list_values(_convert_column(column))


def _json_objects(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    fields = [_json_values(values) for values in column.flatten()]
    rows: Any = zip(*fields, strict=True) if fields else [()] * len(column)
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    return [
        item if is_valid else None
        for item, is_valid in zip(objects, column.is_valid().to_pylist(), strict=True)
    ]


def _json_lists(column: pa.Array) -> list[Any]:
    """Return lists, and maps as objects."""
    is_map = pa.types.is_map(column.type)
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    rows = _list_bounds(column)
    first = min((start for start, end in filter(None, rows)), default=0)
    size = max((end for start, end in filter(None, rows)), default=0) - first
    if is_map:
        keys = map(_key_text, _json_values(column.keys.slice(first, size)))
        items = list(zip(keys, _json_values(column.items.slice(first, size)), strict=True))
    else:
        items = _json_values(column.values.slice(first, size))
    parts = (None if row is None else items[row[0] - first : row[1] - first] for row in rows)
    return [dict(part) if is_map and part is not None else part for part in parts]


def _list_bounds(column: pa.Array) -> list[tuple[int, int] | None]:
    """Return where the items of each row begin and end; None for a row that is null.

    A view of a list has a size for each row, and is not cast here: pyarrow 26 may lose items in the cast.
    """
    starts = column.offsets.to_pylist()
    if _is_list_view(column.type):
        ends = [start + size for start, size in zip(starts, column.sizes.to_pylist(), strict=True)]
    else:
        starts, ends = starts[:-1], starts[1:]
    bounds = zip(starts, ends, column.is_valid().to_pylist(), strict=True)
    return [(start, end) if is_valid else None for start, end, is_valid in bounds]


def _key_text(key: Any) -> str:
    """Return the name of a field for the key of a map: a key that is no text as JSON has it."""
    return key if isinstance(key, str) else encode(key).decode()


_NAMES: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, "big_integer"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "number"),
    (_is_exact_decimal, "decimal"),
    (pa.types.is_date, "date"),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "timestamp"),
    (pa.types.is_timestamp, "timestamp_without_timezone"),
    (pa.types.is_time, "time"),
    (_is_binary, "binary"),
    (pa.types.is_map, "object"),
)
"""The names of types; that of any other is `string`."""
_CONVERSIONS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = (
    (pa.types.is_dictionary, lambda column: _convert_column(column.dictionary_decode())),
    (_is_json, _write_json),
    (pa.types.is_timestamp, _convert_timestamps),
    (pa.types.is_decimal, _convert_decimals),
    (pa.types.is_fixed_size_binary, lambda column: column.cast(pa.binary())),
    (pa.types.is_date64, lambda column: column.cast(pa.date32())),
    (lambda kind: pa.types.is_float16(kind) or pa.types.is_float32(kind), _convert_floats),
    (pa.types.is_duration, _convert_durations),
)
"""How columns of some types are changed; those of all others stay."""
