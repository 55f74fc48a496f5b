"""One stream of a connection: its settings, tables and asset key.

`validation` makes a `ConnectionStream`, and `pipeline`, `orchestration` and `cli` work with it.

First the columns that its `partition_by` and `cluster_by` name, checked against the catalog; then the levels
of its key and its table's path, and `ConnectionStream`.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from msgspec import Raw

from elt_assets import paths
from elt_assets.connection import (
    Connection,
    Stream,
    as_landed,
    field_selection,
)
from elt_assets.connection.automation import RunControls
from elt_assets.connection.partitions import has_window
from elt_assets.connection.stream import Condition, Deletes
from elt_assets.connection.stream_settings import join_names, resolve_conditions, resolve_renames
from elt_assets.errors import ConfigError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import JSONS, Column, Scalar, column_type, describe_type
from elt_assets.lake.columns.names import RESERVED_COLUMNS, is_column_name
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables, app_id, refuse_foreign
from elt_assets.lake.write.paths import TableNames, TablePath, TablePaths, open_tables
from elt_assets.lake.write.stored_stream import StoredStream
from elt_assets.lake.write.sync_columns import column_at, column_path, refuse_own_name
from elt_assets.pipeline.row_conditions import RowCondition, compile_conditions
from elt_assets.protocol.catalog import (
    DELETE_MARKERS,
    INCREMENTAL,
    AirbyteStream,
    ConfiguredStream,
    StreamId,
)
from elt_assets.runner.vault import hash_salt
from elt_assets.storage.location import Location
from elt_assets.sync.field_selection import FieldSelection, Renames, narrow_stream
from elt_assets.sync.record_filter import RecordFilter

_KINDS = frozenset(
    {
        Scalar.TEXT,
        Scalar.BOOLEAN,
        Scalar.INTEGER,
        Scalar.INTEGER_TEXT,
        Scalar.BIG_INTEGER,
        Scalar.BIG_NUMBER,
        Scalar.DATE,
    }
)


def partition_columns(
    connection: Connection, settings: Stream, landed: ConfiguredStream
) -> list[str]:
    """Return Delta's partition columns of the table of a stream.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: a field is not a stored top-level field with plain values, or each row would get a file
            of its own.
    """
    fields = connection.partition_fields(settings)
    if not fields:
        return []
    columns = from_json_schema.columns(landed.stream.json_schema)
    problems = [problem for path in fields for problem in _find_problems(path, columns)]
    names = [column.name for path in fields if (column := column_at(columns, path)) is not None]
    if len(set(map(tuple, fields))) < len(fields):
        problems.append("a field is named twice")
    elif landed.deduplicates and all(list(part) in fields for part in landed.key):
        problems.append(
            "it contains the whole primary key, so each row would get a file of its own; leave out a part of "
            "the key"
        )
    if problems:
        raise ConfigError(
            "\n".join(f"stream {str(landed.id)!r}: partition_by: {text}" for text in problems),
            guidance="name stored top-level fields with few values: text, integer, boolean or date; "
            "`partition_by: []` at a stream leaves out those of the connection",
        )
    return names


def refuse_decimals(landed: ConfiguredStream, table: Table) -> None:
    """Refuse to begin a table with decimals that have a fraction in a partition column.

    `to_pandas`, `to_pyarrow_table` and `to_pyarrow_dataset` of deltalake 1.6 fail for the whole table if one
    of them is negative: delta-rs passes `-12.5` to pyarrow as `-12.-5`. A table that has such a column is
    written as before: other readers, and deltalake without negative values, read it.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: names the column, and what to do.
    """
    for column in from_json_schema.columns(landed.stream.json_schema):
        if column.name not in table.partition_by or column.kind is not Scalar.BIG_NUMBER:
            continue
        type_ = column_type(column.kind)
        if table.exists and table.schema[column.name].dataType == type_:
            continue
        raise ConfigError(
            f"stream {str(landed.id)!r}: partition_by: {column.name!r}: its values are decimals with a "
            f"fraction ({type_.simpleString()}); readers by deltalake (to_pandas, to_pyarrow_table) fail for "
            "a table in which one of them is negative",
            guidance="remove the field from `partition_by`, and name it in `cluster_by`; if the table "
            "exists, move it and its companions away: the next sync reads the stream into a new one",
        )


def _find_problems(path: Sequence[str], columns: Sequence[Column]) -> Iterator[str]:
    name, column = ".".join(path), column_at(columns, path)
    if column is None:
        yield f"there is no column {name!r}; {describe_near_names(path, columns)}"
    elif len(path) > 1:
        yield f"{name!r} is in an object; only top-level fields can be partition columns"
    elif column.kind not in _KINDS:
        yield f"{name!r}: its values ({describe_type(column.kind)}) cannot be those of a partition column"


def cluster_columns(settings: Stream, landed: ConfiguredStream) -> list[list[str]]:
    """Return the columns that maintenance sorts the table of a stream by.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: there is no such column, or its values have no order.
    """
    columns, problems = from_json_schema.columns(landed.stream.json_schema), list[str]()
    paths = settings.cluster_by or []
    for path in paths:
        name, column = ".".join(path), column_at(columns, path)
        if column is None:
            problems.append(f"there is no column {name!r}; {describe_near_names(path, columns)}")
        elif not isinstance(column.kind, Scalar) or column.kind in (*JSONS, Scalar.BINARY):
            problems.append(f"{name!r}: its values ({describe_type(column.kind)}) cannot be sorted")
    if problems:
        raise ConfigError(
            "\n".join(f"stream {str(landed.id)!r}: cluster_by: {text}" for text in problems),
            guidance="name columns of the stream with plain values",
        )
    return [column_path(columns, path) or [] for path in paths]


def describe_near_names(path: Sequence[str], columns: Sequence[Column]) -> str:
    """Return what a column that does not exist may be meant to be, for the guidance of an error."""
    names = [column.source for column in columns]
    if len(path) > 1 and (parent := column_at(columns, path[:-1])) is not None:
        names = [column.source for column in getattr(parent.kind, "fields", ())]
    near = difflib.get_close_matches(path[-1], names, n=1)
    return (
        f"did you mean {'.'.join([*path[:-1], *near])!r}?"
        if near
        else f"there are {join_names(names)}"
    )


STATES = "_elt_states"
"""The first level of the table path of a stream whose rows are in another destination."""


def default_key(connection: Connection, stream: ConfiguredStream) -> tuple[str, ...]:
    """Return the levels of a stream's asset key, which are part of the public contract."""
    return key_levels(connection.name, stream.id)


def key_levels(connection: str, stream: StreamId) -> tuple[str, ...]:
    """Return the levels of a key: the connection, the stream's namespace if it has one, and the stream."""
    levels = () if stream.namespace is None else (stream.namespace,)
    return (connection, *levels, stream.name)


def table_path(connection: Connection, stream: StreamId) -> TablePath:
    """Return the path of a stream's table, by the names of the connection's streams.

    Raises:
        ConfigError: the names of tables that the connection has cannot be used.
    """
    root = (*table_root(connection), connection.lake_namespace)
    return _paths(root, connection.prefix or "", connection.table_settings)[stream]


def table_root(connection: Connection) -> tuple[str, ...]:
    """Return the levels above the namespaces of a connection's tables."""
    return () if connection.destination is None else (STATES,)


@lru_cache(maxsize=32)
def _paths(
    root: tuple[str, ...],
    prefix: str,
    streams: tuple[tuple[str, str | None, bool, str | None], ...],
) -> TablePaths:
    named = {StreamId(name, space): table for name, space, _, table in streams if table is not None}
    paths = TablePaths(root, TableNames(prefix, named))
    paths.add({StreamId(name, namespace): history for name, namespace, history, _ in streams})
    return paths


@dataclass(frozen=True)
class ConnectionStream:
    """One configured stream of a connection."""

    connection: Connection
    stream: ConfiguredStream  # the source's stream with the settings of the connection
    levels: tuple[str, ...]  # of the asset key, which also identifies the writer of its tables

    @property
    def name(self) -> str:
        """The asset key as text, with slashes between the levels."""
        return "/".join(self.levels)

    @cached_property
    def table_path(self) -> TablePath:
        return table_path(self.connection, self.stream.id)

    @property
    def destination_name(self) -> str:
        """The name of the stream at another destination than the lake."""
        return self.settings.table or f"{self.connection.prefix or ''}{self.stream.id.name}"

    def name_of(self, table: Table) -> str:
        """Return the name of a table of the stream, or of a companion: its levels below the root."""
        return ".".join(table.uri.split("/")[-len(self.table_path.levels) :])

    @cached_property
    def settings(self) -> Stream:
        """The stream's settings in the connection."""
        return self.connection.settings_of(self.stream.id)

    @cached_property
    def controls(self) -> RunControls:
        """The run controls of the stream: its own, and those of its connection."""
        return self.connection.controls_of(self.stream.id)

    @property
    def deletes(self) -> Deletes:
        """What happens to rows that the source has deleted."""
        return self.settings.deletes or self.connection.deletes or Deletes()

    @property
    def keeps_deleted(self) -> bool:
        """Return whether rows stay that the source has deleted."""
        return self.deletes.rows == "keep"

    @cached_property
    def fields(self) -> FieldSelection | None:
        """The selection of the fields that are stored; None if all are stored as they are."""
        return field_selection(self.connection, self.stream)

    @cached_property
    def renames(self) -> Renames | None:
        """The new names of the stream's fields; None if all keep their names."""
        return resolve_renames(self.connection, self.settings, self.stream.stream)

    @cached_property
    def conditions(self) -> Sequence[Condition]:
        """The conditions that the stream's records must meet to be stored."""
        return resolve_conditions(self.connection, self.settings, self.stream.stream)

    def check_rows(self) -> None:
        """Check the conditions and the new names with the types and names that columns can have.

        Raises:
            ConfigError: a condition does not fit the type of its field, or no column can have a new name.
        """
        self.make_row_condition()
        for old, new in self.renames.names.items() if self.renames is not None else ():
            if not is_column_name(new):
                raise ConfigError(
                    f"stream {str(self.stream.id)!r}: rename: {old!r}: no column can have the name {new!r}",
                    guidance="write letters, digits and underscores, and no name that begins with one of "
                    + ", ".join(RESERVED_COLUMNS),
                )

    def check_deletes(self) -> None:
        """Check that rows of the stream can stay after their delete, if they are to.

        Raises:
            ConfigError: says why they cannot, and what to do.
        """
        if not self.keeps_deleted:
            return
        stored = self.make_stored_stream()
        reason = None
        if self.connection.destination is not None:
            reason = "its rows are in another destination, which decides what a delete does"
        elif not stored.deduplicates:
            reason = (
                f"a delete is a row like any other (`destination_sync_mode: "
                f"{stored.destination_sync_mode}`); write `append_dedup`"
            )
        elif stored.overwrites:
            what = "a partition replaces the rows of" if self.settings.partitions else "it replaces"
            reason = f"each sync of {what} the former rows, deleted ones too; write `append_dedup`"
        if reason is not None:
            raise ConfigError(
                f"stream {str(self.stream.id)!r}: deletes: no deleted row can stay: {reason}",
                guidance="or write `deletes: remove` at the stream",
            )
        columns = from_json_schema.columns(stored.stream.json_schema)
        refuse_own_name(str(self.stream.id), [column.name for column in columns])

    def make_row_condition(self) -> RowCondition | None:
        """Return the function that tests the stream's records; None if all are stored.

        Raises:
            ConfigError: a condition does not fit the type of its field.
        """
        deletes = self.stream.deduplicates
        return (
            compile_conditions(self.conditions, self.stream, deletes=deletes)
            if self.conditions
            else None
        )

    def make_requested_stream(self, stream: ConfiguredStream | None = None) -> ConfiguredStream:
        """Return the stream as requested from its source: without the fields that are neither stored nor in a
        condition.

        Args:
            stream: the stream with the generation of a sync; default: without a generation.
        """
        fields = self.fields
        if fields is not None and self.conditions:
            tested = tuple(tuple(condition.field) for condition in self.conditions)
            fields = replace(fields, markers=(*fields.markers, *tested))
        return narrow_stream(stream or self.stream, fields)

    def make_sampled_stream(self) -> ConfiguredStream:
        """Return the stream as requested from its source for a look at its records: without documents."""
        stream = copy.copy(self.make_requested_stream())
        if stream.include_files:
            stream.include_files = False
        return stream

    def record_filter(
        self, check: Callable[[Raw], None] | None = None, *, keeps_markers: bool = False
    ) -> RecordFilter | None:
        """Return the filter of the stream's records; None if all are stored, and all fields as they are.

        Args:
            check: as for `RecordFilter`.
            keeps_markers: delete markers are kept also if the catalog does not declare them.

        Raises:
            ConfigError: as `hash_salt`, and `make_row_condition`.
        """
        fields, condition = self.fields, self.make_row_condition()
        if fields is None and condition is None and self.renames is None and check is None:
            return None
        salt = hash_salt() if fields is not None and fields.hashed else None
        if fields is not None and keeps_markers:
            fields = replace(fields, markers=tuple((name,) for name in DELETE_MARKERS))
        return RecordFilter(fields, salt, renames=self.renames, condition=condition, check=check)

    @property
    def salt_fingerprint(self) -> str | None:
        """The fingerprint of the salt; None if no field is hashed.

        The salt is read when a sync starts, never at load.
        """
        hashes = self.fields is not None and self.fields.hashed
        return paths.fingerprint(hash_salt()) if hashes else None

    @property
    def selection(self) -> str | None:
        """The fingerprint of the field selection, the salt and the new names; None if all fields are stored
        as they are."""
        if self.fields is None and self.renames is None:
            return None
        text = f"{self.fields} {self.salt_fingerprint}"
        text += "" if self.renames is None else f" {sorted(self.renames.names.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def conditions_text(self) -> str:
        """The conditions as a text that identifies them; empty if all records are stored."""
        return " and ".join(condition.model_dump_json() for condition in self.conditions)

    def join_metadata(self, metadata: CommitMetadata) -> StoredStream:
        """Return the stream as its table stores it, with the newest commit of the table."""
        return StoredStream(
            self.make_stored_stream(),
            metadata,
            self.salt_fingerprint,
            conditions=self.conditions_text,
        )

    def tables(self, lake: str | Location, partition: str | None = None) -> StreamTables:
        """Return the stream's tables at their newest snapshots, with the state of one partition.

        Args:
            lake: the root of the lake: a location, or a path or URI of one.
        """
        return open_tables(
            Location.parse(lake),
            self.table_path,
            app_id(self.levels),
            partition=partition,
            history=self.settings.history,
            partition_by=partition_columns(
                self.connection, self.settings, self.make_stored_stream()
            ),
        )

    def refuse_foreign(self, table: Table) -> None:
        """Check that no other asset wrote the table, nor this one under another key or without partitions.

        Raises:
            ConfigError: another writer filled the table; the message names it.
        """
        refuse_foreign(
            table,
            f"{self.name} as it is now",
            "restore the former key or partitions of the asset; or, if the stream was renamed, run "
            "`elt rename`; or move the table away: the stream is then read from the beginning",
            partitions_of=None if self.settings.partitions is None else app_id(self.levels),
        )

    def make_stored_stream(self, described: AirbyteStream | None = None) -> ConfiguredStream:
        """Return the stream as its table stores it.

        A sync of a partition reads it from the beginning and replaces its rows. Only a partition by key of an
        incremental stream has a cursor of its own and resumes from it.

        Args:
            described: the stream as its source describes it; default: as in the catalog.
        """
        stored = as_landed(self.connection, self.stream, described)
        partitions = self.settings.partitions
        if partitions is None:
            return stored
        if has_window(partitions) or stored.sync_mode != INCREMENTAL:
            stored = copy.copy(stored)
            stored.destination_sync_mode = stored.mode.partition_mode
        return stored


def read_key_salt() -> tuple[bytes, str]:
    """Return the salt with which keys are hashed that are not stored again, and its fingerprint.

    It is that of hashed fields.
    """
    salt = hash_salt()
    return salt, paths.fingerprint(salt)
