"""Cursors for tests, and a model of an API with a filter by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import msgspec

from connectors.declarative.cursors.build import Cursors
from connectors.declarative.cursors.cursor import Cursor, Page, Progress, State, read_slice
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.template import Template
from connectors.sdk.items import Context, Record

SECONDS = "%Y-%m-%dT%H:%M:%SZ"
NOW = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)

_TEMPLATES = {
    components.DatetimeBasedCursor: {
        *("cursor_field", "start_datetime", "end_datetime", "lookback_window", "step"),
        *("partition_field_start", "partition_field_end"),
    },
    components.IncrementingCountCursor: {"cursor_field"},
    components.MinMaxDatetime: {"datetime", "min_datetime", "max_datetime"},
    components.RequestOption: {"field_name"},
    components.ParentStreamConfig: {"parent_key", "partition_field"},
    components.ListPartitionRouter: {"cursor_field"},
}


def made(kind: type[components.Component], place: str = "there", **fields: Any) -> Any:
    """Return a component; texts become templates where the component has them."""
    names: Iterable[str] = _TEMPLATES.get(kind, ())
    given: dict[str, Any] = {
        name: Template(value) if name in names and isinstance(value, str) else value
        for name, value in fields.items()
    }
    return kind(place=place, **given)


def min_max(text: str, **fields: Any) -> Any:
    """Return a MinMaxDatetime."""
    return made(components.MinMaxDatetime, datetime=text, **fields)


def option(name: str | None, inject_into: str = "request_parameter", **fields: Any) -> Any:
    """Return a RequestOption."""
    return made(components.RequestOption, field_name=name, inject_into=inject_into, **fields)


def dated(**fields: Any) -> Any:
    """Return a DatetimeBasedCursor with `updated_at`, seconds, and a start on 2024-01-01."""
    given = {
        "cursor_field": "updated_at",
        "datetime_format": SECONDS,
        "start_datetime": "2024-01-01T00:00:00Z",
        **fields,
    }
    return made(components.DatetimeBasedCursor, place="streams[0].incremental_sync", **given)


def listed(values: Any, name: str = "shop", **fields: Any) -> Any:
    """Return a ListPartitionRouter."""
    values = Template(values) if isinstance(values, str) else tuple(values)
    return made(components.ListPartitionRouter, cursor_field=name, values=values, **fields)


def parent(stream: Any, name: str = "shop", key: str = "id", **fields: Any) -> Any:
    """Return a ParentStreamConfig."""
    return made(
        components.ParentStreamConfig, stream=stream, partition_field=name, parent_key=key, **fields
    )


def substream(*parents: Any) -> Any:
    """Return a SubstreamPartitionRouter."""
    return made(components.SubstreamPartitionRouter, parent_stream_configs=parents)


def stream(
    name: str = "orders",
    router: Any = None,
    sync: Any = None,
    request: str = "until={{ stream_interval.end_time }}",
    **fields: Any,
) -> Any:
    """Return a stream; of its retriever it has the router, and a text as the requester."""
    retriever = made(
        components.SimpleRetriever,
        record_selector=None,
        requester=Template(request),
        partition_router=router,
    )
    return made(
        components.DeclarativeStream,
        place=f"streams.{name}",
        name=name,
        retriever=retriever,
        incremental_sync=sync,
        **fields,
    )


def moment(text: str) -> datetime:
    """Return the date-time of a text that ends in `Z`."""
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=timezone.utc)


def at(time: datetime | str) -> AbstractContextManager[None]:
    """Stop the clock at a time."""
    return clock.frozen(moment(time) if isinstance(time, str) else time)


Answer = Callable[[str, Slice, Sequence[Option]], Iterable[Page]]


@dataclass
class Api:
    """A source whose pages a function gives, and which records its requests."""

    answer: Answer
    config: Mapping[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def cursors(self) -> Cursors:
        return Cursors(self.config, self.pages)

    def pages(self, of: Any, each: Slice, options: Sequence[Option]) -> Iterator[Page]:
        self.requests.append((of.name, {o.place.name: o.value for o in options}))
        yield from self.answer(of.name, each, options)

    def begin(self, of: Any, state: State | None = None) -> Progress:
        cursor, state = self.cursors.choose(of, state or {})
        return cursor.begin(state)

    def read(
        self, of: Any, state: State | None = None, contexts: Sequence[Context] | None = None
    ) -> Read:
        """Read a stream to the end, one slice after another."""
        cursor, state = self.cursors.choose(of, state or {})
        return read(cursor, state, lambda each, opts: self.pages(of, each, opts), contexts)


@dataclass
class Read:
    """A read: its records, the states with the number of records before each, and its slices."""

    progress: Progress
    records: list[Record] = field(default_factory=list)
    states: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)

    @property
    def state(self) -> dict[str, Any]:
        return self.states[-1][1]

    @property
    def warnings(self) -> list[str]:
        return self.progress.warnings


def read(
    cursor: Cursor,
    state: State,
    pages: Callable[[Slice, list[Option]], Iterable[Page]],
    contexts: Sequence[Context] | None = None,
) -> Read:
    """Read with a cursor to the end, one slice after another."""
    progress = cursor.begin(state)
    done = Read(progress)
    for each in progress.slices(contexts):
        done.slices.append(each)
        for page in read_slice(progress, each, pages(each, progress.options(each))):
            done.records += page
        progress.close(each)
        if progress.is_due():
            done.states.append((len(done.records), msgspec.json.decode(progress.encode())))
    progress.finish()
    done.states.append((len(done.records), msgspec.json.decode(progress.encode())))
    return done


def intervals(progress: Progress) -> list[tuple[Any, ...]]:
    """Return the values of the intervals of a read."""
    return [tuple(each.interval.values()) for each in progress.slices()]


def url(base: str, options: Iterable[Option]) -> str:
    """Return a URL with the options in its query, unescaped where a URL allows it."""
    pairs = (f"{each.place.name}={quote(str(each.value), safe=':-')}" for each in options)
    return f"{base}?{'&'.join(pairs)}"


def nothing(name: str, each: Slice, options: Sequence[Option]) -> Iterator[Page]:
    """Answer no records."""
    return iter(())
