"""The plan for one stream of a read: its starting state, its generation and its tables.

`orchestration.planning` plans syncs, and `orchestration.table_jobs` replays; `orchestration` and `elt state`
show states as the source has them (`source_state`), or set them; `shared_start` compares the states of the
plans.

First the conversion of states that a user gives to the STATE messages that a source gets; then `SyncRequest`,
`plan_stream` and `plan_replay`, from whose plans `connection_read` makes a read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.stored_stream import Generations, RefreshMode, next_sync_id
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.pipeline.contracts import refuse_violations
from elt_assets.pipeline.stream import ConnectionStream, read_key_salt, refuse_decimals
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream, StreamId
from elt_assets.protocol.message_rules import stream_of
from elt_assets.protocol.messages import State
from elt_assets.protocol.wire import loads

KINDS = ("STREAM", "LEGACY", "GLOBAL")


def as_message(state: Any, stream: ConfiguredStream) -> dict[str, Any]:
    """Return the STATE message that the source gets for a state that a user gives.

    Args:
        state: a JSON object: a STATE message, with or without its envelope, or only the stream's part of one.

    Raises:
        ConfigError: the state is not valid, or belongs to another stream.
    """
    name = str(stream.id)
    if not isinstance(state, Mapping) or not state:
        raise ConfigError(
            f"the state of stream {name!r} must be a JSON object, not {json.dumps(state, default=str)}",
            guidance='write the state as the source sends it, for example {"updated_at": "2026-01-01"}, or a '
            "whole STATE message; to read from the beginning, use `elt state reset` or `refresh`",
        )
    if state.get("type") == "STATE" and isinstance(state.get("state"), Mapping):
        state = {"type": "LEGACY", **state["state"]}  # a state without a type is LEGACY
    if state.get("type") not in KINDS:
        descriptor = {"name": stream.stream.name}
        if stream.stream.namespace is not None:
            descriptor["namespace"] = stream.stream.namespace
        source_state = {"stream_descriptor": descriptor, "stream_state": dict(state)}
        return {"type": "STREAM", "stream": source_state}
    try:
        message = State.from_json(json.dumps(state))
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the state of stream {name!r} is not a valid STATE message: {error}",
            guidance="write the whole STATE message of the source, or only the content of its `stream_state`",
        ) from error
    if message.type == "GLOBAL" or (message.stream is None and message.data is None):
        raise ConfigError(
            f"the state of stream {name!r} is a STATE message of type {message.type} that "
            "is not the state of one stream",
            guidance="write the content of this stream's `stream_state`, which a GLOBAL message has in "
            "`global.stream_states`; or write a STATE message of type STREAM",
        )
    if stream_of(message, [stream.id]) is None:
        raise ConfigError(
            f"the state belongs to another stream, not to {name!r}",
            guidance="give the state of this stream; its name and its namespace must be those in "
            "catalog.json",
        )
    return dict(state)


def source_state(state: str | None) -> str | None:
    """Return the source's own JSON, without the envelope of the protocol; None if `state` is None."""
    if state is None:
        return None
    message: dict[str, Any] = loads(state)
    if stream := message.get("stream"):
        return json.dumps(stream.get("stream_state"))
    return json.dumps(message.get("data", message))


def refuse_stateless(stream: ConnectionStream) -> None:
    """Check that a sync of the stream can start from a state.

    Raises:
        ConfigError: each sync reads the stream, or each of its partitions, from the beginning.
    """
    landed = stream.make_stored_stream()
    if landed.sync_mode != INCREMENTAL or landed.overwrites:
        what = "each partition of it" if stream.settings.partitions is not None else "it"
        raise ConfigError(
            f"{stream.name} cannot start from a state: each sync reads {what} from the beginning",
            guidance="only streams with `sync_mode: incremental` start from a state; their windows do not",
        )


@dataclass(frozen=True)
class SyncRequest:
    """The options of a sync; at most one of `refresh`, `state` and `is_beside` is set."""

    refresh: RefreshMode = "none"  # what a refresh does with the table's rows
    # starting state that a user gives, in place of the table's own
    state: Mapping[str, Any] | None = None
    is_beside: bool = False  # a past window is read and the table keeps its cursor
    # name of the request for a refresh or a starting state, the same in every attempt
    intent: str | None = None


ORDINARY = SyncRequest()
PARTITIONS = "partitions"
"""Property of a configured stream: the contexts of the partitions to read (see the verb `partitions`)."""


@dataclass
class StreamPlan:
    """The plan for one stream, or one partition of it, in a read of its source."""

    asset: ConnectionStream
    stream: ConfiguredStream  # the source's stream, with generation and sync id
    tables: StreamTables
    state: str | None = None  # its starting state, as JSON
    partition: str | None = None
    keeps_state: bool = False  # the table keeps its state; the states of the read are dropped
    corrects: bool = False  # as in `WriteSpec`
    intent: str | None = None  # as in `SyncRequest`
    continues: bool = False  # an earlier attempt committed part of the request
    version_before: int = -1  # the version of the table before the sync

    @property
    def id(self) -> StreamId:
        return self.stream.id

    def write_spec(self, run_id: str, described: ConfiguredStream | None = None) -> WriteSpec:
        """Return the specification for writing the stream to its tables.

        Args:
            described: the stream as its source described it during the read; default: as planned.

        Raises:
            ConfigError: as `hash_salt`; or the columns violate the contract of the stream.
        """
        configured, settings = described or self.stream, self.asset.settings
        stream = self.asset.make_stored_stream(configured.stream)
        refuse_violations(settings.contract, stream, during_sync=described is not None)
        stream.generation_id = configured.generation_id
        stream.minimum_generation_id = configured.minimum_generation_id
        stream.sync_id = configured.sync_id
        return WriteSpec(
            stream=stream,
            run_id=run_id,
            history=settings.history,
            on_schema_change=settings.on_schema_change,
            partition=self.partition,
            keeps_state=self.keeps_state,
            corrects=self.corrects,
            salt=self.asset.salt_fingerprint,
            selection=self.asset.selection,
            intent=self.intent,
            conditions=self.asset.conditions_text,
            keeps_undeclared=settings.on_undeclared == "keep",
            adds_undeclared=settings.on_undeclared == "add",
            key_salt=read_key_salt,
            keeps_deleted=self.asset.keeps_deleted,
            skips_unchanged=(settings.unchanged or self.asset.connection.unchanged) == "skip",
        )


def plan_stream(
    asset: ConnectionStream,
    tables: StreamTables,
    request: SyncRequest = ORDINARY,
    partition: str | None = None,
    context: Raw | None = None,
) -> StreamPlan:
    """Plan a sync of a stream, or of one of its partitions, that starts from its tables' snapshot.

    Args:
        tables: at the snapshot to start from, with the unfinished commits of an earlier run undone.
        context: the source's context of the partition, if the source lists its partitions itself. The read is
            then limited to this context.

    Raises:
        ConfigError: a refresh is in progress, so no window can be read and no state given; the state is
            not one of this stream; or the table has other partition columns, or would get such decimals.
    """
    tables.main.refuse_repartitioned()
    refuse_decimals(asset.make_stored_stream(), tables.main)
    metadata = tables.metadata
    stored = asset.join_metadata(metadata)
    is_continued = stored.continues(request.intent)
    mode = "none" if is_continued else request.refresh
    start = None if is_continued else request.state
    if (request.is_beside or start is not None) and metadata.refresh is not None:
        # The refresh would lack the rows of the window, or those before the state.
        raise ConfigError(
            f"stream {str(asset.stream.id)!r} is in the middle of a refresh",
            guidance="finish the refresh first: materialise the stream; then read a window or give a state",
        )
    state = stored.find_starting_state(mode)
    if start is not None and not asset.connection.read_together:
        state = json.dumps(as_message(start, asset.stream))
    generations = current_generation(metadata) if request.is_beside else stored.generations(mode)
    stream = _set_generation(asset.stream, metadata, generations)
    if context is not None:
        stream.extra = {**stream.extra, PARTITIONS: Raw(b"[%b]" % bytes(context))}
    return StreamPlan(
        asset=asset,
        stream=stream,
        tables=tables,
        state=None if request.is_beside else state,
        partition=partition,
        keeps_state=request.is_beside,
        intent=request.intent,
        continues=is_continued,
        version_before=tables.main.version,
    )


def plan_replay(
    asset: ConnectionStream, tables: StreamTables, partition: str | None = None
) -> StreamPlan:
    """Plan a sync that adds rows to the generation in a stream's table, without reading its source."""
    stream = _set_generation(asset.stream, tables.metadata, current_generation(tables.metadata))
    return StreamPlan(asset=asset, stream=stream, tables=tables, partition=partition)


def current_generation(metadata: CommitMetadata) -> Generations:
    """Return the generation in the table, to be kept with all its rows."""
    return Generations(max(metadata.generation, 1), 0)


def _set_generation(
    stream: ConfiguredStream, metadata: CommitMetadata, generations: Generations
) -> ConfiguredStream:
    stream = copy.copy(stream)
    stream.generation_id = generations.generation_id
    stream.minimum_generation_id = generations.minimum_generation_id
    stream.sync_id = next_sync_id(metadata)
    return stream
