"""Partition routers: which partitions a stream has.

A list, the records of parent streams, and all combinations of several routers.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from msgspec import Raw

from connectors.declarative import paths
from connectors.declarative.cursors.cursor import (
    GLOBAL_STATE,
    PARENT_STATE,
    RESERVED,
    Cursor,
    Page,
    Progress,
    State,
    read_slice,
)
from connectors.declarative.cursors.settings import Settings, text_of
from connectors.declarative.cursors.slices import Option, Slice, options_of, place_if_any
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.sdk.items import Context, Record
from connectors.sdk.state.partitions import identity
from elt_assets.errors import ConfigError

PARENT_SLICE = "parent_slice"
"""Name of the value of a partition that is the parent record's own partition."""


@dataclass(frozen=True)
class Partition:
    """One partition: the values that identify it, and values that come with it."""

    values: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> bytes:
        """What tells the partition apart from others."""
        return identity(dict(self.values))

    @property
    def context(self) -> Context:
        """The context by which the partition is listed and read alone."""
        return {name: value for name, value in self.values.items() if name != PARENT_SLICE or value}


Action = Callable[[], None]
"""Function to call when all partitions before it were read: it moves the state of a parent stream."""


class Routing(ABC):
    """The partitions of one read.

    Attributes:
        warnings: what the user should know about the parent streams, one line each.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []

    @abstractmethod
    def items(self) -> Iterator[Partition | Action]:
        """Yield the partitions, with actions between them. A partition may come more than once.

        Raises:
            EltError: a parent stream cannot be read.
        """

    def parent_state(self) -> dict[str, Raw]:
        """Return the states of the parent streams by name, as far as the actions were called."""
        return {}


class Router(ABC):
    """The partitions of a stream, as its manifest describes them.

    Attributes:
        place: the place of the router in the manifest.
        names: the names of the values of a partition, without `PARENT_SLICE`. Each set is one kind of
            partitions.
        has_parents: whether partitions have a `PARENT_SLICE`.
        must_list: whether a partition is known only when all of them are listed.
    """

    place: str
    names: Sequence[frozenset[str]]
    has_parents = False
    must_list = False

    @abstractmethod
    def begin(self, state: State | None) -> Routing:
        """Return the partitions to read.

        Args:
            state: the state of the stream, which has the states of its parents; None to read parents
                from their start.
        """

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        """Yield the values that a partition puts into requests."""
        del partition
        return iter(())

    def partition_of(self, context: Context) -> Partition:
        """Return the partition with a context, for a router that need not list them.

        Raises:
            ConfigError: the stream has no partition with these values.
        """
        if frozenset(context) - {PARENT_SLICE} not in self.names:
            expected = " or ".join(str(sorted(names)) for names in self.names)
            raise ConfigError(
                f"{context!r} is not a partition of the stream, whose partitions have {expected}",
                guidance="run `partitions` to see them",
            )
        values = {PARENT_SLICE: {}, **context} if self.has_parents else dict(context)
        return Partition(values)


class FixedRouting(Routing):
    """Partitions without parents."""

    def __init__(self, partitions: Sequence[Partition]):
        super().__init__()
        self._partitions = partitions

    def items(self) -> Iterator[Partition | Action]:
        yield from self._partitions


class ListRouter(Router):
    """The router that a ListPartitionRouter describes: a partition for each value of a list.

    Args:
        component: the component.
        config: the config of the source.

    Raises:
        ConfigError: the values are not a list. A missing or empty value of the config is an empty list.
    """

    def __init__(self, component: components.ListPartitionRouter, config: Mapping[str, Any]):
        settings = Settings(component, config)
        self.place = component.place
        self.name = settings.require("cursor_field")
        self.names = [frozenset({self.name})]
        self._place = place_if_any(component.request_option, config)
        self._values = _list_values(component, config)

    def begin(self, state: State | None) -> Routing:
        del state
        return FixedRouting([Partition({self.name: value}) for value in self._values])

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        return options_of({self.name: self._place}, partition)


def _list_values(component: components.ListPartitionRouter, config: Mapping[str, Any]) -> list[Any]:
    if not isinstance(component.values, Template):
        return list(component.values)
    values = component.values.evaluate_or(None, {"config": config})
    if values is None:
        return []
    if not isinstance(values, list | tuple):
        raise ConfigError(
            f"{component.place}.values does not give a list: {component.values.text!r}",
            guidance="write a list, or correct the value of the config that it uses",
        )
    return list(values)


class ProductRouter(Router):
    """All combinations of the partitions of several routers; the last one changes first.

    The parents of these routers are always read from their start: a partition of one router is combined with
    all partitions of the others, also with those of parents that did not change.

    Args:
        routers: the routers. Where two have the same name, or put a value in the same place of a request, the
            first one counts.
        place: the place of the list in the manifest.
    """

    def __init__(self, routers: Sequence[Router], place: str):
        self.place = place
        self._routers = routers
        kinds = itertools.product(*(router.names for router in routers))
        self.names = [frozenset().union(*kind) for kind in kinds]
        self.has_parents = any(router.has_parents for router in routers)
        self.must_list = any(router.must_list for router in routers)

    def begin(self, state: State | None) -> Routing:
        del state
        return _Product([router.begin(None) for router in self._routers])

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        for router in reversed(self._routers):
            yield from router.options(partition)


class _Product(Routing):
    def __init__(self, parts: Sequence[Routing]):
        super().__init__()
        self._parts = parts

    def items(self) -> Iterator[Partition | Action]:
        first, *others = (_partitions(part.items()) for part in self._parts)
        rest = [list(partitions) for partitions in others]
        for outer in first:
            for inner in itertools.product(*rest):
                yield _join([outer, *inner])
        for part in self._parts:
            self.warnings.extend(part.warnings)


def _join(parts: Sequence[Partition]) -> Partition:
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for part in reversed(parts):
        values.update(part.values)
        extra.update(part.extra)
    return Partition(values, extra)


def _partitions(items: Iterable[Partition | Action]) -> Iterator[Partition]:
    """Yield the partitions; the actions between them are called at once."""
    for item in items:
        if isinstance(item, Partition):
            yield item
        else:
            item()


Stream = components.DeclarativeStream
Pages = Callable[[Stream, Slice, Sequence[Option]], Iterable[Page]]
"""Function that requests the pages of a slice of a stream, with the values that it puts into requests."""
Choice = Callable[[Stream, State], tuple[Cursor, State]]
"""Function that returns the cursor of a stream, and the state to begin with."""

CHILD_RESPONSE = "child_response"
"""Name of the extra value with the child's first page, where a parent record contains it."""


class ParentRouter(Router):
    """The router that a SubstreamPartitionRouter describes.

    Args:
        component: the component.
        config: the config of the source.
        pages: requests the pages of parent streams.
        choose: chooses how a parent stream is read.

    Raises:
        ConfigError: the component is not valid.
    """

    has_parents = True

    def __init__(
        self,
        component: components.SubstreamPartitionRouter,
        config: Mapping[str, Any],
        pages: Pages,
        choose: Choice,
    ):
        self.place = component.place
        self._pages = pages
        self._choose = choose
        self.parents = [
            _Parent(config_of_parent, config)
            for config_of_parent in component.parent_stream_configs
        ]
        self.names = [frozenset({parent.field}) for parent in self.parents]
        self.must_list = any(parent.has_extra for parent in self.parents)
        if not self.parents:
            raise ConfigError(
                f"{self.place} has no parent streams", guidance="write `parent_stream_configs`"
            )

    def begin(self, state: State | None) -> Routing:
        return _ParentRouting(self.parents, state, self._pages, self._choose)

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        return options_of({parent.field: parent.place for parent in self.parents}, partition)


class _Parent:
    """One parent stream, and what of its records makes a partition."""

    def __init__(self, component: components.ParentStreamConfig, config: Mapping[str, Any]):
        settings = Settings(component, config)
        self.stream = component.stream
        cursor = self.stream.incremental_sync
        self._cursor_field = text_of(getattr(cursor, "cursor_field", None), config)
        self.is_incremental = component.incremental_dependency
        self.field = settings.require("partition_field")
        self.place = place_if_any(component.request_option, config)
        self._key = [part for part in settings.require("parent_key").split("/") if part]
        self._extra = [
            [text_of(part, config) for part in path] for path in component.extra_fields or ()
        ]
        self._pointer = [text_of(part, config) for part in component.lazy_read_pointer or ()]
        if any("*" in part for part in self._pointer):
            raise ConfigError(
                f"{settings.place('lazy_read_pointer')} has a `*`",
                guidance="write the names of the fields",
            )

    @property
    def has_extra(self) -> bool:
        """Return whether a partition has values of the parent record that do not identify it."""
        return bool(self._extra or self._pointer)

    def partition(
        self, record: Record, stream_slice: Slice, *, has_state: bool
    ) -> Partition | None:
        """Return the partition for a record; None for a record without the key."""
        key = _first_value(record, self._key)
        if key is None:
            return None
        extra = {".".join(path): _first_value(record, path) for path in self._extra}
        if self._pointer and not has_state:
            extra[CHILD_RESPONSE] = _first_value(record, self._pointer, [])
        return Partition({self.field: key, PARENT_SLICE: dict(stream_slice.partition)}, extra)

    def state_in(self, state: State) -> State:
        """Return the state of the parent that the state of its child has, also in one of the older forms."""
        states = state.get(PARENT_STATE)
        if isinstance(states, Mapping):
            return states.get(self.stream.name) or {}
        if isinstance(state.get(GLOBAL_STATE), Mapping):
            return dict(state[GLOBAL_STATE])
        values = [value for name, value in state.items() if name not in RESERVED]
        if len(values) == 1 and self._cursor_field and not isinstance(values[0], Mapping | list):
            return {self._cursor_field: values[0]}
        return {}


class _ParentRouting(Routing):
    """One read of the parent streams. The reads of those that have a state begin at once: the child is not
    read up to an earlier time than they are, so that no child of a parent that has just changed is left out.
    """

    def __init__(
        self, parents: Sequence[_Parent], state: State | None, pages: Pages, choose: Choice
    ):
        super().__init__()
        self._is_tracked = state is not None
        self._state = state or {}
        self._pages = pages
        self._choose = choose
        self._reads = [
            (parent, self._start_read(parent) if self._tracks(parent) else None)
            for parent in parents
        ]
        self._progress = {
            parent.stream.name: progress for parent, progress in self._reads if progress is not None
        }

    def items(self) -> Iterator[Partition | Action]:
        for parent, progress in self._reads:
            yield from self._items_of(parent, progress or self._start_read(parent))

    def parent_state(self) -> dict[str, Raw]:
        return {name: progress.encode() for name, progress in self._progress.items()}

    def _tracks(self, parent: _Parent) -> bool:
        return self._is_tracked and parent.is_incremental

    def _start_read(self, parent: _Parent) -> Progress:
        saved = parent.state_in(self._state) if self._tracks(parent) else {}
        cursor, state = self._choose(parent.stream, saved)
        return cursor.begin(state)

    def _items_of(self, parent: _Parent, progress: Progress) -> Iterator[Partition | Action]:
        stream = parent.stream
        tracks = self._tracks(parent)
        for stream_slice in progress.slices():
            pages = self._pages(stream, stream_slice, progress.options(stream_slice))
            for page in read_slice(progress, stream_slice, pages):
                for record in page:
                    partition = parent.partition(record, stream_slice, has_state=bool(self._state))
                    if partition is not None:
                        yield partition
            yield from _now_or_later(partial(progress.close, stream_slice), is_later=tracks)
        yield from _now_or_later(progress.finish, is_later=tracks)
        self.warnings.extend(
            f"parent stream {stream.name!r}: {warning}" for warning in progress.warnings
        )


def _now_or_later(action: Action, *, is_later: bool) -> Iterator[Action]:
    """Yield an action, to be called when the partitions before it were read; or call it now."""
    if is_later:
        yield action
    else:
        action()


def _first_value(record: Record, path: Sequence[str], default: Any = None) -> Any:
    return next(iter(paths.values_at(record, path)), default)
