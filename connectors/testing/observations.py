"""Observations of a connector: each process is started when a rule first needs it, and only once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

from connectors.testing.commands import Commands
from connectors.testing.comparison import difference, evenly_spread
from connectors.testing.connector import ANY, SUCCESS, Connector, Run
from connectors.testing.findings import Blocked
from connectors.testing.options import KitOptions
from connectors.testing.process import Stopped
from connectors.testing.scopes import (
    Cut,
    Scope,
    SingleStream,
    SliceCut,
    SlicedRead,
    configure,
    list_incremental_scopes,
    list_resumable_scopes,
    remove_field,
)
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL
from elt_assets.protocol.messages import State

SPEC, CHECK, BAD_CHECKS, DISCOVER, NO_FILE = "spec", "check", "bad checks", "discover", "no file"
READ, REFRESH, REFRESH_WITH_STATES = "read", "refresh", "refresh with states"
CUTS, REFRESH_CUTS, FINAL = "cuts", "refresh cuts", "final"
SLICES, SLICE_CUTS = "slices", "slice cuts"
DISCOVER_AGAIN, SINGLE, STOP = "discover again", "single stream", "stop"
"""The stages: groups of processes that rules need."""


class Observations(Commands):
    """Observations of one connector.

    Args:
        connector: the connector.
        options: what is observed.
        stages: the stages that the selected rules need.
    """

    def __init__(self, connector: Connector, options: KitOptions, stages: Collection[str]):
        super().__init__(connector, options)
        self._stages = stages
        self._finals: dict[int, Run] = {}

    def runs(self) -> Sequence[Run]:
        """Return all processes that the selected rules need."""
        checks: Mapping[str, Callable[[], object]] = {
            CHECK: lambda: self.check,
            BAD_CHECKS: lambda: self.bad_checks,
        }
        actions: Mapping[str, Callable[[], object]] = {
            SPEC: lambda: self.spec,
            **(checks if self.protocol.has_check else {}),
            NO_FILE: lambda: self.without_config_file,
            DISCOVER: lambda: self.discover,
            DISCOVER_AGAIN: lambda: self.second_discovery,
            READ: lambda: self.first_read,
            REFRESH: lambda: self.refresh,
            REFRESH_WITH_STATES: lambda: self.refresh_with_states,
            CUTS: lambda: self.cuts,
            REFRESH_CUTS: lambda: self.refresh_cuts,
            FINAL: lambda: [self.final(scope) for scope in self.incremental_scopes],
            SINGLE: lambda: self.single_stream,
            SLICES: lambda: self.sliced_reads,
            SLICE_CUTS: lambda: self.slice_cuts,
        }
        for stage, action in actions.items():
            if stage in self._stages:
                with contextlib.suppress(Blocked):
                    action()
        return self.connector.runs

    @cached_property
    def first_read(self) -> Run:
        """A read of all streams from nothing: incremental where that is possible."""
        streams = [configure(stream, INCREMENTAL, self._cursor(stream)) for stream in self.streams]
        return self._learn_secrets().run("read", "`read` of all streams", streams=streams)

    @cached_property
    def single_stream(self) -> SingleStream | None:
        """A read of one stream, of a tap without one of its fields; None if nothing can be left out.

        Raises:
            Blocked: the read of all streams failed.
        """
        read = _successful(self.first_read)
        with_records = [stream for stream in read.streams if stream.id in read.transcript.spans]
        if not with_records:
            return None
        stream = with_records[0]
        fixed = {path[0] for path in (*stream.key, stream.cursor) if path}
        names = [f for f in self.protocol.selectable_fields(stream.stream) if f not in fixed]
        if len(self.offered) == 1 and not names:
            return None
        field = names[0] if names else None
        selected = stream if field is None else remove_field(stream, field)
        run = self.connector.run(
            *("read", f"`read` of {stream.id} alone"),
            streams=[selected],
            expected_end=ANY,
        )
        return SingleStream(selected, field, run)

    @cached_property
    def stopped(self) -> Stopped | None:
        """A read that got SIGTERM while it waited for a reader of its output; None if it ended before.

        Raises:
            Blocked: the read of all streams failed.
        """
        read = _successful(self.first_read)
        return self.connector.stop(read.streams, read.ended.seconds + 1)

    def read_from(self, scope: Scope, states: Sequence[State], what: str) -> Run:
        """Return a read of a scope from states that may be refused."""
        purpose = f"`read` of {scope.name} from {what}"
        return self.connector.run(
            "read", purpose, streams=scope.streams, states=states, expected_end=ANY
        )

    @cached_property
    def refresh(self) -> Run:
        """A full refresh of all streams from nothing."""
        streams = [configure(stream, FULL_REFRESH) for stream in self.streams]
        purpose = "`read` of all streams in full"
        return self._learn_secrets().run("read", purpose, streams=streams)

    @cached_property
    def incremental_scopes(self) -> list[Scope]:
        """The streams that were read incrementally: each one alone, unless they share their states.

        Raises:
            Blocked: the read failed.
        """
        return list_incremental_scopes(_successful(self.first_read))

    @cached_property
    def resumable_scopes(self) -> list[Scope]:
        """The streams whose full refresh can be resumed.

        Raises:
            Blocked: the full refresh failed.
        """
        return list_resumable_scopes(_successful(self.refresh))

    @cached_property
    def sliced_reads(self) -> list[SlicedRead]:
        """The read of all streams by slices, and the full refresh; none if the connector has no slices.

        Raises:
            Blocked: the read as records failed.
        """
        plain = _successful(self.first_read)
        if not (self.protocol.has_spec and self.connector.can_converse):
            return []
        read = self._read_slices(plain, "`read` of all streams by slices")
        if not read.has_slices and read.by_slices.succeeded:
            return []
        if all(stream.sync_mode == FULL_REFRESH for stream in plain.streams):
            return [read]
        whole = _successful(self.refresh)
        return [read, self._read_slices(whole, "`read` of all streams in full by slices")]

    def _read_slices(self, plain: Run, purpose: str) -> SlicedRead:
        streams = plain.streams
        read = self.connector.run(
            "read", purpose, streams=streams, expected_end=ANY, by_slices=True
        )
        return SlicedRead(plain, read)

    @cached_property
    def slice_cuts(self) -> list[SliceCut]:
        """Reads from the states of all reads, each by slices and as records.

        Raises:
            Blocked: a read failed.
        """
        if not self.sliced_reads:
            return []
        reads = [_successful(sliced.by_slices) for sliced in self.sliced_reads]
        scopes = [*list_incremental_scopes(reads[0]), *list_resumable_scopes(reads[-1])]
        of_slices = [cut for scope in scopes for cut in self._cut(scope)]
        cuts = {cut.key: cut for cut in (*of_slices, *self.cuts, *self.refresh_cuts)}
        return [self._cut_slices(cut) for cut in cuts.values()]

    def _cut_slices(self, cut: Cut) -> SliceCut:
        read = self._resume(cut.scope, cut.number, by_slices=True)
        resumed = Counter(self._identify(cut.scope, read))
        return SliceCut(cut, read.drop_records(), resumed)

    @cached_property
    def refresh_with_states(self) -> Run | None:
        """A full refresh that gets the last states of the incremental read; None if there are none.

        Raises:
            Blocked: the incremental read or the full refresh failed.
        """
        _successful(self.refresh)
        scopes = [scope for scope in self.incremental_scopes if scope.states]
        streams = [
            configure(stream.stream, FULL_REFRESH)
            for scope in scopes
            for stream in scope.streams
            if not stream.stream.is_resumable
        ]
        if not streams:
            return None
        states = [state for scope in scopes for state in scope.states[-1].states]
        purpose = "`read` in full, with a state"
        return self.connector.run("read", purpose, streams=streams, states=states)

    @cached_property
    def cuts(self) -> list[Cut]:
        """The incremental reads, cut at their states and resumed."""
        return [cut for scope in self.incremental_scopes for cut in self._cut(scope)]

    @cached_property
    def refresh_cuts(self) -> list[Cut]:
        """The full refreshes that can be resumed, cut at their states and resumed."""
        return [cut for scope in self.resumable_scopes for cut in self._cut(scope)]

    def final(self, scope: Scope) -> Run | None:
        """Return a read from the last state of a scope; None if it has no state."""
        if not scope.states:
            return None
        if id(scope) not in self._finals:
            self._finals[id(scope)] = self._resume(scope, len(scope.states))
        return self._finals[id(scope)]

    def is_limited(self, scope: Scope) -> bool:
        """Return whether the reads of a scope are cut at some of its states only."""
        return self.options.cuts is not None and len(scope.states) > self.options.cuts

    def _cut(self, scope: Scope) -> Iterator[Cut]:
        identity = scope.identity(self.options.ignore)
        whole = [identity(record) for record in scope.records]
        for index in evenly_spread(len(scope.states), self.options.cuts):
            state, number = scope.states[index], index + 1
            is_last = number == len(scope.states)
            read = self.final(scope) if is_last else self._resume(scope, number)
            assert read is not None
            resumed = self._identify(scope, read)
            deviation = difference(whole, whole[: state.records_before], resumed)
            yield Cut(scope, number, state.line, read.drop_records(), Counter(resumed), deviation)

    def _identify(self, scope: Scope, read: Run) -> list[str]:
        """Return the identities of the records of a scope in a read."""
        identity = scope.identity(self.options.ignore)
        ids = {stream.id for stream in scope.streams}
        return [identity(record) for record in read.records if record.stream in ids]

    def _resume(self, scope: Scope, number: int, *, by_slices: bool = False) -> Run:
        is_refresh = all(stream.sync_mode == FULL_REFRESH for stream in scope.streams)
        what = f"{scope.name}{' in full' if is_refresh else ''}"
        purpose = f"`read` of {what} from state {number} of {len(scope.states)}"
        return self.connector.run(
            "read",
            f"{purpose} by slices" if by_slices else purpose,
            streams=scope.streams,
            states=scope.states[number - 1].states,
            expected_end=ANY if by_slices else SUCCESS,
            by_slices=by_slices,
        )


def _successful(read: Run) -> Run:
    """Return a read.

    Raises:
        Blocked: it failed.
    """
    if not read.succeeded:
        raise Blocked(f"{read.purpose} {read.ended.text} (see exit-codes)")
    return read
