"""The specification of one sync, with its policy; and the columns of a stream's tables, which others look up.

First the specification (`WriteSpec`), which `pipeline` and `destination` make of a stream and of what its
table holds (`stored_stream`), for `lake.write`, `lake.admin.replay` and `lake.admin.backfill`; then the plan
of the columns (`plan_columns`), with which `writer`, `rewrite` and `lake.admin.backfill` write. Most packages
look up columns of fields (`columns_of`, `column_at`, `key_of`); `pipeline`, `destination` and commands of
`elt` check a stream's key and fields (`check_columns`).
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.columns import evolution, from_json_schema, metadata_columns
from elt_assets.lake.columns.added import declare_columns
from elt_assets.lake.columns.evolution import SchemaPlan
from elt_assets.lake.columns.logical_types import (
    JSONS,
    Array,
    Column,
    Scalar,
    Struct,
    Unread,
    column_of,
    union,
    wider_columns,
)
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.history import VALIDITY
from elt_assets.lake.merge.key_order import Ordering
from elt_assets.lake.write.parsing import SyncIds
from elt_assets.lake.write.stored_stream import StoredStream
from elt_assets.protocol.catalog import DELETE_MARKERS, ConfiguredStream
from elt_assets.protocol.json_schema import explain_lost_fields
from elt_assets.sync.field_selection import OnSchemaChange


@dataclass(frozen=True)
class WriteSpec:
    """The specification of one sync of one stream, for its tables."""

    stream: ConfiguredStream  # as its tables store it, with its generation and sync id
    run_id: str
    history: bool = False
    on_schema_change: OnSchemaChange = "evolve"
    partition: str | None = None  # the Dagster partition of the rows
    # The source is read independently of its cursor, and the table's state stays as it is.
    keeps_state: bool = False
    salt: str | None = None  # the fingerprint of the salt that fields are hashed with
    # The fingerprint of the selection of fields and of the form in which they are stored.
    selection: str | None = None
    # Identifies a request for a refresh or for a start from a given state; it is the same in each attempt.
    # None for a sync that resumes from the table's own state.
    intent: str | None = None
    # Orders the rows of this sync after those of earlier syncs (see `next_sync_id`); default: the sync id.
    began: int | None = None
    requested_generation: int | None = None  # as in `CommitMetadata`
    # Fields that the schema does not declare are stored in its field `UNDECLARED`.
    keeps_undeclared: bool = False
    # A text that identifies the conditions that records must meet to be stored.
    conditions: str = ""
    # The records correct rows: there are delete markers among them that the catalog does not declare.
    corrects: bool = False
    # Returns the salt of the hashes of suppressed keys, and its fingerprint; None if the writer has none.
    key_salt: Callable[[], tuple[bytes, str]] | None = None
    # A row that comes again with the values that the table has rewrites nothing (`lake.merge.unchanged`).
    skips_unchanged: bool = True
    # Rows that the source has deleted stay (`lake.worker.soft_deletes`).
    keeps_deleted: bool = False
    # The columns that this sync wrote before its source changed the schema of the stream. Its rows have the
    # columns of both schemas, and a column has a type that holds the values of both.
    written: t.StructType | None = None
    # Fields that the schema does not declare become columns of the table.
    adds_undeclared: bool = False
    # Those that the records of this sync had so far: declarations of fields, as in a JSON schema.
    new_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.history and self.partition is not None:
            raise ConfigError(
                f"stream {str(self.stream.id)!r} has partitions and cannot keep a history",
                guidance="remove `history`, or the partitions",
            )
        generation, minimum = self.stream.generation_id, self.stream.minimum_generation_id
        if generation is None or self.stream.sync_id is None or minimum not in (0, generation):
            raise ConfigError(
                f"stream {str(self.stream.id)!r}: generation {generation}, minimum generation {minimum}: "
                "the minimum must be 0, which keeps older generations, or the generation itself",
                guidance="correct `minimum_generation_id` in the catalog, or omit it together with "
                "`generation_id` and `sync_id`",
            )

    @property
    def generation(self) -> int:
        assert self.stream.generation_id is not None
        return self.stream.generation_id

    @property
    def sync_id(self) -> int:
        assert self.stream.sync_id is not None
        return self.stream.sync_id

    def changed(self, stream: ConfiguredStream, stored: t.StructType) -> WriteSpec:
        """Return the specification after the source changed the schema or the key of the stream.

        Args:
            stream: as its tables store it from now on.
            stored: the columns that this sync wrote so far.
        """
        present, stream = self.stream, copy.copy(stream)
        stream.stream = copy.copy(stream.stream)
        stream.stream.is_resumable = present.stream.is_resumable
        stream.generation_id = present.generation_id
        stream.minimum_generation_id = present.minimum_generation_id
        stream.sync_id = present.sync_id
        return replace(self, stream=stream, written=stored)

    @property
    def order(self) -> int:
        return self.sync_id if self.began is None else self.began

    @property
    def truncates(self) -> bool:
        """Return whether older generations are removed once this sync is complete."""
        return bool(self.stream.minimum_generation_id)

    def stored_stream(self, metadata: CommitMetadata) -> StoredStream:
        """Return the stream as its table stores it, with the newest commit of the table."""
        return StoredStream(self.stream, metadata, self.salt, self.written, self.conditions)

    def resumed_refresh(self, metadata: CommitMetadata) -> Refresh | None:
        """Return the unfinished refresh that this sync resumes; None if there is none."""
        refresh = self.stored_stream(metadata).resumable_refresh
        if refresh is None or refresh.truncates != self.truncates:
            return None
        return refresh if refresh.generation == self.generation else None

    @property
    def is_keyed(self) -> bool:
        return self.stream.deduplicates or self.history

    def make_sync_ids(self) -> SyncIds:
        """Return the ids of this sync's rows. The row ids (UUID version 7) sort after those of past syncs."""
        when = f"{self.order & (1 << 48) - 1:012x}"
        noise = f"7{secrets.randbits(12):03x}-{0x8000 | secrets.randbits(14):04x}-"
        return SyncIds(f"{when[:8]}-{when[8:]}-{noise}", self.generation, self.sync_id)


def replaces_schema(spec: WriteSpec, table: Table) -> bool:
    """Return whether a sync leaves no earlier row in the table, so that its columns can be replaced. A
    history keeps earlier rows, and a table with a history keeps its columns."""
    is_new = spec.generation > table.metadata.generation
    keeps = spec.history or spec.partition is not None
    return spec.truncates and is_new and not keeps and table.exists


def plan_columns(
    spec: WriteSpec, table: Table, *, replaces: bool, history: Table | None = None
) -> SchemaPlan:
    """Return the columns to read, and those that the table must have.

    Args:
        history: the history of the table, whose types may be wider: after a restore of the table, if the
            history was turned off for a time, or if a run ended after it had rewritten the history. The table
            gets them, so that its rows fit into the history.

    Raises:
        ConfigError: a change of the stream's schema is not accepted.
    """
    own = stream_part(table.schema)
    names = dict(from_json_schema.read_names(own))
    if spec.written is not None:
        names |= from_json_schema.read_names(spec.written)
    declared = declare_columns(spec.stream.stream.json_schema, own, names, spec.new_fields)
    if spec.written is not None:
        kinds = {column.name: column.kind for column in map(column_of, spec.written.fields)}
        declared = [
            replace(column, kind=union(column.kind, kinds[column.name]))
            if column.name in kinds
            else column
            for column in declared
        ]
    followed = [] if history is None else list(map(column_of, stream_part(history.schema).fields))
    if not table.exists or (replaces and spec.on_schema_change == "evolve"):
        plan = evolution.plan_replacement(own, wider_columns(declared, followed))
        plan = _make_room(plan) if spec.keeps_deleted else plan
    else:
        plan = _plan_present(spec, table, declared, followed)
    return _read_markers(plan) if spec.is_keyed else plan


def _make_room(plan: SchemaPlan) -> SchemaPlan:
    """Return the plan of a table that loses its rows, without a column of the source that no field fills and
    that has the name of the column for deleted rows."""

    def stays(column: Column) -> bool:
        is_unread = isinstance(column.kind, Unread)
        return not is_unread or column.name.casefold() != metadata_columns.ROW_DELETED_AT

    columns = [column for column in plan.columns if stays(column)]
    return replace(plan, columns=columns, schema=t.StructType([c.field for c in columns]))


def _plan_present(
    spec: WriteSpec, table: Table, declared: Sequence[Column], followed: Sequence[Column]
) -> SchemaPlan:
    """Return the plan of a table that keeps its rows.

    One that has none, as after `elt reset --data`, takes types that are not comparable with its own, too. No
    partition does that: a table may have hidden rows of other partitions.
    """
    own, mode = stream_part(table.schema), spec.on_schema_change
    try:
        return evolution.plan(
            own, declared, mode, f"the table {table.uri}", followed, restart=describe_restart(spec)
        )
    except evolution.TypeConflict:
        if spec.partition is not None or table.file_count or table.metadata.hidden:
            raise
    plan = evolution.plan_replacement(own, wider_columns(declared, followed))
    return replace(plan, replaces_columns=True)


def describe_restart(spec: WriteSpec) -> str:
    """Return how a user gets tables that have only rows with the columns that the stream has now.

    A refresh does it for a table alone. It replaces the rows of one partition, and a history keeps the
    earlier versions: each has rows with the former columns.
    """
    if spec.partition is not None:
        return (
            "move the table and its dead letter away: the next sync of each partition reads it from the "
            "beginning"
        )
    if spec.history:
        return (
            "remove the rows and the history (`elt reset CONNECTION STREAM --data --yes`), or move the table "
            "and its companions away: the next sync reads the stream from the beginning"
        )
    return (
        "refresh the stream: it is read from the beginning, and its rows are replaced at the end (`elt sync "
        "CONNECTION STREAM --refresh truncate`, or a policy that overwrites)"
    )


def _read_markers(plan: SchemaPlan) -> SchemaPlan:
    """Return a plan that reads the delete markers that the table has, whatever the catalog says.

    A delete must not become an update to nulls because the catalog no longer declares its marker, nor be
    rejected because the value does not fit a frozen column.
    """
    kinds = {field.name: column_of(field).kind for field in plan.schema.fields}
    columns = [
        replace(
            column,
            kind=kinds[column.name] if isinstance(column.kind, Unread) else column.kind,
            strict=False,
        )
        if column.source in DELETE_MARKERS
        else column
        for column in plan.columns
    ]
    return replace(plan, columns=columns)


def list_unstored_markers(
    spec: WriteSpec, plan: SchemaPlan, metadata: CommitMetadata
) -> list[Column]:
    """Return the delete markers that a merge needs although `freeze` keeps the table without their columns.

    Tombstones store them in separate files. If there are tombstones, the markers are read even if the catalog
    no longer declares them: a tombstone without its marker would become a row again. A correction ends keys.
    """
    stored = {column.source for column in plan.columns}
    if not spec.is_keyed or not stored.isdisjoint(DELETE_MARKERS):
        return []
    declared = from_json_schema.columns(spec.stream.stream.json_schema)
    markers = [column for column in declared if column.source in DELETE_MARKERS]
    has_tombstones = bool(metadata.tombstones or (metadata.refresh and metadata.refresh.tombstones))
    if markers or not (has_tombstones or spec.corrects):
        return markers
    return [Column(name, name, Scalar.TEXT) for name in DELETE_MARKERS]


def list_declared(spec: WriteSpec, table: Table) -> list[Column]:
    """Return the columns of all fields that the schema declares or that were added, whether or not the table
    stores them."""
    own = stream_part(table.schema)
    return declare_columns(
        spec.stream.stream.json_schema, own, from_json_schema.read_names(own), spec.new_fields
    )


def differences(stream: ConfiguredStream, table: Table) -> list[str]:
    """Return the differences between a stream, as its table stores it, and the table's columns, as text."""
    return _compare(stream, stream_part(table.schema)).differences


def columns_of(stream: ConfiguredStream, schema: t.StructType) -> list[Column]:
    """Return the columns of a table, with the names that their fields have in the stream now."""
    return _compare(stream, stream_part(schema)).columns


def _compare(stream: ConfiguredStream, own: t.StructType) -> SchemaPlan:
    declared = declare_columns(stream.stream.json_schema, own, from_json_schema.read_names(own))
    return evolution.plan(own, declared, "freeze")


def key_of(stream: ConfiguredStream, table: Table) -> list[list[str]]:
    """Return a stream's primary key as columns of its table; empty if the table lacks one of them."""
    columns = columns_of(stream, table.schema)
    paths_of_key = [column_path(columns, part) for part in stream.key]
    return [] if None in paths_of_key else [path for path in paths_of_key if path is not None]


def full_schema(
    plan: SchemaPlan, spec: WriteSpec, present: t.StructType | None = None
) -> t.StructType:
    """Return all columns of a table: those of the stream, then those of this project.

    Args:
        present: the columns that the table has, and does not lose.

    Raises:
        ConfigError: as `refuse_own_name`.
    """
    own = [*metadata_columns.METADATA_FIELDS]
    if spec.partition is not None:
        own.append(metadata_columns.PARTITION_FIELD)
    if spec.keeps_deleted:
        refuse_own_name(str(spec.stream.id), plan.schema.names)
    if spec.keeps_deleted or (present is not None and metadata_columns.find_deleted_at(present)):
        own.append(metadata_columns.DELETED_FIELD)
    return t.StructType([*plan.schema.fields, *own])


def refuse_own_name(stream: str, names: Sequence[str]) -> None:
    """Refuse a stream whose deleted rows stay, if one of its columns has the name of the column for them.

    Raises:
        ConfigError: says what to do.
    """
    own = metadata_columns.ROW_DELETED_AT
    for name in names:
        if name.casefold() == own:
            raise ConfigError(
                f"stream {stream!r}: `deletes: keep` needs the column {own!r}, and the stream has a field "
                "of this name, or its table has a column of such a field",
                guidance=f"give the field another name (`rename: {{{name}: NAME}}`), or leave it out "
                f"(`fields: {{exclude: [{name}]}}`); if the table has its column already, refresh the stream "
                "then (`elt sync CONNECTION STREAM --refresh truncate`)",
            )


def stream_part(schema: t.StructType) -> t.StructType:
    """Return the columns of a table without those of this project."""
    own = (*metadata_columns.METADATA_FIELDS, metadata_columns.PARTITION_FIELD, *VALIDITY)
    ours = {*(field.name for field in own), metadata_columns.find_deleted_at(schema)}
    return t.StructType([field for field in schema.fields if field.name not in ours])


def make_declared_schema(
    stream: ConfiguredStream, *, partitioned: bool = False, keeps_deleted: bool = False
) -> t.StructType:
    """Return the columns of a table that is created for the stream now."""
    return metadata_columns.table_schema(
        from_json_schema.columns(stream.stream.json_schema),
        partitioned=partitioned,
        keeps_deleted=keeps_deleted,
    )


def check_columns(stream: ConfiguredStream) -> None:
    """Check that the schema shows the fields, that a policy has the key that it needs, and that key and
    cursor are usable columns.

    Raises:
        ConfigError: names the stream and the field.
    """
    schema = stream.stream.json_schema
    if not schema.get("properties") and (reason := explain_lost_fields(schema)) is not None:
        raise ConfigError(
            f"stream {str(stream.id)!r}: its table would have no column of the source: the schema in the "
            f"catalog does not show the fields: {reason}",
            guidance="declare the fields under `properties` in the catalog, or store them all in one column "
            "with `on_undeclared: keep`",
        )
    if not stream.deduplicates:
        return
    if not stream.key:
        raise ConfigError(
            f"stream {str(stream.id)!r}: {stream.destination_sync_mode} needs a primary key, but the "
            "stream has none",
            guidance="set its `primary_key`, or another `destination_sync_mode`",
        )
    columns = from_json_schema.columns(schema)
    used_fields = [("primary_key", part) for part in stream.key]
    for key, path in [
        *used_fields,
        *([("cursor_field", stream.cursor)] if stream.cursor else []),
    ]:
        _refuse_unusable(columns, str(stream.id), key, path)


def _refuse_unusable(
    columns: Sequence[Column], stream: str, field: str, path: Sequence[str]
) -> None:
    column = column_at(columns, path)
    if column is None:
        raise ConfigError(
            f"stream {stream!r}: {field}: {'.'.join(path)!r} is not a column: the schema in the "
            "catalog does not declare it",
            guidance="name another field, or declare it under `properties` in catalog.json",
        )
    if field == "cursor_field" and (
        isinstance(column.kind, Struct | Array) or column.kind in JSONS
    ):
        raise ConfigError(
            f"stream {stream!r}: {field}: {'.'.join(path)!r} is stored as JSON text or as a structure, "
            "which has no order",
            guidance="name another field, or declare it with one type under `properties` in catalog.json",
        )


def ordering(spec: WriteSpec, plan: SchemaPlan, *, is_replay: bool = False) -> Ordering:
    """Return the key and the cursor as column paths; the key is empty if the rows need none."""
    if not spec.is_keyed:
        return Ordering([])
    check_columns(spec.stream)
    key = [column_path(plan.columns, part) or [] for part in spec.stream.key]
    if spec.partition is not None:
        key.append([metadata_columns.PARTITION])  # two partitions may hold the same key
    cursor = column_path(plan.columns, spec.stream.cursor) or []
    return Ordering(key, cursor, is_replay, keeps_deleted=spec.keeps_deleted)


def column_path(columns: Sequence[Column], field: Sequence[str]) -> list[str] | None:
    """Return the column path of a field, from its path in the source; None if it has no column."""
    columns_on_path = [column_at(columns, field[: depth + 1]) for depth in range(len(field))]
    return (
        None
        if None in columns_on_path
        else [column.name for column in columns_on_path if column is not None]
    )


def column_at(columns: Sequence[Column], field: Sequence[str]) -> Column | None:
    """Return the column of a field, by its path in the source; None if it has no column."""
    column = None
    for name in field:
        column = next((c for c in columns if c.source == name), None)
        if column is None:
            return None
        columns = column.kind.fields if isinstance(column.kind, Struct) else ()
    return column
