"""One stream of a connection: its configuration, its tables and its asset key in Dagster."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from elt_assets import paths
from elt_assets.connection import Connection, Stream, as_landed, field_selection
from elt_assets.connection.automation import RunControls
from elt_assets.connection.partitions import has_window
from elt_assets.connection.stream import Condition
from elt_assets.connection.stream_settings import resolve_conditions, resolve_renames
from elt_assets.errors import ConfigError
from elt_assets.lake.columns.names import RESERVED_COLUMNS, is_column_name
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables, app_id, refuse_foreign
from elt_assets.lake.write.paths import TableNames, TablePath, TablePaths, open_tables
from elt_assets.lake.write.sync_columns import StoredStream
from elt_assets.pipeline.partition_columns import partition_columns
from elt_assets.pipeline.row_conditions import RowCondition, compile_conditions
from elt_assets.protocol.catalog import INCREMENTAL, AirbyteStream, ConfiguredStream, StreamId
from elt_assets.runner.vault import hash_salt
from elt_assets.storage.location import Location
from elt_assets.sync.selection.fields import FieldSelection, narrow_stream
from elt_assets.sync.selection.filters import RecordFilter
from elt_assets.sync.selection.renames import Renames

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

    def record_filter(self) -> RecordFilter | None:
        """Return the filter of the stream's records; None if all are stored, and all fields as they are.

        Raises:
            ConfigError: as `hash_salt`, and `make_row_condition`.
        """
        fields, condition = self.fields, self.make_row_condition()
        if fields is None and condition is None and self.renames is None:
            return None
        salt = hash_salt() if fields is not None and fields.hashed else None
        return RecordFilter(fields, salt, renames=self.renames, condition=condition)

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
