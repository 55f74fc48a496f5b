"""Scopes: streams that share their states, and what one read of them yielded."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from connectors.testing.comparison import Difference, Identity
from connectors.testing.connector import Run
from connectors.testing.protocols.protocol import SeenRecord
from elt_assets.protocol.catalog import (
    FULL_REFRESH,
    INCREMENTAL,
    AirbyteStream,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.message_rules import LEGACY, STREAM, kind_of
from elt_assets.protocol.messages import State


@dataclass(frozen=True)
class SeenState:
    """A state of a scope.

    Args:
        states: what a platform has stored after it: itself, and the last states of other streams.
        line: its line; `records_before`: the number of records of the scope before it.
    """

    states: Sequence[State]
    line: int
    records_before: int


@dataclass(frozen=True)
class Scope:
    """Streams that share their states, and what a whole read of them yielded.

    Args:
        streams: the streams; several only if the source has one state for all of them.
        run: the process of the whole read.
        records: all records of these streams; `states`: all states.
    """

    streams: Sequence[ConfiguredStream]
    run: Run
    records: Sequence[SeenRecord]
    states: Sequence[SeenState]

    @property
    def name(self) -> str:
        return ", ".join(str(stream.id) for stream in self.streams)

    @property
    def ends_with_state(self) -> bool:
        """Return whether no record of a stream that is read incrementally comes after the last state."""
        return bool(self.states) and self.uncovered_from is None

    @property
    def uncovered_from(self) -> int | None:
        """The line of the first record after the last state, of a stream that is read incrementally; None if
        there is none."""
        tracked = {stream.id for stream in self.streams if stream.sync_mode == INCREMENTAL}
        last = self.states[-1].line if self.states else 0
        lines = (
            record.line
            for record in self.records
            if record.stream in tracked and record.line > last
        )
        return next(lines, None)

    def identity(self, ignored: Sequence[str]) -> Identity:
        return Identity({stream.id: stream.key for stream in self.streams}, ignored)


@dataclass(frozen=True)
class Cut:
    """A read that was cut at a state and resumed from it.

    Args:
        number: the number of the state in the scope, from 1; `line`: its line in the whole read.
        run: the process that resumed it; `resumed`: the identities of its records.
        difference: the difference between the whole read and both parts.
    """

    scope: Scope
    number: int
    line: int
    run: Run
    resumed: Counter[str]
    difference: Difference

    @property
    def key(self) -> tuple[bytes | int, ...]:
        """The key of a cut, equal for the same cut of another read: modes, state, and the records before."""
        state = self.scope.states[self.number - 1]
        modes = (stream.sync_mode.encode() for stream in self.scope.streams)
        return *modes, *(part.to_json() for part in state.states), state.records_before


@dataclass(frozen=True)
class SliceCut:
    """A read that was cut at a state and resumed both ways. `resumed`: the identities of the records of its
    slices, as `cut` has those of its records."""

    cut: Cut
    read: Run
    resumed: Counter[str]


@dataclass(frozen=True)
class SingleStream:
    """A read of one stream. `field`: the field that was not selected, if there is one."""

    stream: ConfiguredStream
    field: str | None
    read: Run


def remove_field(stream: ConfiguredStream, field: str) -> ConfiguredStream:
    """Return a stream without one field of its schema: the field is not selected."""
    schema = stream.stream.json_schema
    properties = {name: part for name, part in schema["properties"].items() if name != field}
    changed, changed.stream = copy.copy(stream), copy.copy(stream.stream)
    changed.stream.json_schema = {**schema, "properties": properties}
    return changed


def last_states(scope: Scope, run: Run) -> Sequence[State]:
    """Return the states that a platform has stored after another read of a scope; empty if it sent none."""
    ids = {stream.id for stream in scope.streams}
    states = [(s, line) for s, line in run.transcript.states if _stream_of(s) in {None, *ids}]
    return [*_hold(states)][-1][0] if states else []


def names_of(stream: AirbyteStream) -> set[str]:
    """Return the names by which users may select a stream."""
    return {stream.name, str(stream.id), stream.id.quoted}


def configure(
    stream: AirbyteStream, sync_mode: str, cursor: Sequence[str] = ()
) -> ConfiguredStream:
    """Return a stream as it is read in a mode: in full if it cannot be read incrementally, or if no cursor
    is known.

    Args:
        cursor: the cursor that the user has chosen, if the source does not define one.
    """
    field = list(cursor) or stream.default_cursor_field
    has_cursor = bool(stream.source_defined_cursor or field)
    is_incremental = sync_mode == INCREMENTAL and INCREMENTAL in stream.sync_modes and has_cursor
    return ConfiguredStream(
        stream=stream,
        sync_mode=INCREMENTAL if is_incremental else FULL_REFRESH,
        destination_sync_mode="append",
        cursor_field=field if is_incremental else None,
        primary_key=stream.source_defined_primary_key,
    )


@dataclass(frozen=True)
class SlicedRead:
    """A read that was made twice: as records, and by slices."""

    as_records: Run
    by_slices: Run

    @property
    def has_slices(self) -> bool:
        """Return whether the connector has sent slices."""
        return self.by_slices.slices is not None and bool(self.by_slices.slices.slices)


def list_incremental_scopes(read: Run) -> list[Scope]:
    """Return the streams that were read incrementally: each one alone, unless they share their states."""
    incremental = [stream for stream in read.streams if stream.sync_mode == INCREMENTAL]
    states = read.transcript.states
    if incremental and any(kind_of(state) != STREAM for state, _ in states):
        return [_make_shared_scope(read)]
    return [_own_scope(read, stream) for stream in incremental]


def list_resumable_scopes(read: Run) -> list[Scope]:
    """Return the streams whose full refresh can be resumed."""
    resumable = [stream for stream in read.streams if stream.stream.is_resumable]
    return [_own_scope(read, stream) for stream in resumable]


def _own_scope(read: Run, stream: ConfiguredStream) -> Scope:
    """Return what a read yielded of one stream, with the states of this stream."""
    states = read.transcript.states
    own = [([state], line) for state, line in states if _stream_of(state) == stream.id]
    return _scope(read, [stream], own)


def _make_shared_scope(read: Run) -> Scope:
    """Return what a read yielded, if the streams share states."""
    return _scope(read, read.streams, _hold(read.transcript.states))


def _scope(
    read: Run,
    streams: Sequence[ConfiguredStream],
    states: Iterable[tuple[Sequence[State], int]],
) -> Scope:
    ids = {stream.id for stream in streams}
    records = [record for record in read.records if record.stream in ids]
    lines = [record.line for record in records]
    seen = [SeenState(held, line, bisect_left(lines, line)) for held, line in states]
    return Scope(streams, read, records, seen)


def _hold(states: Iterable[tuple[State, int]]) -> Iterator[tuple[Sequence[State], int]]:
    """Yield what a platform has stored after each state: the last GLOBAL state, and the last one of each
    stream. A LEGACY state is the state of all streams, and replaces all others.

    Spec: State & Checkpointing.
    """
    held: dict[StreamId | None, State] = {}
    has_legacy = False
    for state, line in states:
        was_legacy, has_legacy = has_legacy, kind_of(state) == LEGACY
        if was_legacy or has_legacy:
            held = {}
        held[_stream_of(state)] = state
        yield list(held.values()), line


def _stream_of(state: State) -> StreamId | None:
    return None if state.stream is None else state.stream.stream_descriptor.id
