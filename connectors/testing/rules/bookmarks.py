"""Rules about what states say: the value of the cursor, and what becomes of it in later reads."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from connectors.testing.comparison import (
    decoded,
    is_time,
    list_scalars,
    order,
    scalars,
    value_at,
)
from connectors.testing.findings import Finding, NotApplicable, Note
from connectors.testing.observations import CUTS, FINAL, READ, Observations
from connectors.testing.protocols.protocol import SeenRecord
from connectors.testing.rules.rule import Results, incremental_scopes, rule
from connectors.testing.rules.states import find_unexpected
from connectors.testing.scopes import Scope, last_states
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream
from elt_assets.protocol.message_rules import kind_of
from elt_assets.protocol.messages import State

_BOOKMARKS = frozenset({"replication_key_value", "cursor"})
"""Usual names of a bookmark in a state, besides the name of the cursor field."""
_CONTEXTS = frozenset(
    {
        *("context", "partition", "stream_descriptor", "type", "sourceStats"),
        *("sent", "sent_without_key"),  # hashes of records, in states of our SDK
    }
)
"""Names of what a state has besides the position of its streams."""
_NEAR = dt.timedelta(days=2)
"""Largest distance between the end of the period that was read and the time of the read, or a time in the
config: it may be rounded to days, in another zone."""


@rule(READ)
def bookmark_value_is_read_again(seen: Observations) -> Results:
    """A read from a bookmark yields the records that have its value: more of them may appear later."""
    for scope, stream, records in _streams_with_cursor(seen):
        values = {order(value): value for value in _values(stream, records)}
        if len(values) in (1, len(list(_values(stream, records)))):
            yield Note(
                f"stream {stream.id}: not checked, as no records share one of several values"
            )
            continue
        # A partition whose bookmark has the value itself may know which of its records it has sent.
        own = {order(value) for _, value in _bookmarks(scope, stream)}
        lower = max((p for p in values if p < max(values) and p not in own), default=None)
        if lower is None:
            yield Note(f"stream {stream.id}: no value of the cursor is before all bookmarks")
            continue
        later = {_literal(value) for place, value in values.items() if place > lower}
        if not _is_cursor_alone(scope, stream, values.values()):
            yield Note(f"stream {stream.id}: its last state is not the value of the cursor alone")
            continue
        states = [
            _find_moved_back(state, later, values[lower]) for state in scope.states[-1].states
        ]
        yield from _check_ties(seen, scope, stream, states, values[lower])


def _is_cursor_alone(scope: Scope, stream: ConfiguredStream, values: Collection[Any]) -> bool:
    """Return whether a state has values of the cursor, and no other position, such as a number of records.
    The name of the cursor field may be in it."""
    literals = {_literal(value) for value in values}
    state = {_literal(value) for _, value in _bookmarks(scope, stream)}
    return bool(state & literals) and state <= {*literals, _literal(stream.cursor[-1])}


def _check_ties(
    seen: Observations, scope: Scope, stream: ConfiguredStream, states: Sequence[Any], bookmark: Any
) -> Results:
    """Read from a bookmark that is moved back to an earlier value, and compare the records from there on."""
    moved = [State.from_json(msgspec.json.encode(state)) for state in states]
    read = seen.read_from(scope, moved, f"its last state, moved back to {bookmark!r}")
    identity = scope.identity(seen.options.ignore)
    again = Counter(identity(record) for record in read.records if record.stream == stream.id)
    places = [
        (order(value_at(record.data, stream.cursor)), identity(record))
        for record in scope.records
        if record.stream == stream.id
    ]
    later = Counter(text for place, text in places if place > order(bookmark))
    ties = Counter(text for place, text in places if place == order(bookmark))
    if not read.succeeded or later - again:
        yield Note(f"stream {stream.id}: it cannot be read from an earlier value of the cursor")
    elif ties - again:
        yield Finding(
            f"the {ties.total():,} records with the cursor value of the bookmark, {bookmark!r}",
            f"the records after it, but {(ties - again).total():,} of these are missing",
            "read from the bookmark on, its value included (`>=`, not `>`): a record that gets this value "
            "later is lost otherwise. Skip this rule if no record can get an old value",
            str(stream.id),
            read.purpose,
        )


@rule(READ)
def last_state_is_not_past_the_data(seen: Observations) -> Results:
    """The last state is not after the last record, except at the end of the period that was read."""
    for scope, stream, records in _streams_with_cursor(seen):
        values = [order(value) for value in _values(stream, records)]
        if not values:
            continue
        for name, value in _bookmarks(scope, stream):
            place = order(value)
            is_named = name in _BOOKMARKS or name == stream.cursor[-1]
            is_comparable = place[0] == max(values)[0] and (is_time(place) or is_named)
            if is_comparable and place > max(values) and not _is_end(seen, scope, value):
                yield Finding(
                    "the cursor value of the last record, or the end of the period that was read",
                    f"{name}: {value!r}, which is after the cursor value of each record",
                    "do not round a bookmark up, nor add to it: a record that appears before it is lost",
                    str(stream.id),
                    scope.run.purpose,
                    scope.states[-1].line,
                )


def _is_end(seen: Observations, scope: Scope, value: Any) -> bool:
    """Return whether a value is the time of the read, or a value of the config: the end of a period."""
    config = list(scalars(seen.connector.config))
    times = [scope.run.started, *(time for text in config if (time := _time(text)) is not None)]
    time = _time(value)
    return value in config or (time is not None and any(abs(time - end) <= _NEAR for end in times))


def _time(value: Any) -> dt.datetime | None:
    """Return a time that is written in ISO 8601, or in seconds or milliseconds since 1970; else None."""
    place = order(value)
    if is_time(place):
        moment: dt.datetime = place[1]
        return moment
    if isinstance(value, int | float) and value >= 1e9:
        seconds = value if value < 1e11 else value / 1000
        return dt.datetime.fromtimestamp(min(seconds, 1e11), dt.timezone.utc)
    return None


@rule(FINAL)
def reads_without_data_keep_the_state(seen: Observations) -> Results:
    """A second read, which has no new data, does not lose the state that it was given."""
    for scope in incremental_scopes(seen):
        second = seen.final(scope)
        if second is None or not second.succeeded or not scope.ends_with_state:
            yield Note(f"stream {scope.name}: there is no second read from its last state")
            continue
        states = last_states(scope, second)
        if _positions(states) in ([], _positions(scope.states[-1].states)):
            continue
        third = seen.read_from(scope, states, "the last state of a second read")
        for stream in scope.streams:
            if stream.sync_mode == INCREMENTAL:
                identity = scope.identity(seen.options.ignore)
                second_records = {identity(record) for record in second.records}
                records = [
                    record
                    for record in find_unexpected(seen, scope, stream, third.records)
                    if identity(record) not in second_records  # see final-state-is-final
                ]
                if records:
                    yield Finding(
                        "no record, or such as have the cursor value of the last state",
                        f"{len(records):,} other records: the second read has lost the state",
                        "send the state that was given if there is no new data, or none",
                        str(stream.id),
                        third.purpose,
                    )


@rule(READ, CUTS, FINAL)
def state_types_do_not_change(seen: Observations) -> Results:
    """Reads from a state send states of the types that the first read has sent: STREAM, GLOBAL or LEGACY."""
    first = {kind_of(state) for state, _ in seen.first_read.transcript.states}
    if not first:
        raise NotApplicable("no state was sent")
    for run in seen.runs():
        if any(stream.sync_mode == INCREMENTAL for stream in run.streams):
            for state, line in run.transcript.states:
                if kind_of(state) not in first:
                    yield Finding(
                        f"states of the type {', '.join(sorted(first))}, as in the first read",
                        f"a state of the type {kind_of(state)}",
                        "send states of one type: a platform stores each type in another way",
                        run=run.purpose,
                        line=line,
                    )
                    break


@rule(READ)
def chosen_cursor_is_used(seen: Observations) -> Results:
    """A stream whose cursor the user chooses keeps values of this field in its state, not of another one."""
    streams = [
        pair for pair in _streams_with_cursor(seen) if not pair[1].stream.source_defined_cursor
    ]
    if not streams:
        raise NotApplicable(
            "no stream lets the user choose the cursor; `--cursor STREAM=FIELD` does"
        )
    for scope, stream, records in streams:
        state = list(_bookmarks(scope, stream))
        texts = {value for _, value in state}
        if texts & set(_values(stream, records)) or stream.cursor[-1] in {
            name for name, _ in state
        }:
            continue
        for field in {name: None for record in records for name in record.data}:
            last = max((record.data.get(field) for record in records), key=order, default=None)
            if (isinstance(last, str) and last in texts) or field in {name for name, _ in state}:
                yield Finding(
                    f"a state with a value of {'.'.join(stream.cursor)!r}, the cursor in the catalog",
                    f"a value of the field {field!r}",
                    "use the `cursor_field` of the configured stream, or declare `source_defined_cursor`",
                    str(stream.id),
                    scope.run.purpose,
                    scope.states[-1].line,
                )
                break


def _streams_with_cursor(
    seen: Observations,
) -> Iterator[tuple[Scope, ConfiguredStream, Sequence[SeenRecord]]]:
    """Yield each stream that has a known cursor and a state, with its records; at least one.

    Raises:
        NotApplicable: there is no such stream.
    """
    streams = [
        (scope, stream, [record for record in scope.records if record.stream == stream.id])
        for scope in incremental_scopes(seen)
        for stream in scope.streams
        if scope.states and stream.sync_mode == INCREMENTAL and stream.cursor
    ]
    if not streams:
        raise NotApplicable("no stream has a state and a cursor that the catalog names")
    yield from streams


def _values(stream: ConfiguredStream, records: Sequence[SeenRecord]) -> Iterator[Any]:
    values = (value_at(record.data, stream.cursor) for record in records)
    return (value for value in values if isinstance(value, str | int | float))


def _bookmarks(scope: Scope, stream: ConfiguredStream) -> Iterator[tuple[str, Any]]:
    """Yield the texts and numbers in the last state of a stream, each with its name."""
    for state in scope.states[-1].states:
        if state.stream is not None:
            if state.stream.stream_descriptor.id == stream.id:
                yield from list_scalars(decoded(state.stream.stream_state), _CONTEXTS)
            continue
        value = _document(state)
        own = [part for part in _parts(value, stream.stream.name) if isinstance(part, dict | str)]
        yield from list_scalars(own or (value if len(scope.streams) == 1 else None), _CONTEXTS)


def _parts(value: Any, name: str) -> Iterator[Any]:
    """Yield the parts of a state that have the name of a stream, at any depth."""
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        elif (value.get("stream_descriptor") or {}).get("name") == name:
            yield value.get("stream_state")
        else:
            value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _parts(inner, name)


def _document(state: State) -> Any:
    return msgspec.json.decode(state.to_json())


def _positions(states: Sequence[State]) -> list[Any]:
    """Return what states say, without the numbers of records before them."""
    documents = map(_document, states)
    return [{k: v for k, v in document.items() if k != "sourceStats"} for document in documents]


def _literal(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


def _find_moved_back(state: State, later: set[tuple[str, Any]], bookmark: Any) -> Any:
    """Return a state whose values after a bookmark are replaced by the bookmark."""

    def replace_field(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: v if name in _CONTEXTS else replace_field(v) for name, v in value.items()}
        if isinstance(value, list):
            return [replace_field(inner) for inner in value]
        return bookmark if _literal(value) in later else value

    return replace_field(_document(state))
