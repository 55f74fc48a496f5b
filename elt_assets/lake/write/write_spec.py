"""How a stream lands: its policy, its generation, and the columns that its table gets."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.dedup import Ordering
from elt_assets.lake.merge.history import VALIDITY
from elt_assets.lake.parse.conform import Stamp
from elt_assets.lake.schema import evolution, from_json_schema, metadata_columns
from elt_assets.lake.schema.evolution import Plan
from elt_assets.lake.schema.logical_types import JSON_TEXT, SOURCE, Column, Scalar
from elt_assets.protocol.airbyte.catalog import DELETE_MARKERS, ConfiguredStream
from elt_assets.sync.selection.schema_changes import OnSchemaChange

RefreshMode = Literal["none", "retain", "truncate"]


@dataclass(frozen=True)
class Generations:
    """spec: ConfiguredAirbyteStream as of 0.9. A minimum of 0 keeps all older generations."""

    generation_id: int
    minimum_generation_id: int


def resumable_refresh(
    stream: ConfiguredStream, head: CommitMetadata, salt: str | None = None
) -> Refresh | None:
    """The refresh that a sync of this stream goes on with, if its source can.

    Rows that are being built must be of the same making; where they are not, it begins anew.
    """
    found = head.refresh
    if found is None or not stream.resumable:
        return None
    if found.truncates:
        return found if found.written_as == refresh_fingerprint(stream, salt) else None
    return None if stream.overwrites else found


def has_incompatible_refresh(
    stream: ConfiguredStream, generation: int | None, head: CommitMetadata, salt: str | None = None
) -> bool:
    """Whether a truncating refresh of this very generation was begun, and cannot be gone on with as the
    stream is now: what is committed of it would be lost."""
    found = head.refresh
    if found is None or not found.truncates or found.generation != generation:
        return False
    return resumable_refresh(stream, head, salt) is None


def must_restart(stream: ConfiguredStream, head: CommitMetadata, salt: str | None = None) -> bool:
    """Whether a truncating refresh was begun, and is still wanted, though not what there is of it."""
    found = head.refresh
    if found is None or not found.truncates or not stream.resumable:
        return False
    is_same_policy = found.written_as.startswith(f"{stream.destination_sync_mode}:")
    return is_same_policy and resumable_refresh(stream, head, salt) is None


def refresh_fingerprint(stream: ConfiguredStream, salt: str | None) -> str:
    """Tells what the files of a refresh are made by: the policy, then, hashed, the schema as it lands, key,
    cursor and salt."""
    cursor = stream.cursor if stream.deduplicates else None
    text = json.dumps([stream.stream.json_schema, stream.key, cursor, salt], sort_keys=True)
    return f"{stream.destination_sync_mode}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def generations(
    stream: ConfiguredStream,
    head: CommitMetadata,
    refresh: RefreshMode = "none",
    salt: str | None = None,
) -> Generations:
    """The generation that a sync of this stream writes; one that was begun is gone on with.

    Args:
        stream: as it lands.
    """
    found = resumable_refresh(stream, head, salt) if refresh == "none" else None
    if found is not None:
        return Generations(found.generation, found.generation if found.truncates else 0)
    if stream.overwrites or refresh == "truncate" or must_restart(stream, head, salt):
        last = head.generation if head.refresh is None else head.refresh.generation
        return Generations(max(last, head.generation) + 1, max(last, head.generation) + 1)
    if refresh == "retain":
        return Generations(head.generation + 1, 0)
    return Generations(max(head.generation, 1), 0)


def starting_state(
    stream: ConfiguredStream,
    head: CommitMetadata,
    refresh: RefreshMode = "none",
    salt: str | None = None,
) -> str | None:
    """The state that the source is given: JSON as received; None to read from the beginning.

    Args:
        stream: as it lands.
    """
    if refresh != "none" or must_restart(stream, head, salt):
        return None
    found = resumable_refresh(stream, head, salt)
    if found is not None:
        return found.state
    # An incremental stream that overwrites is one partition, whose rows each sync replaces.
    return head.state if stream.sync_mode == "incremental" and not stream.overwrites else None


def continues(
    stream: ConfiguredStream, head: CommitMetadata, intent: str | None, salt: str | None = None
) -> bool:
    """Return whether an earlier attempt committed part of what a run asks for, so that this attempt goes on
    from there: it must neither begin the refresh again nor start from the given state again.

    Args:
        stream: as it lands.
        intent: names the request (see `WriteSpec.intent`).
    """
    if intent is None or head.intent != intent:
        return False
    has_cursor = stream.sync_mode == "incremental" and not stream.overwrites
    return has_cursor or resumable_refresh(stream, head, salt) is not None


def next_sync_id(head: CommitMetadata) -> int:
    """Epoch milliseconds: now, or, if the clock was set back, after all earlier syncs of the table."""
    return max(int(time.time() * 1000), head.sync_id + 1)


@dataclass(frozen=True)
class WriteSpec:
    """One sync of one stream, as its tables are to get it.

    `stream`: its schema as it lands, its generation and sync id set. `partition`: the Dagster partition
    whose rows these are. `keeps_state`: the source is read beside its cursor, which stays where it is.
    `salt`: the fingerprint of what fields are hashed with; `selection`: of which fields are stored, and how.
    `intent`: names a request for a refresh or for a start from a given state, the same in each attempt at
    it; None for a sync that goes on from the table's own state.
    `began`: orders the rows of this sync after those of earlier ones (see `next_sync_id`); default its
    sync id.
    `requested_generation`: as of `CommitMetadata`.
    `keeps_undeclared`: fields that the schema does not declare are stored in its field `UNDECLARED`.
    """

    stream: ConfiguredStream
    run_id: str
    history: bool = False
    on_schema_change: OnSchemaChange = "evolve"
    partition: str | None = None
    keeps_state: bool = False
    salt: str | None = None
    selection: str | None = None
    intent: str | None = None
    began: int | None = None
    requested_generation: int | None = None
    keeps_undeclared: bool = False

    def __post_init__(self) -> None:
        if self.history and self.partition is not None:
            raise ConfigError(
                f"stream {str(self.stream.id)!r} has partitions, and so can keep no history",
                guidance="leave out `history`, or the partitions",
            )
        generation, minimum = self.stream.generation_id, self.stream.minimum_generation_id
        if generation is None or self.stream.sync_id is None or minimum not in (0, generation):
            raise ConfigError(
                f"stream {str(self.stream.id)!r}: generation {generation}, minimum generation {minimum}: "
                "the minimum must be 0, to keep older generations, or the generation itself"
            )

    @property
    def generation(self) -> int:
        assert self.stream.generation_id is not None
        return self.stream.generation_id

    @property
    def sync_id(self) -> int:
        assert self.stream.sync_id is not None
        return self.stream.sync_id

    @property
    def order(self) -> int:
        return self.sync_id if self.began is None else self.began

    @property
    def truncates(self) -> bool:
        """Whether older generations go once this sync is complete."""
        return bool(self.stream.minimum_generation_id)

    @property
    def is_keyed(self) -> bool:
        return self.stream.deduplicates or self.history

    def stamp(self) -> Stamp:
        """Of this sync's rows. Their ids (UUID, version 7) sort after those of an earlier sync."""
        when = f"{self.order & (1 << 48) - 1:012x}"
        noise = f"7{secrets.randbits(12):03x}-{0x8000 | secrets.randbits(14):04x}-"
        return Stamp(f"{when[:8]}-{when[8:]}-{noise}", self.generation, self.sync_id)


def replaces_schema(spec: WriteSpec, table: Table) -> bool:
    """Whether a sync ends with no former row in the table, so that its columns may be others. A history
    keeps former rows, and its table the columns that it has."""
    is_new = spec.generation > table.head.generation
    keeps = spec.history or spec.partition is not None
    return spec.truncates and is_new and not keeps and table.exists


def plan_columns(spec: WriteSpec, table: Table, *, replaces: bool) -> Plan:
    """The columns to read, and those that the table must have.

    Raises:
        ConfigError: the stream's schema has changed in a way that is not accepted.
    """
    own = stream_part(table.schema)
    declared = from_json_schema.columns(
        spec.stream.stream.json_schema, from_json_schema.known_names(own)
    )
    if not table.exists or (replaces and spec.on_schema_change == "evolve"):
        return evolution.replacing(own, declared)
    return evolution.plan(own, declared, spec.on_schema_change, f"the table {table.uri}")


def unstored_markers(spec: WriteSpec, plan: Plan, head: CommitMetadata) -> list[Column]:
    """The delete markers that a merge needs although the table has no column for them, under `freeze`.

    Tombstones keep them in files of their own. Where there are tombstones, markers are read even if the
    catalog no longer has them: a tombstone without its marker would be a row again.
    """
    stored = {column.source for column in plan.columns}
    if not spec.is_keyed or not stored.isdisjoint(DELETE_MARKERS):
        return []
    declared = from_json_schema.columns(spec.stream.stream.json_schema)
    found = [column for column in declared if column.source in DELETE_MARKERS]
    has_tombstones = bool(head.tombstones or (head.refresh and head.refresh.tombstones))
    if found or not has_tombstones:
        return found
    return [Column(name, name, Scalar.TEXT) for name in DELETE_MARKERS]


def differences(stream: ConfiguredStream, table: Table) -> list[str]:
    """How a stream, as it lands, differs from the columns of its table, in words."""
    own = stream_part(table.schema)
    declared = from_json_schema.columns(
        stream.stream.json_schema, from_json_schema.known_names(own)
    )
    return evolution.plan(own, declared, "freeze").told


def key_of(stream: ConfiguredStream, table: Table) -> list[list[str]]:
    """A stream's primary key as columns of its table; empty if one of them is not there."""
    schema = stream_part(table.schema)
    found = [column_path(schema, part) for part in stream.key]
    return [] if None in found else [path for path in found if path is not None]


def full_schema(plan: Plan, spec: WriteSpec) -> t.StructType:
    """A table's whole schema: the stream's columns, then this project's."""
    partition = [metadata_columns.PARTITION_FIELD] if spec.partition is not None else []
    return t.StructType([*plan.schema.fields, *metadata_columns.METADATA_FIELDS, *partition])


def stream_part(schema: t.StructType) -> t.StructType:
    """A table's columns without this project's."""
    own = (*metadata_columns.METADATA_FIELDS, metadata_columns.PARTITION_FIELD, *VALIDITY)
    ours = {field.name for field in own}
    return t.StructType([field for field in schema.fields if field.name not in ours])


def declared_schema(stream: ConfiguredStream, *, partitioned: bool = False) -> t.StructType:
    """The columns of a table that is made for the stream now."""
    return metadata_columns.table_schema(
        from_json_schema.columns(stream.stream.json_schema), partitioned=partitioned
    )


def check_columns(stream: ConfiguredStream) -> None:
    """Refuse a policy without the key that it needs, and a key or cursor that is no column.

    Raises:
        ConfigError: names the stream and the field.
    """
    schema = declared_schema(stream)
    if not stream.deduplicates:
        return
    if not stream.key:
        raise ConfigError(
            f"stream {str(stream.id)!r}: {stream.destination_sync_mode} needs a primary key, and the "
            "stream has none",
            guidance="give it a `primary_key`, or another `destination_sync_mode`",
        )
    wanted = [("primary_key", part) for part in stream.key]
    for field, path in [*wanted, *([("cursor_field", stream.cursor)] if stream.cursor else [])]:
        _refuse_unfit(schema, str(stream.id), field, path)


def _refuse_unfit(schema: t.StructType, stream: str, field: str, path: Sequence[str]) -> None:
    found = column_at(schema, path)
    if found is None:
        raise ConfigError(
            f"stream {stream!r}: {field}: {'.'.join(path)!r} is no column: the schema in the "
            "catalog does not describe it",
            guidance="name another field, or describe it under `properties` in catalog.json",
        )
    unordered = (
        isinstance(found.dataType, t.StructType | t.ArrayType) or JSON_TEXT in found.metadata
    )
    if field == "cursor_field" and unordered:
        raise ConfigError(
            f"stream {stream!r}: {field}: {'.'.join(path)!r} lands as JSON text or a structure, which "
            "has no order",
            guidance="name another field, or give it one type under `properties` in catalog.json",
        )


def ordering(spec: WriteSpec, plan: Plan, *, late: bool = False) -> Ordering:
    """The key and the cursor as column paths; no key where rows need none."""
    if not spec.is_keyed:
        return Ordering([])
    check_columns(spec.stream)
    key = [column_path(plan.schema, part) or [] for part in spec.stream.key]
    if spec.partition is not None:
        key.append([metadata_columns.PARTITION])  # two partitions may hold the same key
    return Ordering(key, column_path(plan.schema, spec.stream.cursor) or [], late)


def column_path(schema: t.StructType, field: Sequence[str]) -> list[str] | None:
    """A field's path in the source as the column's in the table."""
    found = [column_at(schema, field[: depth + 1]) for depth in range(len(field))]
    return None if None in found else [column.name for column in found if column is not None]


def column_at(schema: t.StructType, field: Sequence[str]) -> t.StructField | None:
    """The column of a field, by its path in the source."""
    kind: t.DataType = schema
    column = None
    for name in field:
        columns = kind.fields if isinstance(kind, t.StructType) else []
        column = next((c for c in columns if c.metadata.get(SOURCE, c.name) == name), None)
        if column is None:
            return None
        kind = column.dataType
    return column
