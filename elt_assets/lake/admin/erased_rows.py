"""The rows that an erasure is about: found by a condition or by keys, and taken out of the files of a table.

Used by `erasure`, which commits what is built here.

A stream with a key is erased by key: the condition selects keys, in the table, its history and its rejected
records, and every row of these keys goes, whatever it has in the columns of the condition. So an older
version of a person goes too, and the delete of a key, of which only the key is known. A stream without a key,
and a row whose key is null, is erased by the id of the row.

The keys are written to a hidden file, as the batch of a merge is, so that only files that may have one of
them are opened (`merge.file_splitting`). Values of the erased rows are in this file and in those of the rows
that were taken out: both are removed at once, and after a kill by the next run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.logical_types import JSONS, SOURCE, Scalar, column_of, core
from elt_assets.lake.columns.metadata_columns import RAW_ID
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard, write_all
from elt_assets.lake.delta.storage import HIDDEN, VISIBLE, DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import (
    MAX_KEYS,
    Batch,
    Key,
    find_candidates,
    has_key,
    take_out,
)
from elt_assets.lake.session import value_at

ROW_IDS: Key = [[RAW_ID]]
_RECORD, _FILE, _MATCH, _UNCLEAR = "record", "_elt_file", "_elt_match", "_elt_unclear"
_HAS_KEY = "_elt_has_key"


class Condition(Protocol):
    """A condition on the columns of one row, in Spark SQL; it was checked (`connection.read_only_query`)."""

    @property
    def sql(self) -> str: ...

    @property
    def columns(self) -> Collection[str]:
        """The top-level columns that it names."""

    @property
    def literals(self) -> Collection[str]:
        """The texts that it compares with."""

    @property
    def equal(self) -> Mapping[str, Sequence[str | int]]:
        """Columns that have one of some values in each row that meets it."""


@dataclass(frozen=True)
class Selection:
    """What is erased: the rows that meet a condition, or those of some keys."""

    key: Key  # the columns of the stream's key; empty without one
    condition: Condition | None = None
    keys: pa.Table | None = None  # the keys, in the columns of the key


@dataclass(frozen=True)
class Matches:
    """The selected rows, as batches of keys and of row ids."""

    keys: Batch
    ids: Batch

    def discard(self) -> None:
        for batch in (self.keys, self.ids):
            batch.table.storage.discard(batch.files)


def find_matches(
    spark: SparkSession, tables: Sequence[Table], rejected: Table | None, selection: Selection
) -> Matches:
    """Return the rows that are selected in the tables of a stream, hidden files included.

    Args:
        tables: the stream's table and its history, as each of their writers has them; the first one gets the
            file of the keys.
        rejected: its dead letter.

    Raises:
        ConfigError: the condition cannot be computed from the rows, or selects a row without key and id.
    """
    main = tables[0]
    if selection.keys is not None:
        return Matches(Batch(main, _write_keys(main, selection.keys)), Batch(main, ()))
    condition = selection.condition
    assert condition is not None
    names = list(dict.fromkeys(part[0] for part in selection.key))
    has = has_key(selection.key) if selection.key else f.lit(False)
    frames = [
        select_rows(table.read_files(spark, files), condition).select(*names, RAW_ID)
        for table, files in _list_files(tables, condition)
        if files
    ]
    if names and rejected is not None and rejected.files:
        parsed = read_rejected(spark, rejected, rejected.files, main.schema)
        no_id = f.lit(None).cast("string").alias(RAW_ID)
        frames.append(select_rows(parsed, condition).where(has).select(*names, no_id))
    if not frames:
        return Matches(Batch(main, ()), Batch(main, ()))
    found_rows = _unite(frames).withColumn(_HAS_KEY, has).toArrow()
    if found_rows.num_rows > MAX_KEYS:
        raise ConfigError(
            f"--where selects {found_rows.num_rows:,} rows, and at most {MAX_KEYS:,} are erased at a time",
            guidance="erase them in parts, by narrower conditions; nothing was changed",
        )
    keyed = found_rows[_HAS_KEY]
    keys = found_rows.filter(keyed).select(names) if names else None
    ids = found_rows.filter(pc.invert(keyed)).select([RAW_ID])
    return Matches(Batch(main, _write_keys(main, keys)), Batch(main, _write_keys(main, ids)))


def select_rows(rows: DataFrame, condition: Condition) -> DataFrame:
    """Return the rows that meet a condition.

    Raises:
        ConfigError: Spark cannot compute it.
    """
    try:
        return rows.where(condition.sql)
    except AnalysisException as error:
        raise ConfigError(
            f"--where cannot be computed: {str(error).strip().splitlines()[0][:300]}",
            guidance=f"the columns of the table: {', '.join(rows.columns)}",
        ) from None


def _list_files(
    tables: Sequence[Table], condition: Condition
) -> list[tuple[Table, Sequence[DataFile]]]:
    """Return the files that may have rows that meet a condition: visible ones once, and all hidden ones."""
    parts: list[tuple[Table, Sequence[DataFile]]] = []
    visible: set[str] = set()
    for table in tables:
        if table.uri not in visible:
            visible.add(table.uri)
            equal = {
                name: values
                for name, values in condition.equal.items()
                if name in table.schema.names
            }
            parts.append((table, find_candidates(table, table.files, equal)))
        parts.append((table, table.metadata.hidden))
    return parts


def _unite(frames: Sequence[DataFrame]) -> DataFrame:
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def _write_keys(table: Table, keys: pa.Table | None) -> list[DataFile]:
    """Write keys to a hidden file; none is written without a key."""
    if keys is None or not keys.num_rows:
        return []
    folder, storage = table.new_folder(HIDDEN), table.storage
    if not storage.location.is_object_store:
        storage.system.create_dir(f"{storage.root}/{folder}")
    path = f"{folder}/keys.parquet"
    with storage.system.open_output_stream(f"{storage.root}/{path}") as sink:
        pq.write_table(keys, sink)
    return storage.describe([path])


# Taking out


@dataclass(frozen=True)
class TakenOut:
    """What is to be committed to a table for one writer, and how many rows go with it."""

    table: Table
    change: TableChange
    metadata: CommitMetadata
    rows: int  # visible ones
    hidden_rows: int = 0
    # Files of the dead letter that others replace, by their paths.
    replaced: dict[str, list[DataFile]] | None = None

    @property
    def written(self) -> list[DataFile]:
        """The new files, visible and hidden."""
        return [*self.change.add, *self.metadata.list_new_hidden(self.table.metadata)]


def take_rows(
    spark: SparkSession, writers: Sequence[Table], batch: Batch, key: Key
) -> list[TakenOut]:
    """Write the files of a table again that have rows of a batch, without these.

    Args:
        writers: the table as each of its writers has it; the first one gets the change of the visible files.
    """
    taken = []
    for number, table in enumerate(writers):
        files = () if number else table.files
        change, rows = _take(spark, table, files, batch, key)
        metadata, hidden_rows = _take_hidden(spark, table, batch, key)
        taken.append(TakenOut(table, change, metadata, rows, hidden_rows))
    return taken


def _take(
    spark: SparkSession,
    table: Table,
    files: Sequence[DataFile],
    batch: Batch,
    key: Key,
    kind: str = VISIBLE,
) -> tuple[TableChange, int]:
    split = take_out(spark, table, files, batch, key, kind)
    rows = row_count(table, split.matching)
    table.storage.discard(split.temporary)
    return TableChange(split.rest, split.taken), rows


def _take_hidden(
    spark: SparkSession, table: Table, batch: Batch, key: Key
) -> tuple[CommitMetadata, int]:
    """Return the metadata of a writer with new hidden files, and the number of rows that they lack."""
    metadata, rows = table.metadata, 0
    before = table.hides_files
    table.hides_files = (
        True  # with the partition columns of the table, as those of a refresh have them
    )

    def take_from(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        nonlocal rows
        change, count = _take(spark, table, files, batch, key)
        rows += count
        gone = {file.path for file in change.remove}
        return (*(file for file in files if file.path not in gone), *change.add)

    try:
        metadata = replace(metadata, tombstones=take_from(metadata.tombstones))
        refresh = metadata.refresh
        if refresh is not None:
            files, ends = take_from(refresh.files), take_from(refresh.tombstones)
            metadata = replace(metadata, refresh=replace(refresh, files=files, tombstones=ends))
    finally:
        table.hides_files = before
    return metadata, rows


# Rejected records


@dataclass(frozen=True)
class RejectedRows:
    """The rejected records that an erasure takes out, and those of which it cannot be known."""

    rows: int
    unclear: int
    change: TableChange
    replaced: dict[str, list[DataFile]]


def read_rejected(
    spark: SparkSession, table: Table, files: Iterable[DataFile], columns: t.StructType
) -> DataFrame:
    """Return the records of a dead letter, with their values in the columns that the stream's table has.

    A value that is not of the type of its column is null there.
    """
    rows = table.read_files(spark, list(files), path_column=_FILE)
    return rows.select("*", *_parse_record(columns))


def _parse_record(columns: t.StructType) -> list[Expression]:
    fields = [
        field for field in columns.fields if not field.name.startswith(("_airbyte_", "_elt_"))
    ]
    source = t.StructType(
        [t.StructField(_source(field), _source_type(field.dataType)) for field in fields]
    )
    record = f.from_json(_RECORD, source)
    values = []
    for field in fields:
        value = record.getField(_source(field)).cast(field.dataType)
        if isinstance(column_of(field).kind, Scalar) and core(column_of(field).kind) not in JSONS:
            text = _json_value(_source(field))
            value = f.coalesce(value, text.try_cast(field.dataType))
        values.append(value.alias(field.name))
    return values


def _source(field: t.StructField) -> str:
    return str(field.metadata.get(SOURCE, field.name))


def _source_type(kind: t.DataType) -> t.DataType:
    """Return a type with the names of the source in its objects."""
    if isinstance(kind, t.StructType):
        return t.StructType(
            [t.StructField(_source(field), _source_type(field.dataType)) for field in kind.fields]
        )
    return t.ArrayType(_source_type(kind.elementType)) if isinstance(kind, t.ArrayType) else kind


def _json_value(name: str) -> Expression:
    """Return a field of the record as text; null if the record lacks it or has null there."""
    quoted = name.replace("'", "")
    return f.get_json_object(_RECORD, f"$['{quoted}']")


def take_rejected(
    spark: SparkSession, table: Table, columns: t.StructType, selection: Selection, keys: Batch
) -> RejectedRows:
    """Write the files of a dead letter again that have selected records, without these.

    A record is selected by the same condition on its fields, or by its key. It is unclear if a field that
    decides has a value that its column cannot have.
    """
    change, replaced = TableChange(), dict[str, list[DataFile]]()
    if not table.files:
        return RejectedRows(0, 0, change, replaced)
    flagged = _flag(spark, table, columns, selection, keys)
    counts = (
        flagged.groupBy(_FILE)
        .agg(f.count_if(_MATCH).alias("rows"), f.count_if(_UNCLEAR).alias("unclear"))
        .collect()
    )
    erased, unclear = sum(row.rows for row in counts), sum(row.unclear for row in counts)
    by_name = {file.path.rpartition("/")[2]: file for file in table.files}
    for row in counts:
        if not row.rows:
            continue
        file = by_name[row[_FILE].rpartition("/")[2]]
        remaining: list[DataFile] = []
        if row.rows < row_count(table, [file]):
            rows = _flag(spark, table, columns, selection, keys, [file])
            names = [field.name for field in table.schema.fields]
            remaining = write_all(table, rows.where(f"not {_MATCH}").select(*names))
        verify_or_discard(
            table,
            row_count(table, [file]) - row.rows,
            row_count(table, remaining),
            "rejected records that stay",
            remaining,
        )
        replaced[file.path] = remaining
    add = [file for files in replaced.values() for file in files]
    remove = [file for file in table.files if file.path in replaced]
    return RejectedRows(erased, unclear, TableChange(add, remove), replaced)


def _flag(
    spark: SparkSession,
    table: Table,
    columns: t.StructType,
    selection: Selection,
    keys: Batch,
    files: Sequence[DataFile] | None = None,
) -> DataFrame:
    """Return rejected records with whether each is selected, and whether that is unclear."""
    rows = read_rejected(spark, table, table.files if files is None else files, columns)
    match, deciding = f.lit(False), [part[0] for part in selection.key]
    if selection.condition is not None:
        condition = selection.condition
        select_rows(rows, condition)
        match = f.coalesce(f.expr(condition.sql), f.lit(False))
        deciding = [name for name in columns.names if name in condition.columns]
    rows = rows.withColumn(_MATCH, match)
    if selection.key and keys.files:
        own = [value_at(part) for part in selection.key]
        batch = keys.rows(spark, _key_schema(columns, selection.key)).select(
            *(value_at(part).alias(f"_elt_key_{n}") for n, part in enumerate(selection.key))
        )
        same = [value.eqNullSafe(f.col(f"_elt_key_{n}")) for n, value in enumerate(own)]
        joined = rows.join(batch.distinct().withColumn("_elt_is_key", f.lit(True)), same, "left")
        is_key = f.coalesce(f.col("_elt_is_key"), f.lit(False)) & has_key(selection.key)
        rows = joined.withColumn(_MATCH, f.col(_MATCH) | is_key)
    lost = f.lit(False)
    for name in deciding:
        field = columns[name]
        lost |= f.col(name).isNull() & _json_value(_source(field)).isNotNull()
    return rows.withColumn(_UNCLEAR, ~f.col(_MATCH) & lost)


def _key_schema(columns: t.StructType, key: Key) -> t.StructType:
    names = dict.fromkeys(part[0] for part in key)
    return t.StructType([columns[name] for name in names])
