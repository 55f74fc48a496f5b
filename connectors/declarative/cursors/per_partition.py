"""Streams with partitions: a cursor for each of them, one for all, or none.

Spec: the per-partition state of Airbyte's low-code streams.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from msgspec import Raw

from connectors.declarative.cursors.cursor import (
    GLOBAL_STATE,
    LOOKBACK,
    PARENT_STATE,
    STATES,
    USE_GLOBAL,
    Cursor,
    Page,
    Progress,
    ProgressWithoutCursor,
    State,
    ValueCursor,
    ValueProgress,
    warn_of_missing_values,
    warn_of_unused_state,
)
from connectors.declarative.cursors.partition_states import PartitionStates
from connectors.declarative.cursors.routers import Action, Partition, Router, Routing
from connectors.declarative.cursors.slices import Option, Slice, distinct
from connectors.sdk.encoding import encode
from connectors.sdk.items import Context
from connectors.sdk.state.partitions import identity
from connectors.sdk.state.schedule import MANY_PARTITIONS, StateSchedule
from connectors.sdk.state.stream_state import StreamState
from elt_assets.errors import ConfigError

SMALL = 16_384
"""Size in bytes up to which a state is sent after each interval of a partition."""
SECONDS = 1.0
"""Least time between two states that are larger, of up to `MANY_PARTITIONS` partitions."""
_MAX_WARNINGS = 10


class RoutedStream(Cursor):
    """A stream with partitions and without a cursor.

    Args:
        router: the router.
    """

    def __init__(self, router: Router):
        self.router = router

    def begin(self, state: State) -> Progress:
        del state
        return _RoutedProgress(self.router)

    def contexts(self) -> Iterator[Context]:
        return _list_contexts(self.router)


class PartitionedCursor(Cursor):
    """A cursor for each partition of a stream, or one for all.

    Args:
        router: the router.
        cursor: the cursor of a partition.
        is_global: whether all partitions share one value, which moves when all of them were read.

    Raises:
        ConfigError: a partition and an interval have a value of the same name.
    """

    def __init__(self, router: Router, cursor: ValueCursor[Any], *, is_global: bool = False):
        self.router = router
        self.cursor = cursor
        self.field = cursor.field
        self.is_global = is_global
        shared_names = set(cursor.names) & set().union(*router.names)
        if shared_names:
            raise ConfigError(
                f"{router.place} and {cursor.place} both have values named {sorted(shared_names)}",
                guidance="rename the field of the partition, or set `partition_field_start` and "
                "`partition_field_end` of the cursor",
            )

    def begin(self, state: State) -> PartitionedProgress:
        return PartitionedProgress(self, state)

    def contexts(self) -> Iterator[Context]:
        return _list_contexts(self.router)

    def lacks_overlap(self) -> bool:
        return self.cursor.lacks_overlap()


class _RoutedProgress(ProgressWithoutCursor):
    """One read of a stream with partitions and without a cursor."""

    def __init__(self, router: Router):
        super().__init__()
        self._router = router

    def slices(self, contexts: Sequence[Context] | None = None) -> Iterator[Slice]:
        routing = self._router.begin(None)
        for item in _once(_items(self._router, routing, contexts)):
            if isinstance(item, Partition):
                yield Slice(item.values, extra=item.extra)
            else:
                item()
        self.warnings.extend(routing.warnings)

    def options(self, stream_slice: Slice) -> list[Option]:
        return distinct(self._router.options(stream_slice.partition))


@dataclass(eq=False)
class _Group:
    """The partitions that come before an action, and after the one before it.

    Attributes:
        unread: the number of them that were listed and not read.
        action: the action, as soon as it was listed.
    """

    unread: int = 0
    action: Action | None = None


@dataclass(eq=False)
class _Open:
    """A partition that is being read.

    Attributes:
        key: the identity of the partition.
        progress: its progress.
        group: the partitions among which it is.
        pending: the number of its slices that were listed and not closed.
        is_listed: whether all its slices were listed.
    """

    key: bytes
    progress: ValueProgress
    group: _Group
    pending: int = 0
    is_listed: bool = False


@dataclass(frozen=True)
class _Origin:
    """The partition of a slice, and the slice of its own cursor."""

    of: _Open
    inner: Slice


class PartitionedProgress(Progress):
    """One read of a stream with a PartitionedCursor."""

    def __init__(
        self,
        cursor: PartitionedCursor,
        state: State,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self._start_time = self._last_sent_time = monotonic()
        self._cursor = cursor
        self._states = PartitionStates(state, cursor.cursor, has_parents=cursor.router.has_parents)
        self._routing = cursor.router.begin(state)
        self._bounds = cursor.cursor.bounds()
        self._monotonic = monotonic
        self._schedule: StateSchedule | None = None
        self._open_partitions: dict[bytes, _Open] = {}
        self._groups = deque([_Group()])
        self._last: bytes | None = None
        self._latest: Any = self._states.value
        self._missing = 0
        self._is_partial = True
        self._has_moved_parents = False
        self._lock = threading.RLock()
        if self._states.value is None and not len(self._states):
            self._warn(warn_of_unused_state(cursor.field, state))

    @property
    def size(self) -> int:
        """Size in bytes of the states of partitions."""
        return self._states.size

    @property
    def bookmarks(self) -> int:
        """Number of the states of partitions."""
        return len(self._states)

    def slices(self, contexts: Sequence[Context] | None = None) -> Iterator[Slice]:
        routing = self._routing if contexts is None else self._cursor.router.begin(None)
        for item in _once(_items(self._cursor.router, routing, contexts)):
            if isinstance(item, Partition):
                yield from self._slices_of(item)
                continue
            with self._lock:
                self._groups[-1].action = item
                self._groups.append(_Group())
                self._advance()
        self._is_partial = contexts is not None
        self._warn(self._routing.warnings)

    def options(self, stream_slice: Slice) -> list[Option]:
        inner = stream_slice.origin.of.progress.options(stream_slice.origin.inner)
        return distinct([*self._cursor.router.options(stream_slice.partition), *inner])

    def take(self, stream_slice: Slice, page: Page) -> Page:
        return stream_slice.origin.of.progress.take(stream_slice.origin.inner, page)  # type: ignore[no-any-return]

    def is_past(self, stream_slice: Slice, page: Page) -> bool:
        return bool(stream_slice.origin.of.progress.is_past(stream_slice.origin.inner, page))

    def close(self, stream_slice: Slice) -> None:
        origin: _Origin = stream_slice.origin
        with self._lock:
            origin.of.progress.close(origin.inner)
            origin.of.pending -= 1
            self._last = origin.of.key
            self._settle(origin.of)

    def finish(self) -> None:
        with self._lock:
            is_complete = not self._is_partial and not self._open_partitions
            if is_complete:
                self._states.value = self._latest
                self._states.lookback = math.ceil(self._monotonic() - self._start_time)
                self._states.falls_back = False
                if self._cursor.is_global:
                    self._states.clear()
                self._states.drop_converted()
            self._warn(warn_of_missing_values(self._cursor.field, self._missing))

    def is_due(self) -> bool:
        with self._lock:
            if self._cursor.is_global:
                return self._has_moved_parents and self._is_time()
            if self.bookmarks <= MANY_PARTITIONS:
                return self.size <= SMALL or self._is_time()
            if self._schedule is None:
                self._schedule = StateSchedule(has_many=True, size=self.size, clock=self._monotonic)
            context = None if self._last is None else msgspec.json.decode(self._last)
            # The schedule reads only the size and the number, which this object has too.
            return self._schedule.is_due(cast(StreamState, self), context)

    def state(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.encode())
        return decoded

    def encode(self) -> Raw:
        with self._lock:
            encoded = Raw(encode(self._build_state()))
            self._has_moved_parents = False
            self._last_sent_time = self._monotonic()
            if self._schedule is not None:
                self._schedule.sent(len(bytes(encoded)))
            return encoded

    def _build_state(self) -> dict[str, Any]:
        states, is_global = self._states, self._cursor.is_global
        falls_back = states.falls_back and states.value is not None
        state: dict[str, Any] = {USE_GLOBAL: falls_back or (is_global and not len(states))}
        if not is_global or len(states):
            open_partitions = () if is_global else self._open_partitions.values()
            state[STATES] = states.encode_all(
                (partition.key, partition.progress.state()) for partition in open_partitions
            )
        if states.value is not None:
            state[GLOBAL_STATE] = self._cursor.cursor.state_of(states.value)
            state[LOOKBACK] = states.lookback
        parents = {**states.parents, **self._routing.parent_state()}
        if parents:
            state[PARENT_STATE] = parents
        return state

    def _slices_of(self, partition: Partition) -> Iterator[Slice]:
        beginning = self._states.find_start(partition.key, partition.values)
        progress = self._cursor.cursor.begin_within(self._bounds, beginning)
        with self._lock:
            opened = _Open(partition.key, progress, self._groups[-1])
            opened.group.unread += 1
            self._open_partitions[partition.key] = opened
        for inner, is_last in _mark_last(progress.slices()):
            with self._lock:
                opened.pending += 1
                opened.is_listed = is_last
            yield Slice(partition.values, inner.interval, partition.extra, _Origin(opened, inner))
        with self._lock:
            opened.is_listed = True
            self._settle(opened)

    def _settle(self, opened: _Open) -> None:
        """Take over the state of a partition whose slices were all closed."""
        if not opened.is_listed or opened.pending or opened.key not in self._open_partitions:
            return
        progress = opened.progress
        self._missing += progress.missing
        self._warn(progress.warnings)
        if progress.value is not None:
            self._latest = (
                progress.value if self._latest is None else max(self._latest, progress.value)
            )
        if not self._cursor.is_global:
            self._states.keep(opened.key, progress.state())
        del self._open_partitions[opened.key]
        opened.group.unread -= 1
        self._advance()

    def _advance(self) -> None:
        """Call the actions before which all partitions were read."""
        while not self._groups[0].unread and (action := self._groups[0].action) is not None:
            action()
            self._has_moved_parents = True
            self._groups.popleft()

    def _is_time(self) -> bool:
        return self._monotonic() - self._last_sent_time >= SECONDS

    def _warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            if len(self.warnings) < _MAX_WARNINGS and text not in self.warnings:
                self.warnings.append(text)


def _list_contexts(router: Router) -> Iterator[Context]:
    for item in _once(router.begin(None).items()):
        if isinstance(item, Partition):
            yield item.context
        else:
            item()


def _items(
    router: Router, routing: Routing, contexts: Sequence[Context] | None
) -> Iterator[Partition | Action]:
    """Yield all partitions, or those with some contexts.

    Raises:
        ConfigError: the stream has no partition with one of the contexts.
    """
    if contexts is None:
        yield from routing.items()
    elif router.must_list:
        yield from _select(routing, contexts)
    else:
        yield from map(router.partition_of, contexts)


def _select(routing: Routing, contexts: Sequence[Context]) -> Iterator[Partition | Action]:
    missing = {identity(context): context for context in contexts}
    for item in routing.items():
        if not isinstance(item, Partition):
            yield item
        elif missing.pop(identity(item.context), None) is not None:
            yield item
            if not missing:
                return
    if missing:
        raise ConfigError(
            f"the stream has no partition {next(iter(missing.values()))!r}",
            guidance="run `partitions` to see its partitions",
        )


def _once(items: Iterable[Partition | Action]) -> Iterator[Partition | Action]:
    """Yield each partition once: a parent stream may have several versions of a record."""
    seen: set[bytes] = set()
    for item in items:
        if not isinstance(item, Partition):
            yield item
        elif item.key not in seen:
            seen.add(item.key)
            yield item


def _mark_last(slices: Iterator[Slice]) -> Iterator[tuple[Slice, bool]]:
    """Yield each slice, and whether it is the last one."""
    current = next(slices, None)
    while current is not None:
        next_slice = next(slices, None)
        yield current, next_slice is None
        current = next_slice
