"""SubstreamPartitionRouter: a partition for each record of parent streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Raw

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
from connectors.declarative.cursors.routers.router import (
    PARENT_SLICE,
    Action,
    Partition,
    Router,
    Routing,
)
from connectors.declarative.cursors.settings import Settings, text_of
from connectors.declarative.cursors.slices import Option, Slice, injection, options_of
from connectors.declarative.manifest import components
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError

Stream = components.DeclarativeStream
Pages = Callable[[Stream, Slice, Sequence[Option]], Iterable[Page]]
"""Function that requests the pages of a slice of a stream, with the values that it puts into requests."""
Choice = Callable[[Stream, State], tuple[Cursor, State]]
"""Function that returns the cursor of a stream, and the state to begin with."""

CHILD_RESPONSE = "child_response"
"""Name of the extra value with the child's first page, where a parent record contains it."""

_MISSING = object()


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
        return options_of({parent.field: parent.injection for parent in self.parents}, partition)


class _Parent:
    """One parent stream, and what of its records makes a partition."""

    def __init__(self, component: components.ParentStreamConfig, config: Mapping[str, Any]):
        settings = Settings(component, config)
        self.stream = component.stream
        cursor = self.stream.incremental_sync
        self._cursor_field = text_of(getattr(cursor, "cursor_field", None), config)
        self.is_incremental = component.incremental_dependency
        self.field = settings.require("partition_field")
        self.injection = injection(component.request_option, config)
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
        key = _find_value(record, self._key)
        if key is _MISSING or key is None:
            return None
        extra = {
            ".".join(path): None if (part := _find_value(record, path)) is _MISSING else part
            for path in self._extra
        }
        if self._pointer and not has_state:
            response = _find_value(record, self._pointer)
            extra[CHILD_RESPONSE] = [] if response is _MISSING else response
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


def _find_value(record: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of a record; `_MISSING` if there is none. `*` is the first of all fields or
    items that has the rest of the path."""
    for number, part in enumerate(path):
        if part == "*":
            below = record.values() if isinstance(record, Mapping) else record
            rest = path[number + 1 :]
            candidates = (
                _find_value(part_below, rest) for part_below in below if isinstance(below, Iterable)
            )
            return next(
                (candidate for candidate in candidates if candidate is not _MISSING), _MISSING
            )
        if isinstance(record, Mapping) and part in record:
            record = record[part]
        elif isinstance(record, list) and part.isdigit() and int(part) < len(record):
            record = record[int(part)]
        else:
            return _MISSING
    return record
