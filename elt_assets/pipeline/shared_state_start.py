"""Streams that one process reads together, since their source keeps one state for all of them.

Each table carries that state, and may stand at another one than its neighbours: a run was killed between
their commits, or read some of the streams alone. A sync begins at the newest state that all of them
have: up to there nobody lacks a row, and what some have beyond it is read again.

spec: Airbyte Protocol, State & Checkpointing, V2: GLOBAL, LEGACY, and the way from them to STREAM.
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


def starting_states(reads: Sequence[StreamPlan], warn: Warn) -> list[State]:
    """What the source is given: a state that holds for all of the streams.

    Args:
        warn: is told what has to be read again.
    """
    given = {read.id: State.from_json(read.state) for read in reads if read.state is not None}
    shared = {stream for stream, state in given.items() if kind_of(state) != STREAM}
    if not shared:
        return list(given.values())
    if len(shared) < len(given):
        return [*_moved(given, shared, warn)]
    state = _common([read for read in reads if read.id in shared])
    if state is None:
        warn(
            "the tables of these streams have no state in common; all of them are read from the beginning"
        )
        return []
    return _without(state, reads, warn)


def as_shared(given: Any) -> State:
    """A state as people write it for streams that are read together.

    Raises:
        ConfigError: it is no GLOBAL or LEGACY state.
    """
    body = given.get("state", given) if isinstance(given, Mapping) else None
    if not isinstance(body, Mapping) or not ({"global", "data"} & set(body)):
        raise ConfigError(
            "the state of streams that are read together is one of all of them",
            guidance='write a whole STATE message: {"type": "GLOBAL", "global": {…}} or '
            '{"type": "LEGACY", "data": {…}}',
        )
    try:
        return State.from_json(json.dumps(body))
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the given state is no STATE message: {error}") from error


def part_of(state: State, stream: StreamId) -> State | None:
    """What a shared state says of one stream, as a STREAM state; None if it says nothing of it alone."""
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
        blob = _keyed(state).get(stream.name)
    if blob is None:
        return None
    descriptor = stream.descriptor
    return State(
        type=STREAM, stream=StreamState(stream_descriptor=descriptor, stream_state=Raw(blob))
    )


def _moved(given: Mapping[StreamId, State], shared: set[StreamId], warn: Warn) -> list[State]:
    """The states of streams, some of which have moved from a shared state to their own."""
    found = []
    for stream, state in given.items():
        part = part_of(state, stream) if stream in shared else state
        if part is None:
            warn(
                f"the state of {str(stream)!r} is one of all streams that says nothing of it alone, and "
                "others have states of their own by now; it is read from the beginning"
            )
        else:
            found.append(part)
    return found


def _common(reads: Sequence[StreamPlan]) -> State | None:
    """The newest state that all tables have had, with all that came before it."""
    current = {_identity(State.from_json(read.state)) for read in reads if read.state is not None}
    if len(current) == 1:
        return State.from_json(reads[0].state or "")
    first, *others = (_chain(read.tables.main) for read in reads)
    return next((state for key, state in first.items() if all(key in it for it in others)), None)


def _chain(table: Table) -> dict[bytes, State]:
    """The shared states that a table's present generation has had, the newest first."""
    found: dict[bytes, State] = {}
    for each in state_log.history(table):
        if each.head.generation != table.head.generation or each.head.state is None:
            break
        state = State.from_json(each.head.state)
        if kind_of(state) == STREAM:
            continue
        key = _identity(state)
        if (
            key in found and next(reversed(found)) != key
        ):  # set back to by hand: what lies between was taken back
            later = list(found)[list(found).index(key) + 1 :]
            found = {known: one for known, one in found.items() if known not in later}
        found.setdefault(key, state)
    return found


def _identity(state: State) -> bytes:
    """Where a source stands; counts beside it do not matter."""
    return state.global_.to_json() if state.global_ is not None else bytes(state.data or b"null")


def _without(state: State, reads: Sequence[StreamPlan], warn: Warn) -> list[State]:
    """The state, so that those of the streams that have none are read from the beginning."""
    anew = {read.id for read in reads if read.state is None}
    if not anew:
        return [state]
    if state.global_ is not None:
        rest, told = _global_without(state, anew), bool(state.global_.stream_states)
    else:
        rest, told = (
            _legacy_without(state, anew),
            bool({read.id.name for read in reads} & set(_keyed(state))),
        )
    lost = [read.id for read in reads if read.id in anew and read.stream.sync_mode == INCREMENTAL]
    if lost and not told:
        warn(
            f"{', '.join(map(repr, map(str, lost)))} must be read from the beginning, and the source's state "
            "says nothing of single streams; all of them are read from the beginning"
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
    names, blob = {stream.name for stream in streams}, _keyed(state)
    if not names & set(blob):
        return state
    rest = State.from_json(state.to_json())
    rest.data = Raw(msgspec.json.encode({k: v for k, v in blob.items() if k not in names}))
    return rest


def _keyed(state: State) -> dict[str, Raw]:
    """A LEGACY state's parts by their names; most sources key it by stream."""
    try:
        return msgspec.json.decode(bytes(state.data or b"null"), type=dict[str, Raw])
    except msgspec.MsgspecError:
        return {}
