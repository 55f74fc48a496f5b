"""Rules about states: resuming from each of them, the last one, and full refreshes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from connectors.testing.comparison import (
    Difference,
    Order,
    is_later,
    order,
    scalars,
    value_at,
)
from connectors.testing.findings import Finding, NotApplicable, Note
from connectors.testing.observations import (
    CUTS,
    FINAL,
    READ,
    REFRESH,
    REFRESH_CUTS,
    REFRESH_WITH_STATES,
    Observations,
)
from connectors.testing.protocols.protocol import SeenRecord
from connectors.testing.rules.rule import MAX_SHOWN, Results, incremental_scopes, rule
from connectors.testing.scopes import Cut, Scope
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream, StreamId
from elt_assets.protocol.messages import State

NEW_DATA = (
    "test with data that does not change between two reads (of the built-in source `faker`: `days: 1`), and "
    "name fields that differ in each read with `--ignore FIELD`"
)
_WIDTH = 120
"""Maximum number of characters of a record that is shown."""


@rule(READ)
def state_follows_the_last_record(seen: Observations) -> Results:
    """An incremental read sends a state after the last record of each stream."""
    for scope in incremental_scopes(seen):
        if not scope.ends_with_state:
            last = scope.states[-1].records_before if scope.states else 0
            yield Finding(
                "a state after the last record",
                f"records after the last of {len(scope.states)} states: {len(scope.records) - last:,}",
                "send a state when a stream is complete, also if it has no records",
                scope.name,
                scope.run.purpose,
                scope.uncovered_from,
            )


@rule(CUTS, FINAL)
def states_resume_exactly(seen: Observations) -> Results:
    """The records before any state and those of a read from that state are all records, none too many."""
    scopes = incremental_scopes(seen)
    yield from _round_trips(seen, scopes, seen.cuts)


@rule(REFRESH_CUTS)
def refresh_resumes_exactly(seen: Observations) -> Results:
    """A full refresh that can be resumed continues at each of its states, without a gap."""
    if not seen.resumable_scopes:
        raise NotApplicable("no stream declares `is_resumable`")
    yield from _round_trips(seen, seen.resumable_scopes, seen.refresh_cuts)


def _round_trips(seen: Observations, scopes: Sequence[Scope], cuts: Sequence[Cut]) -> Results:
    if not any(scope.states for scope in scopes):
        raise NotApplicable("no state was sent (see state-follows-the-last-record)")
    for scope in scopes:
        if seen.is_limited(scope):
            count = f"{seen.options.cuts} of {len(scope.states)} states"
            yield Note(f"stream {scope.name}: limited to {count}")
    for cut in cuts:
        place = f"state {cut.number} of {len(cut.scope.states)} (line {cut.line} of the whole read)"
        if not cut.run.succeeded:
            seen_end = f"the read from {place} {cut.run.ended.text}"
            yield _cut_finding(cut, seen_end, "accept each state that the connector has sent")
        elif cut.difference:
            text = f"with the read from {place}, {describe_difference(cut.difference)}"
            yield _cut_finding(
                cut,
                text,
                "send a state after all records that it covers, and resume right after them; "
                + NEW_DATA,
            )


def _cut_finding(cut: Cut, seen: str, advice: str) -> Finding:
    total = len(cut.scope.records)
    return Finding(
        f"the records before a state and those of a read from it to be all {total:,} records of the stream",
        seen,
        advice,
        cut.scope.name,
        cut.run.purpose,
    )


def describe_difference(difference: Difference) -> str:
    """Return a difference in words; empty if there is none."""
    parts = []
    if difference.missing:
        parts.append(
            f"missing records: {difference.missing.total():,} ({_some(difference.missing)})"
        )
    if difference.extra:
        parts.append(
            f"unexpected records: {difference.extra.total():,} ({_some(difference.extra)})"
        )
    return "; ".join(parts)


def _some(records: Counter[str]) -> str:
    texts = [text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…" for text in records]
    return " ".join([*texts[:MAX_SHOWN], *(["…"] if len(texts) > MAX_SHOWN else [])])


@rule(FINAL)
def final_state_is_final(seen: Observations) -> Results:
    """A second read, from the last state, yields only records that have the cursor value of that state."""
    scopes = incremental_scopes(seen)
    if not any(scope.ends_with_state for scope in scopes):
        raise NotApplicable("no read ends with a state (see state-follows-the-last-record)")
    for scope in scopes:
        read = seen.final(scope)
        if read is None or not scope.ends_with_state:
            yield Note(f"stream {scope.name}: its last state is not after its last record")
            continue
        if not read.succeeded:
            yield _final_finding(scope, read.purpose, f"it {read.ended.text}")
        for stream in scope.streams:
            if stream.sync_mode == INCREMENTAL:
                unexpected = find_unexpected(seen, scope, stream, read.records)
                if unexpected:
                    text = f"other records: {len(unexpected):,} ({_list_records(seen, scope, unexpected)})"
                    yield _final_finding(scope, read.purpose, text, stream.id)


def _final_finding(scope: Scope, run: str, text: str, stream: StreamId | None = None) -> Finding:
    return Finding(
        "no record, or such as have the cursor value of the last state",
        text,
        "store in the last state how far the stream was read, and read on from there; " + NEW_DATA,
        scope.name if stream is None else str(stream),
        run,
    )


def find_unexpected(
    seen: Observations, scope: Scope, stream: ConfiguredStream, records: Sequence[SeenRecord]
) -> list[SeenRecord]:
    """Return the records of a second read that are not repetitions allowed by a tie."""
    identity = scope.identity(seen.options.ignore)
    again = [record for record in records if record.stream == stream.id]
    whole = [record for record in scope.records if record.stream == stream.id]
    path = stream.cursor
    if not path:  # the source has a cursor, but does not publish it
        identities = {identity(record) for record in whole}
        new = [record for record in again if identity(record) not in identities]
        return again if len(again) >= len(whole) > 1 else new
    places = {(identity(record), order(value_at(record.data, path))) for record in whole}
    ties = set(_ties([place for _, place in places], scope.states[-1].states))
    return [
        record
        for record in again
        for place in [order(value_at(record.data, path))]
        if (identity(record), place) not in places
        or not (place in ties or is_later(place, scope.run.started))
    ]


def _ties(places: Sequence[Order], states: Sequence[State]) -> Iterator[Order]:
    """Yield the cursor values that a read from states may repeat: the highest one, and those in the states,
    which have one for each partition. Times after the present are not in a state, so they may be repeated."""
    if places:
        yield max(places)
    for state in states:
        yield from map(order, scalars(msgspec.json.decode(state.to_json())))


def _list_records(seen: Observations, scope: Scope, records: Sequence[SeenRecord]) -> str:
    identity = scope.identity(seen.options.ignore)
    return _some(Counter(identity(record) for record in records))


@rule(READ, REFRESH, REFRESH_WITH_STATES)
def full_refresh_ignores_state(seen: Observations) -> Results:
    """A full refresh that gets a state yields the same records as one without."""
    scopes = incremental_scopes(seen)
    read = seen.refresh_with_states
    if read is None:
        raise NotApplicable("each stream with a state declares `is_resumable`, or none has a state")
    names = {stream.id: stream for stream in read.streams}
    skipped = [s.id for scope in scopes for s in scope.streams if s.id not in names]
    if skipped:
        yield Note(f"streams that resume a full refresh: {', '.join(map(str, skipped))}")
    for stream in read.streams:
        scope = Scope([stream], read, [], [])
        identity = scope.identity(seen.options.ignore)
        whole, again = (
            Counter(identity(record) for record in run.records if record.stream == stream.id)
            for run in (seen.refresh, read)
        )
        difference = Difference(whole - again, again - whole)
        if difference or not read.succeeded:
            end = "" if read.succeeded else f"the process {read.ended.text}; "
            yield Finding(
                f"the {whole.total():,} records of a full refresh without a state",
                f"{end}{describe_difference(difference) or 'the same records'}",
                "ignore the state of a stream that is read with `full_refresh`; " + NEW_DATA,
                str(stream.id),
                read.purpose,
            )
