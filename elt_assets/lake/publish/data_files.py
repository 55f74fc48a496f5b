"""What changed in a Delta table since a version, and its files as Iceberg names them, with their statistics.

`iceberg` asks for the changes; `manifests` writes the files that this module makes.

The statistics are those of Delta's log: no footer is read. In Iceberg a bound must be a true bound too, for
each reader, so that none leaves out a file that has a row:

1. Only files of this project have bounds here: `worker.statistics` says why theirs are never narrower than
   the values. Other engines cut texts and times in ways of their own, so their files have counts only.
2. A time has milliseconds in the log, rounded outwards; an upper one is raised by the rest of its millisecond
   once more, since the log may have been written by another version.
3. Zero is a bound of both zeros: Iceberg orders -0.0 before 0.0.
4. A value that has no exact form as a bound is left out: a column without bounds is read in any case.

Test: `tests/lake/publishing/test_publish_bounds.py`
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from elt_assets.lake.delta import log
from elt_assets.lake.delta.log import LogEntry
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import DataFile, TableStorage

BATCH = 1_000
"""Files that are held at a time while all of a table's are listed."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_EXACT = Context(prec=80)


@dataclass(frozen=True)
class LoggedFile:
    """A file of the table, as the log has it."""

    path: str
    size: int
    records: int | None
    partition: Mapping[str, Any]
    least: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FileChanges:
    """The files that commits since a version have added and removed, as a whole."""

    added: Sequence[LoggedFile]
    removed: frozenset[str]


def fingerprint(entry: LogEntry) -> str:
    """Return what identifies an entry of a log. A version may be written again, after a repair of the log."""
    return hashlib.sha256(entry.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_changes(
    storage: TableStorage, version: int, mark: str, newest: LogEntry
) -> FileChanges | None:
    """Return the changes of files after a version, up to that of an entry.

    Args:
        mark: the fingerprint of the entry of the version.

    Returns:
        None if the log does not tell: an entry is gone or another one than it was, the table was restored, or
        another engine has added a file again that the table may have.
    """
    former_entry = log.read(storage, version) if version < newest.version else None
    if former_entry is None or fingerprint(former_entry) != mark:
        return None
    added: dict[str, LoggedFile] = {}
    removed: set[str] = set()
    for number in range(version + 1, newest.version + 1):
        entry = newest if number == newest.version else log.read(storage, number)
        if entry is None or entry.info.get("operation") == log.RESTORE:
            return None
        for action in entry.actions():
            if "remove" in action:
                path = unquote(action["remove"]["path"])
                if added.pop(path, None) is None:
                    removed.add(path)
            elif "add" in action:
                file = _read_add(action["add"])
                if file.path in removed or not DataFile(file.path, 0, 0).is_own:
                    return None
                added[file.path] = file
    return FileChanges(list(added.values()), frozenset(removed))


def list_files(delta: Snapshot) -> Iterator[LoggedFile]:
    """Yield all files of a snapshot, some at a time: there may be hundreds of thousands."""
    actions = pa.table(delta.delta_table.get_add_actions(flatten=False))
    for batch in actions.to_batches(BATCH):
        for row in batch.to_pylist():
            yield LoggedFile(
                unquote(row["path"]),
                row["size_bytes"],
                row["num_records"],
                row.get("partition") or {},
                row.get("min") or {},
                row.get("max") or {},
                row.get("null_count") or {},
            )


def list_paths(delta: Snapshot) -> set[str]:
    """Return the paths of all files of a snapshot."""
    actions = pa.table(delta.delta_table.get_add_actions(flatten=True))
    return set(map(unquote, actions.column("path").to_pylist()))


def _read_add(add: Mapping[str, Any]) -> LoggedFile:
    stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    return LoggedFile(
        unquote(add["path"]),
        int(add["size"]),
        stats.get("numRecords"),
        add.get("partitionValues") or {},
        stats.get("minValues") or {},
        stats.get("maxValues") or {},
        stats.get("nullCount") or {},
    )


class FileMaker:
    """Makes the files of one table as Iceberg names them.

    Args:
        root: the URI of the table's root.
    """

    def __init__(self, storage: TableStorage, root: str, schema: Schema, spec: PartitionSpec):
        self._storage, self._root = storage, root
        self._spec = spec
        self._leaves = list(_list_leaves(schema.as_struct(), ()))
        self._partition = [schema.find_field(field.source_id) for field in spec.fields]

    def make(self, file: LoggedFile) -> IcebergFile:
        """Return a file with its partition and its statistics."""
        records = file.records
        if records is None:  # of another engine, without statistics
            records = sum(part.records for part in self._storage.describe([file.path]))
        counts, nulls = dict[int, int](), dict[int, int]()
        least, most = dict[int, bytes](), dict[int, bytes]()
        has_bounds = DataFile(file.path, 0, 0).is_own
        for path, number, type_ in self._leaves:
            count = _find(file.nulls, path)
            if isinstance(count, int):
                counts[number], nulls[number] = records, count
            if not has_bounds:
                continue
            low, high = _find(file.least, path), _find(file.most, path)
            bounds = make_bound(type_, low, up=False), make_bound(type_, high, up=True)
            if bounds[0] is not None and bounds[1] is not None:
                least[number], most[number] = bounds[0], bounds[1]
        made = IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._root}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(
                *(_make_value(f.field_type, file.partition.get(f.name)) for f in self._partition)
            ),
            record_count=records,
            file_size_in_bytes=file.size,
            value_counts=counts,
            null_value_counts=nulls,
            lower_bounds=least,
            upper_bounds=most,
        )
        made.spec_id = self._spec.spec_id
        return made


def make_bound(type_: PrimitiveType, value: Any, *, up: bool) -> bytes | None:
    """Return a value of Delta's statistics as a bound in Iceberg; None if it is none.

    Args:
        value: as JSON has it (a number with a fraction as a Decimal), or as Arrow does.
        up: it is an upper bound.
    """
    try:
        parsed = _make_value(type_, value)
        if parsed is None or (isinstance(parsed, float) and not math.isfinite(parsed)):
            return None
        if parsed == 0 and isinstance(parsed, float):
            parsed = 0.0 if up else -0.0
        if up and isinstance(type_, TimestampType | TimestamptzType):
            parsed += (999 - parsed % 1000) if parsed % 1000 else 999
        return to_bytes(type_, parsed)
    except (ArithmeticError, TypeError, ValueError):  # also UnicodeError, of half a surrogate pair
        return None


def _make_value(type_: IcebergType, value: Any) -> Any:
    """Return a value as Iceberg holds it: a date in days, a time in microseconds, since 1970.

    Raises:
        ValueError: it is none of the type.
    """
    if value is None:
        return None
    if isinstance(type_, BooleanType):
        return value if isinstance(value, bool) else _parse_boolean(value)
    if isinstance(type_, IntegerType | LongType):
        return int(value)
    if isinstance(type_, DoubleType | FloatType):
        return float(value)
    if isinstance(type_, StringType):
        return str(value)
    if isinstance(type_, DateType):
        date = value if isinstance(value, dt.date) else dt.date.fromisoformat(value)
        return (date - _EPOCH.date()).days
    if isinstance(type_, TimestampType | TimestamptzType):
        return _count_microseconds(value)
    if isinstance(type_, DecimalType):
        exact = Decimal(value).quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
        if exact != Decimal(value):
            raise ValueError(value)
        return exact
    raise ValueError(type_)


def _parse_boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if text not in values:
        raise ValueError(text)
    return values[text]


def _count_microseconds(value: dt.datetime | str) -> int:
    time = (
        value
        if isinstance(value, dt.datetime)
        else dt.datetime.fromisoformat(value.replace(" ", "T").removesuffix("Z"))
    )
    return (time.replace(tzinfo=time.tzinfo or dt.timezone.utc) - _EPOCH) // _MICROSECOND


def _list_leaves(
    struct: StructType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], int, PrimitiveType]]:
    """Yield the columns that have statistics: their paths, ids and types. Lists and maps have none."""
    for part in struct.fields:
        inner = (*path, part.name)
        if isinstance(part.field_type, StructType):
            yield from _list_leaves(part.field_type, inner)
        elif isinstance(part.field_type, PrimitiveType):
            yield inner, part.field_id, part.field_type


def _find(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
