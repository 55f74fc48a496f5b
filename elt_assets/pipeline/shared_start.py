"""The starting state of streams that one process reads together because their source has one state for all.

Used by `connection_read`, when it plans a shared read, and by `orchestration.planning`, to check a given
state.

Each table stores that state. The tables may have different states: a run was killed between their commits,
or it read only some of the streams. A sync starts from the newest state that the tables have had in common:
no table lacks a row before it, and later rows are read again. A stream whose table has none in common with
the others is left out of the state, and is read from the beginning.

States whose entries hold for their streams alone (`independent`) need nothing in common: each table's own
entry is used, and no row is read again.

The table of a stream that has a state of its own, beside the shared one of other streams, stores only that.
The source gets both back.

Tests: `tests/lake/test_shared_states_model.py::test_shared_states_survive_a_kill_at_each_failpoint`,
`tests/lake/test_shared_states_model.py::test_streams_that_are_read_together_equal_their_model`

Spec: Airbyte Protocol, State & Checkpointing, V2: GLOBAL, LEGACY, and the migration from them to STREAM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.protocol import wire
from elt_assets.protocol.catalog import INCREMENTAL, StreamId
from elt_assets.protocol.message_rules import LEGACY, STREAM, kind_of
from elt_assets.protocol.messages import State, StreamState

Warn = Callable[[str], object]
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode

_REMEDY = 'write a whole STATE message: {"type": "GLOBAL", "global": {…}} or {"type": "LEGACY", "data": {…}}'


def choose_starting_states(plans: Sequence[StreamPlan], warn: Warn) -> list[State]:
    """Return the states that are given to the source: one that covers several streams, and one for each
    stream that has its own.

    A stream that resumes a truncating refresh, but cannot start from its state, restarts the refresh.

    Args:
        warn: logs what has to be read again.

    Raises:
        ConfigError: some streams have a LEGACY state without entries for single streams, and others have
            states of their own: no source can be given both.
    """
    states = {plan.id: State.from_json(plan.state) for plan in plans if plan.state is not None}
    own = {stream: state for stream, state in states.items() if kind_of(state) == STREAM}
    shared = [plan for plan in plans if plan.id in states and plan.id not in own]
    if not shared:
        return list(own.values())
    if own and not any(_has_shared_part(states[plan.id]) for plan in shared):
        return _stream_states(states, plans, warn)
    if _are_independent([states[plan.id] for plan in shared]):
        for plan in plans:
            if plan.id not in states:
                _restart_refresh(plan)
        return [_combine_entries(states, shared, plans), *own.values()]
    common, together = _newest_in_common(shared)
    restarted = [plan for plan in plans if plan.id not in own and plan not in together]
    if len(together) < len(shared):
        names = ", ".join(repr(str(plan.id)) for plan in shared if plan not in together)
        warn(
            f"the tables of {names} have no state in common with those of the other streams; they are read "
            "from the beginning, and the other streams continue"
        )
    common_states = _drop_entries(common, restarted, plans, warn)
    for plan in restarted if common_states else [*shared, *restarted]:
        _restart_refresh(plan)
    return [*common_states, *own.values()]


def as_shared(state: Any) -> State:
    """Return the state that a user gives for streams that are read together.

    Raises:
        ConfigError: it is not a GLOBAL or LEGACY state.
    """
    body = state.get("state", state) if isinstance(state, Mapping) else None
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
    if state.global_ is None:
        blobs = [_legacy_entries(state).get(stream.name)]
    else:
        entries = state.global_.stream_states
        blobs = [entry.stream_state for entry in entries if entry.stream_descriptor.id == stream]
    if not blobs or blobs[0] is None:
        return None
    part = StreamState(stream_descriptor=stream.descriptor, stream_state=Raw(blobs[0]))
    return State(type=STREAM, stream=part)


def _has_shared_part(state: State) -> bool:
    """Return whether a GLOBAL state is more than the states of its streams."""
    shared = None if state.global_ is None else state.global_.shared_state
    return shared is not None and bytes(shared).strip() not in (b"null", b"{}")


def _stream_states(
    states: Mapping[StreamId, State], plans: Sequence[StreamPlan], warn: Warn
) -> list[State]:
    """Return a STREAM state for each stream, when only some tables still have a shared state."""
    _refuse_opaque(states, [plan.id for plan in plans])
    stream_states = []
    for stream, state in states.items():
        part = state if kind_of(state) == STREAM else state_of_stream(state, stream)
        if part is None:
            warn(
                f"the shared state has no entry for stream {str(stream)!r}, and other streams now have "
                "states of their own; the stream is read from the beginning"
            )
        else:
            stream_states.append(part)
    return stream_states


def _refuse_opaque(states: Mapping[StreamId, State], streams: Sequence[StreamId]) -> None:
    """Raise ConfigError for a LEGACY state that is not empty and has no entry for any of the streams."""
    names = {stream.name for stream in streams}
    opaque = [
        stream
        for stream, state in states.items()
        if kind_of(state) == LEGACY
        and bytes(state.data or b"null").strip() not in (b"null", b"{}")
        and not names & set(_legacy_entries(state))
    ]
    if opaque:
        listed = ", ".join(repr(str(stream)) for stream in opaque)
        raise ConfigError(
            f"the state of {listed} is a LEGACY state without entries for single streams, and other streams "
            "of the connection have states of their own: the source cannot be given both",
            guidance="reset these streams with `elt state reset`, so that they are read from the beginning; "
            "or give the run a whole STATE message as `state`",
        )


def _newest_in_common(plans: Sequence[StreamPlan]) -> tuple[State, list[StreamPlan]]:
    """Return the newest state that all tables have had, or else as many as possible; and their streams.

    Of two groups of equal size, the one with the older table is chosen.
    """
    current = State.from_json(plans[0].state or "null")
    if len({_identity(State.from_json(plan.state or "null")) for plan in plans}) == 1:
        return current, list(plans)
    pasts = [(plan, _past_states(plan)) for plan in plans]
    oldest = {plan.id: min((time for _, time in past.values()), default=0) for plan, past in pasts}
    best, common, together = (0, 0.0), current, list(plans)
    for _, past in pasts:
        for key, (state, _) in past.items():  # the newest first
            group = [plan for plan, states in pasts if key in states]
            if len(group) == len(plans):
                return state, group
            rank = (len(group), -min(oldest[plan.id] for plan in group))
            if rank > best:
                best, common, together = rank, state, group
    return common, together


def _past_states(plan: StreamPlan) -> dict[bytes, tuple[State, float]]:
    """Return the shared states that cover no row which the table lacks, the newest first, with their times.

    These are the states that the table has had, also before a completed refresh: it read everything again
    later. A table whose state was reset is to be read from the beginning, so older states do not count. Of a
    refresh in progress only its own states count.
    """
    past: dict[bytes, tuple[State, float]] = {}
    for commit in plan.tables.main.past_commits():
        refresh = commit.metadata.refresh if _resumes_refresh(plan) else commit.metadata
        if refresh is None or refresh.state is None:
            break
        state = State.from_json(refresh.state)
        if kind_of(state) == STREAM:
            continue
        key = _identity(state)
        if key in past:
            # The state was set by hand to an earlier one: the states between the two are not in force.
            keys = list(past)
            for later_key in keys[keys.index(key) + 1 :]:
                del past[later_key]
        else:
            past[key] = (state, commit.time.timestamp())
    return past


def _are_independent(states: Sequence[State]) -> bool:
    """Return whether the entries of different states may be combined."""
    parts = {
        bytes(state.global_.shared_state or b"null")
        for state in states
        if state.global_ is not None and state.is_independent
    }
    return len(parts) == 1 and all(state.is_independent for state in states)


def _combine_entries(
    states: Mapping[StreamId, State], shared: Sequence[StreamPlan], plans: Sequence[StreamPlan]
) -> State:
    """Return a state with the entry of each stream from its own table, and those of streams not read.

    A stream that has no entry in its own table is read from the beginning.
    """
    entries: dict[StreamId, StreamState] = {}
    for plan in shared:
        entries |= _entries_by_stream(states[plan.id])
    for plan in plans:
        entries.pop(plan.id, None)
    for plan in shared:
        entry = _entries_by_stream(states[plan.id]).get(plan.id)
        if entry is not None:
            entries[plan.id] = entry
    combined = State.from_json(states[shared[0].id].to_json())
    assert combined.global_ is not None
    combined.global_.stream_states = list(entries.values())
    return combined


def _entries_by_stream(state: State) -> dict[StreamId, StreamState]:
    assert state.global_ is not None
    return {entry.stream_descriptor.id: entry for entry in state.global_.stream_states}


def _identity(state: State) -> bytes:
    """Return the content of a shared state, without its counts."""
    return state.global_.to_json() if state.global_ is not None else bytes(state.data or b"null")


def _drop_entries(
    state: State, restarted: Sequence[StreamPlan], plans: Sequence[StreamPlan], warn: Warn
) -> list[State]:
    """Return the state without entries of the streams that are read from the beginning.

    If one of them is incremental and the state has no entries for single streams, no state is returned, and
    all streams are read from the beginning.
    """
    streams = {plan.id for plan in restarted}
    if not streams:
        return [state]
    if state.global_ is not None:
        rest = _drop_global_entries(state, streams)
        has_entries = bool(state.global_.stream_states)
    else:
        rest = _drop_legacy_entries(state, streams)
        has_entries = bool({plan.id.name for plan in plans} & set(_legacy_entries(state)))
    lost = [plan.id for plan in restarted if plan.stream.sync_mode == INCREMENTAL]
    if lost and not has_entries:
        warn(
            f"{', '.join(map(repr, map(str, lost)))} must be read from the beginning, and the source's state "
            "has no entries for single streams; all of them are read from the beginning"
        )
        return []
    return [rest]


def _resumes_refresh(plan: StreamPlan) -> bool:
    refresh = plan.tables.metadata.refresh
    return refresh is not None and refresh.generation == plan.stream.generation_id


def _restart_refresh(plan: StreamPlan) -> None:
    """Plan a new generation instead of the rest of a truncating refresh that is not given its state: else
    the rows that it has would be in it twice."""
    stream = plan.stream
    if _resumes_refresh(plan) and stream.minimum_generation_id:
        stream.generation_id = stream.minimum_generation_id = (stream.generation_id or 0) + 1


def _drop_global_entries(state: State, streams: set[StreamId]) -> State:
    rest = State.from_json(state.to_json())
    assert rest.global_ is not None
    rest.global_.stream_states = [
        entry for entry in rest.global_.stream_states if entry.stream_descriptor.id not in streams
    ]
    return rest


def _drop_legacy_entries(state: State, streams: set[StreamId]) -> State:
    names, blob = {stream.name for stream in streams}, _legacy_entries(state)
    if not names & set(blob):
        return state
    rest = State.from_json(state.to_json())
    rest.data = Raw(msgspec.json.encode({k: v for k, v in blob.items() if k not in names}))
    return rest


def _legacy_entries(state: State) -> dict[str, Raw]:
    """Return the entries of a LEGACY state by name; most sources use the names of streams."""
    try:
        return wire.read(_decode_object, bytes(state.data or b"null"))
    except msgspec.MsgspecError:
        return {}
