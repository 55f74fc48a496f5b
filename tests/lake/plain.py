"""The lake without Spark: rows as Python's own, files written by pyarrow, for checks of many thousand steps.

What the lake commits, in which order, and what it undoes is its own code; only what Spark does to rows is
done here instead, in a few lines each. `REPLACED` is the one place that says which functions those are.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin import erased_rows, erasure
from elt_assets.lake.admin.erased_rows import Matches, RejectedRows, Selection
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.delta import attachments, row_counts
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.delta.storage import HIDDEN, VISIBLE, DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import Make
from elt_assets.lake.merge import file_splitting, history, key_order, partition_files, unchanged
from elt_assets.lake.merge.file_splitting import Batch, Key
from elt_assets.lake.merge.history import wide_schema
from elt_assets.lake.merge.key_order import MergeResult, MergeTarget, Ordering
from elt_assets.lake.worker.row_order import ARRIVAL
from elt_assets.lake.write import parsing, rewrite
from elt_assets.protocol.catalog import DELETED_AT

Row = dict[str, Any]
LONG_AGO = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
REJECTED_AT = dt.datetime.now(dt.timezone.utc)
"""A time since which maintenance keeps rejected records: it removes old ones with Spark alone."""
CLOSED, EPOCH = "_elt_closed_at", "_elt_epoch"


@dataclass(frozen=True)
class Frame:
    """Rows and their columns, in place of Spark's DataFrame."""

    rows: Sequence[Row]
    schema: t.StructType

    def where(self, condition: Callable[[Row], bool]) -> Frame:
        return Frame([row for row in self.rows if condition(row)], self.schema)


@dataclass(frozen=True)
class Equal:
    """Return whether a column is a value; null is one."""

    column: str
    value: object
    wanted: bool = True

    def __call__(self, row: Row) -> bool:
        return (row[self.column] == self.value) is self.wanted

    def __invert__(self) -> Equal:
        return Equal(self.column, self.value, not self.wanted)


@dataclass(frozen=True)
class Named:
    """A column, in place of Spark's."""

    parts: Sequence[str]

    def eqNullSafe(self, value: object) -> Equal:
        return Equal(self.parts[0], value)


class Functions:
    """The functions that are needed in place of Spark's."""

    @staticmethod
    def lit(value: object) -> object:
        return value


class NoSpark:
    """A provider of no session: nothing here asks for one."""

    def get(self) -> Any:
        return None


def cast(value: Any, kind: t.DataType) -> Any:
    """A value as a column of that type has it."""
    if value is None:
        return None
    if isinstance(kind, t.StringType):
        return value if isinstance(value, str) else json.dumps(value)
    return float(value) if isinstance(kind, t.DoubleType) else value


# Files


def write_files(table: Table, frame: Frame, kind: str = VISIBLE) -> list[DataFile]:
    """Replaces `Table.write_files`."""
    folder = table.new_folder(kind)
    if not frame.rows:
        return []
    there = Path(table.storage.root, folder)
    there.mkdir(parents=True)
    names = [field.name for field in frame.schema.fields]
    rows = [{name: row.get(name) for name in names} for row in frame.rows]
    schema = pa.schema(delta_schema(frame.schema).to_arrow())
    pq.write_table(pa.Table.from_pylist(rows, schema), there / f"{uuid4().hex}.parquet")
    reach(Failpoint.FILES_WRITTEN)
    return table.storage.files_in_folder(folder)


def read_files(
    table: Table, _: object, files: Iterable[DataFile], schema: t.StructType | None = None
) -> Frame:
    """Replaces `Table.read_files`."""
    wanted = schema or table.schema
    rows = [row for file in files for row in rows_of(table.storage.root, file)]
    fields = [(field.name, field.dataType) for field in wanted.fields]
    return Frame(
        [{name: cast(row.get(name), kind) for name, kind in fields} for row in rows], wanted
    )


_CACHE: dict[str, list[Row]] = {}
"""Files never change."""


def rows_of(root: str, file: DataFile) -> list[Row]:
    """A file's rows; raises FileNotFoundError where it is gone."""
    path = Path(root, file.path)
    if not path.exists():
        raise FileNotFoundError(path)
    if file.path not in _CACHE:
        if len(_CACHE) > 20_000:
            _CACHE.clear()
        _CACHE[file.path] = pq.ParquetFile(path).read().to_pylist()
    return _CACHE[file.path]


def one_core(_: object) -> int:
    """Replaces the number of the session's cores."""
    return 1


def run_tasks(_: object, count: int, make: Make, *arguments: Any) -> list[Any]:
    """Replaces the tasks on Spark: the same functions, in this process."""
    do = make(*arguments)
    return [do(number) for number in range(count)]


# Merges


class PlainCounter:
    """Replaces `RowCounter`."""

    def __init__(self) -> None:
        self.rows = 0

    def count(self, frame: Frame) -> Frame:
        self.rows = len(frame.rows)
        return frame


def _by_key(rows: Iterable[Row], key: Key) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[part[0]] for part in key), []).append(row)
    return found


def _recency(row: Row, by: Ordering) -> tuple[Any, ...]:
    cursor = row[by.cursor[0]] if by.cursor else None
    return cursor is not None, cursor or 0, row.get(ARRIVAL) or 0, row[metadata_columns.RAW_ID]


# Histories


def merge_history(
    _: object,
    table: Table,
    target: MergeTarget,
    batch: Batch,
    by: Ordering,
    schema: t.StructType,
    **__: object,
) -> MergeResult:
    """Replaces `history.merge`: every file is rewritten."""
    if not batch.files:
        return MergeResult(TableChange(), target.tombstones)
    rows = _versions(table, target, schema)
    rows += [{**row, ARRIVAL: 1} for row in read_files(batch.table, None, batch.files, schema).rows]
    return _rewritten(table, target, rows, by, schema)


def refresh_history(
    _: object,
    table: Table,
    target: MergeTarget,
    events: Batch,
    whole: Batch,
    by: Ordering,
    schema: t.StructType,
    epoch: int,
) -> MergeResult:
    """Replaces `history.refresh`: the current versions become those of `whole`."""
    rows = _versions(table, target, schema)
    known = {row[metadata_columns.RAW_ID] for row in rows}
    seen = read_files(events.table, None, events.files, schema).rows
    rows += [{**row, ARRIVAL: 1} for row in seen if row[metadata_columns.RAW_ID] not in known]
    there = read_files(whole.table, None, whole.files, schema).rows
    due = [{**row, EPOCH: epoch} for row in there]
    names = {row[metadata_columns.RAW_ID] for row in there}
    gone = [
        row
        for row in rows
        if row[metadata_columns.RAW_ID] not in names
        and (row.get("_is_current") or row.get(DELETED_AT) is not None)
        and row.get(CLOSED) is None
    ]
    due += [{**row, EPOCH: epoch, CLOSED: LONG_AGO} for row in gone]
    rows = [row for row in rows if row[metadata_columns.RAW_ID] not in names]
    return _rewritten(table, target, [*rows, *due], by, schema)


def _versions(table: Table, target: MergeTarget, schema: t.StructType) -> list[Row]:
    files = [*target.files, *target.tombstones]
    return [{**row, ARRIVAL: 0} for row in read_files(table, None, files, wide_schema(schema)).rows]


def _rewritten(
    table: Table, target: MergeTarget, rows: Sequence[Row], by: Ordering, schema: t.StructType
) -> MergeResult:
    visible: list[Row] = []
    ends: list[Row] = []
    for key, chain in _by_key(rows, by.key).items():
        since = max(row.get(EPOCH) or 0 for row in chain)
        placed = [{**row, EPOCH: since if row.get(EPOCH) is None else row[EPOCH]} for row in chain]
        placed.sort(key=lambda row: (row[EPOCH], row.get(CLOSED) is None, _recency(row, by)))
        for row, after in zip(placed, [*placed[1:], None], strict=True):
            is_end = row.get(CLOSED) is not None or row.get(DELETED_AT) is not None
            is_current = not is_end and (after is None or None in key)
            (ends if is_end else visible).append({**row, "_is_current": is_current})
    files = write_files(table, Frame(visible, wide_schema(schema)))
    hidden = write_files(table, Frame(ends, wide_schema(schema)), HIDDEN)
    return MergeResult(TableChange(files, target.files), hidden)


# Erasures


def find_matches(
    _: object, tables: Sequence[Table], rejected: Table | None, selection: Selection
) -> Matches:
    """Replaces `erased_rows.find_matches`, for conditions that compare columns with values alone."""
    main, names = tables[0], [part[0] for part in selection.key]
    if selection.condition is None:
        keys, ids = selection.keys, None
    else:
        listed = erased_rows._list_files(tables, selection.condition)
        rows = [row for table, files in listed for row in read_files(table, None, files).rows]
        records = [] if rejected is None else _parse_rejected(rejected, rejected.files)
        rows += [record for _, record in records if _has_key(record, names)]
        selected = [row for row in rows if meets(row, selection)]
        schema = main.arrow_schema()
        keys, ids = (
            pa.table({n: pa.array([row[n] for row in part], schema.field(n).type) for n in columns})
            for part, columns in (
                ([row for row in selected if _has_key(row, names)], names),
                ([row for row in selected if not _has_key(row, names)], [metadata_columns.RAW_ID]),
            )
        )
    write = erased_rows._write_keys
    return Matches(Batch(main, write(main, keys)), Batch(main, write(main, ids)))


def meets(row: Mapping[str, Any], selection: Selection) -> bool:
    """Return whether a row meets the condition of a selection."""
    condition = selection.condition
    return condition is not None and all(
        row.get(name) in values for name, values in condition.equal.items()
    )


def _has_key(row: Mapping[str, Any], names: Collection[str]) -> bool:
    return any(row.get(name) is not None for name in names)


def _parse_rejected(table: Table, files: Iterable[DataFile]) -> list[tuple[Row, Row]]:
    """Rejected records, each with the values that it has itself."""
    rows = [row for file in files for row in rows_of(table.storage.root, file)]
    parsed = [(row, json.loads(row["record"])) for row in rows]
    return [(row, record if isinstance(record, dict) else {}) for row, record in parsed]


def take_rejected(
    _: object, table: Table, columns: t.StructType, selection: Selection, keys: Batch
) -> RejectedRows:
    """Replaces `erased_rows.take_rejected`."""
    names = [part[0] for part in selection.key]
    batch = [row for file in keys.files for row in rows_of(keys.table.storage.root, file)]
    erased = {tuple(row[name] for name in names) for row in batch}
    replaced: dict[str, list[DataFile]] = {}
    remove, count = [], 0
    for file in table.files:
        rows = _parse_rejected(table, [file])
        rest = [
            row
            for row, record in rows
            if not meets(record, selection)
            and (not names or tuple(record.get(name) for name in names) not in erased)
        ]
        if len(rest) < len(rows):
            count += len(rows) - len(rest)
            replaced[file.path] = write_files(table, Frame(rest, table.schema))
            remove.append(file)
    add = [file for files in replaced.values() for file in files]
    return RejectedRows(count, 0, TableChange(add, remove), replaced)


Replacement = tuple[Any, str, Any]
SMALL_COMMITS: Replacement = (attachments, "LIMITS", dict.fromkeys(attachments.LIMITS, 64))
"""Limit with which the values of a commit's metadata nearly always get files of their own."""
REPLACED: tuple[Replacement, ...] = (
    (Table, "write_files", write_files),
    (Table, "read_files", read_files),
    (parsing, "run_tasks", run_tasks),
    (parsing, "_cores", one_core),
    (history, "merge", merge_history),
    (history, "refresh", refresh_history),
    (partition_files, "RowCounter", PlainCounter),
    (partition_files, "f", Functions),
    (partition_files, "value_at", Named),
    (row_counts, "RowCounter", PlainCounter),
    (file_splitting, "run_tasks", run_tasks),
    (key_order, "run_tasks", run_tasks),
    (unchanged, "run_tasks", run_tasks),
    (rewrite, "run_tasks", run_tasks),
    (erasure, "find_matches", find_matches),
    (erasure, "take_rejected", take_rejected),
)


@contextlib.contextmanager
def without_spark(*more: Replacement) -> Iterator[None]:
    """Context in which the lake works without a Spark session."""
    wanted = (*REPLACED, *more)
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in wanted]
    for owner, name, replacement in wanted:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
