"""The plan for one stream of a read: where it starts, which generation it writes, and how it lands."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import (
    Generations,
    RefreshMode,
    WriteSpec,
    continues,
    generations,
    next_sync_id,
    starting_state,
)
from elt_assets.pipeline.connection_stream import ConnectionStream
from elt_assets.pipeline.given_state import as_message
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId


@dataclass(frozen=True)
class SyncRequest:
    """How a sync differs from an ordinary one; at most one of `refresh`, `state` and `is_beside`.

    `refresh`: what a refresh does with the table's rows. `state`: to start from in place of the table's own,
    as people write it. `is_beside`: a past window is read, and the cursor stays where it is. `intent`: names
    the request for a refresh or from a state, the same in every attempt at it.
    """

    refresh: RefreshMode = "none"
    state: Mapping[str, Any] | None = None
    is_beside: bool = False
    intent: str | None = None


ORDINARY = SyncRequest()


@dataclass
class StreamPlan:
    """One stream, or one partition of it, in a read of its source.

    `stream`: as the source has it, its generation and sync id set. `state`: what the source is given of it,
    JSON. `keeps_state`: its states are not kept, since it is read beside its cursor. `intent`: as of
    `SyncRequest`; `continues`: whether an earlier attempt at it committed some of it. `files_before`: paths
    of the table's files before it.
    """

    of: ConnectionStream
    stream: ConfiguredStream
    tables: StreamTables
    state: str | None = None
    partition: str | None = None
    keeps_state: bool = False
    intent: str | None = None
    continues: bool = False
    files_before: frozenset[str] = frozenset()

    @property
    def id(self) -> StreamId:
        return self.stream.id

    def write_spec(self, run_id: str, described: ConfiguredStream | None = None) -> WriteSpec:
        """How the stream's tables get it.

        Args:
            described: how it is configured now, where its source said so in the middle of the read.

        Raises:
            ConfigError: as `paths.hash_salt`.
        """
        told, wanted = described or self.stream, self.of.wanted
        stream = self.of.landed(told.stream)
        stream.generation_id = told.generation_id
        stream.minimum_generation_id = told.minimum_generation_id
        stream.sync_id = told.sync_id
        return WriteSpec(
            stream=stream,
            run_id=run_id,
            history=wanted.history,
            on_schema_change=wanted.on_schema_change,
            partition=self.partition,
            keeps_state=self.keeps_state,
            salt=self.of.salt_fingerprint,
            selection=self.of.selection,
            intent=self.intent,
            keeps_undeclared=wanted.on_undeclared == "keep",
        )


def plan_stream(
    of: ConnectionStream,
    tables: StreamTables,
    request: SyncRequest = ORDINARY,
    partition: str | None = None,
) -> StreamPlan:
    """Plan a sync of a stream, or of one of its partitions, from where its tables stand.

    Args:
        tables: at the snapshot to start from, what a run that died left in them undone.

    Raises:
        ConfigError: a refresh is under way that a window or a given state does not go with; the state is none
            of this stream.
    """
    as_landed, head, salt = of.landed(), tables.head, of.salt_fingerprint
    is_continued = continues(as_landed, head, request.intent, salt)
    mode = "none" if is_continued else request.refresh
    given = None if is_continued else request.state
    if request.is_beside or given is not None:
        _refuse_refreshing(of, head)
    state = starting_state(as_landed, head, mode, salt)
    if given is not None and not of.connection.read_together:
        state = json.dumps(as_message(given, of.stream))
    written = generations(as_landed, head, mode, salt)
    return StreamPlan(
        of=of,
        stream=_numbered(of.stream, head, present(head) if request.is_beside else written),
        tables=tables,
        state=None if request.is_beside else state,
        partition=partition,
        keeps_state=request.is_beside,
        intent=request.intent,
        continues=is_continued,
        files_before=frozenset(file.path for file in tables.main.files),
    )


def plan_replay(
    of: ConnectionStream, tables: StreamTables, partition: str | None = None
) -> StreamPlan:
    """Plan to add rows to the generation that a stream's table holds, without reading its source."""
    stream = _numbered(of.stream, tables.head, present(tables.head))
    return StreamPlan(of=of, stream=stream, tables=tables, partition=partition)


def present(head: CommitMetadata) -> Generations:
    """The generation that the table holds, whose rows all stay."""
    return Generations(max(head.generation, 1), 0)


def _numbered(
    stream: ConfiguredStream, head: CommitMetadata, written: Generations
) -> ConfiguredStream:
    stream = copy.copy(stream)
    stream.generation_id = written.generation_id
    stream.minimum_generation_id = written.minimum_generation_id
    stream.sync_id = next_sync_id(head)
    return stream


def _refuse_refreshing(of: ConnectionStream, head: CommitMetadata) -> None:
    """What is read beside a refresh, or from elsewhere, would be a hole in it."""
    if head.refresh is not None:
        raise ConfigError(
            f"stream {str(of.stream.id)!r} is in the middle of a refresh",
            guidance="let it finish (materialise the stream as ever); then read a window, or from a state",
        )
