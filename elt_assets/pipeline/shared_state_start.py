"""The starting state of streams that one process reads together because their source has one state for all.

Each table stores that state. The tables may have different states: a run was killed between their commits,
or it read only some of the streams. A sync starts from the newest state that all tables have had: no table
lacks a row before it, and later rows are read again.

Spec: Airbyte Protocol, State & Checkpointing, V2: GLOBAL, LEGACY, and the migration from them to STREAM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write import state_log
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.protocol.airbyte.catalog import INCREMENTAL, StreamId
from elt_assets.protocol.airbyte.messages import State, StreamState
from elt_assets.protocol.airbyte.states import STREAM, kind_of

Warn = Callable[[str], object]

_REMEDY = 'write a whole STATE message: {"type": "GLOBAL", "global": {…}} or {"type": "LEGACY", "data": {…}}'


def starting_states(reads: Sequence[StreamPlan], warn: Warn) -> list[State]:
    """Return the states that are given to the source: one that covers all streams, or one for each stream.

    Args:
        warn: logs what has to be read again.
    """
    given = {read.id: State.from_json(read.state) for read in reads if read.state is not None}
    shared = {stream for stream, state in given.items() if kind_of(state) != STREAM}
    if not shared:
        return list(given.values())
    if len(shared) < len(given):
        return [*_stream_states(given, shared, warn)]
    state = _common([read for read in reads if read.id in shared])
    if state is None:
        warn(
            "the tables of these streams have no state in common; all of them are read from the beginning"
        )
        return []
    return _without_stateless(state, reads, warn)


def as_shared(given: Any) -> State:
    """Return the state that a user gives for streams that are read together.

    Raises:
        ConfigError: it is not a GLOBAL or LEGACY state.
    """
    body = given.get("state", given) if isinstance(given, Mapping) else None
    if not isinstance(body, Mapping) or not ({"global", "data"} & set(body)):
        raise ConfigError(
            "the state of streams that are read together must cover all of them",
            guidance=_REMEDY,
        )
    try:
        return State.from_json(json.dumps(body))
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the `state` of the run config is not a valid STATE message: {error}", guidance=_REMEDY
        ) from error


def state_of_stream(state: State, stream: StreamId) -> State | None:
    """Return one stream's part of a shared state, as a STREAM state; None if there is no such part."""
    blob = None
    if state.global_ is not None:
        blob = next(
            (
                each.stream_state
                for each in state.global_.stream_states
                if each.stream_descriptor.id == stream
            ),
            None,
        )
    else:
        blob = _legacy_entries(state).get(stream.name)
    if blob is None:
        return None
    descriptor = stream.descriptor
    return State(
        type=STREAM, stream=StreamState(stream_descriptor=descriptor, stream_state=Raw(blob))
    )


def _stream_states(
    given: Mapping[StreamId, State], shared: set[StreamId], warn: Warn
) -> list[State]:
    """Return a STREAM state for each stream, when only some tables still have a shared state."""
    found = []
    for stream, state in given.items():
        part = state_of_stream(state, stream) if stream in shared else state
        if part is None:
            warn(
                f"the shared state has no entry for stream {str(stream)!r}, and other streams now have "
                "states of their own; the stream is read from the beginning"
            )
        else:
            found.append(part)
    return found


def _common(reads: Sequence[StreamPlan]) -> State | None:
    """Return the newest state that all tables have had, so that all have the rows before it."""
    current = {_identity(State.from_json(read.state)) for read in reads if read.state is not None}
    if len(current) == 1:
        return State.from_json(reads[0].state or "")
    first, *others = (_past_states(read.tables.main) for read in reads)
    return next(
        (state for key, state in first.items() if all(key in states for states in others)), None
    )


def _past_states(table: Table) -> dict[bytes, State]:
    """Return the shared states that a table's present generation has had, the newest first."""
    found: dict[bytes, State] = {}
    for each in state_log.history(table):
        if each.metadata.generation != table.metadata.generation or each.metadata.state is None:
            break
        state = State.from_json(each.metadata.state)
        if kind_of(state) == STREAM:
            continue
        key = _identity(state)
        if (
            key in found and next(reversed(found)) != key
        ):  # set by hand to an earlier state: the states between them are not in force
            later = list(found)[list(found).index(key) + 1 :]
            found = {known: one for known, one in found.items() if known not in later}
        found.setdefault(key, state)
    return found


def _identity(state: State) -> bytes:
    """Return the content of a shared state, without its counts."""
    return state.global_.to_json() if state.global_ is not None else bytes(state.data or b"null")


def _without_stateless(state: State, reads: Sequence[StreamPlan], warn: Warn) -> list[State]:
    """Return the state without entries of the streams whose tables have no state.

    These streams are read from the beginning. If one of them is incremental and the state has no entries for
    single streams, no state is returned, and all streams are read from the beginning.
    """
    stateless = {read.id for read in reads if read.state is None}
    if not stateless:
        return [state]
    if state.global_ is not None:
        rest, has_entries = _global_without(state, stateless), bool(state.global_.stream_states)
    else:
        rest, has_entries = (
            _legacy_without(state, stateless),
            bool({read.id.name for read in reads} & set(_legacy_entries(state))),
        )
    lost = [
        read.id for read in reads if read.id in stateless and read.stream.sync_mode == INCREMENTAL
    ]
    if lost and not has_entries:
        warn(
            f"{', '.join(map(repr, map(str, lost)))} must be read from the beginning, and the source's state "
            "has no entries for single streams; all of them are read from the beginning"
        )
        return []
    return [rest]


def _global_without(state: State, streams: set[StreamId]) -> State:
    rest = State.from_json(state.to_json())
    assert rest.global_ is not None
    rest.global_.stream_states = [
        each for each in rest.global_.stream_states if each.stream_descriptor.id not in streams
    ]
    return rest


def _legacy_without(state: State, streams: set[StreamId]) -> State:
    names, blob = {stream.name for stream in streams}, _legacy_entries(state)
    if not names & set(blob):
        return state
    rest = State.from_json(state.to_json())
    rest.data = Raw(msgspec.json.encode({k: v for k, v in blob.items() if k not in names}))
    return rest


def _legacy_entries(state: State) -> dict[str, Raw]:
    """Return the entries of a LEGACY state by name; most sources use the names of streams."""
    try:
        return msgspec.json.decode(bytes(state.data or b"null"), type=dict[str, Raw])
    except msgspec.MsgspecError:
        return {}
