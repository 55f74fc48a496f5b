"""The cursors of the streams of a manifest.

A state may be the end of a period only if the API was asked for the time until that end. Otherwise the state
is the value of the last record: a record with an earlier value may become visible later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from connectors.declarative.cursors.count_cursor import CountCursor
from connectors.declarative.cursors.cursor import STATES, Cursor, State, ValueCursor, WholeStream
from connectors.declarative.cursors.datetime_cursor import DatetimeCursor
from connectors.declarative.cursors.per_partition import PartitionedCursor, RoutedStream
from connectors.declarative.cursors.routers import (
    ListRouter,
    Pages,
    ParentRouter,
    ProductRouter,
    Router,
    Stream,
)
from connectors.declarative.cursors.settings import text_of
from connectors.declarative.cursors.slices import END_NAME
from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.template import Template, TemplateMap
from elt_assets.errors import ConfigError

_SLICE = re.compile(r"\bstream_(?:interval|slice|partition)\b")
_NOT_SENT = frozenset({"record_selector", "partition_router", "decoder", "parameters", "place"})
"""Fields of a retriever whose templates are not parts of requests for its records."""


def sends_end(cursor: components.DatetimeBasedCursor, retriever: Any) -> bool:
    """Return whether requests carry the end of the interval: as `end_time_option`, or in a template."""
    if cursor.end_time_option is not None:
        return True
    end = cursor.partition_field_end
    name = re.compile(rf"\b{re.escape(end.text if end else END_NAME)}\b")
    return any(_SLICE.search(text) and name.search(text) for text in _texts(retriever))


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of a component, at any depth."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Template):
        yield content.text
    elif isinstance(content, TemplateMap | Mapping):
        for key, value in content.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value)
    elif isinstance(content, components.Component):
        for name in content.__struct_fields__:
            if name not in _NOT_SENT:
                yield from _texts(getattr(content, name))


Migration = Callable[[State], State]
"""Function that returns a state in the present form; a state that has another form unchanged."""


def legacy_migration(
    component: components.LegacyToPerPartitionStateMigration,
    stream: components.DeclarativeStream,
    config: Mapping[str, Any],
) -> Migration:
    """Return the migration that a LegacyToPerPartitionStateMigration describes.

    It changes `{"1": {"updated_at": "2024-01-01"}}`, the cursors by the keys of parent records, into a list.

    Raises:
        ConfigError: the stream has no partitions by a parent's key, or no cursor.
    """
    router = getattr(stream.retriever, "partition_router", None)
    cursor_field = text_of(getattr(stream.incremental_sync, "cursor_field", None), config)
    parents = getattr(router, "parent_stream_configs", None) or ()
    fields = [text_of(parent.partition_field, config) for parent in parents]
    if not fields or not cursor_field:
        raise ConfigError(
            f"{component.place} needs a stream with a parent stream and an incremental sync",
            guidance="remove it, or add them",
        )

    def migrate(state: State) -> State:
        if len(fields) != 1 or not _is_by_key(state, cursor_field):
            return state
        return {
            STATES: [
                {"partition": {fields[0]: key}, "cursor": dict(cursor)}
                for key, cursor in state.items()
            ]
        }

    return migrate


def _is_by_key(state: State, cursor_field: str) -> bool:
    """Return whether a state has an object with the cursor field alone for each key."""
    return bool(state) and all(
        isinstance(value, Mapping) and list(value) == [cursor_field] for value in state.values()
    )


class Cursors:
    """Makes the cursors of streams. All of them end at the time at which the first one was made, unless the
    manifest names an end: a response that streams share is never older than a state.

    Args:
        config: the config of the source.
        pages: requests the pages of parent streams.
    """

    def __init__(self, config: Mapping[str, Any], pages: Pages):
        self._config = config
        self._pages = pages
        self._sync_start: datetime | None = None
        self._cursors: dict[tuple[Stream, str | None], Cursor] = {}

    def get(self, stream: Stream, cursor_field: str | None = None) -> Cursor:
        """Return the cursor of a stream.

        Args:
            stream: the stream.
            cursor_field: the cursor field of the configured stream, where the manifest lets users choose it.

        Raises:
            ConfigError: the cursor or the partition router of the stream is not valid.
        """
        key = (stream, cursor_field)
        if key not in self._cursors:
            self._cursors[key] = self._make_cursor(stream, cursor_field)
        return self._cursors[key]

    def choose(
        self,
        stream: Stream,
        state: State,
        cursor_field: str | None = None,
    ) -> tuple[Cursor, State]:
        """Return the cursor of a stream, and the state with which to begin it.

        Raises:
            ConfigError: the stream is not valid.
        """
        for migration in self._list_migrations(stream):
            state = migration(state)
        return self.get(stream, cursor_field), state

    def make_router(self, stream: Stream) -> Router | None:
        """Return the router over the partitions of a stream; None if it has no partitions.

        Raises:
            ConfigError: the router is not valid.
        """
        component = getattr(stream.retriever, "partition_router", None)
        if isinstance(component, tuple):
            place = f"{stream.retriever.place}.partition_router"
            return (
                ProductRouter([self._make_single_router(part) for part in component], place)
                if component
                else None
            )
        return None if component is None else self._make_single_router(component)

    def _make_cursor(self, stream: Stream, cursor_field: str | None) -> Cursor:
        router, component = self.make_router(stream), stream.incremental_sync
        if component is None:
            return WholeStream() if router is None else RoutedStream(router)
        cursor = self._make_value_cursor(stream, component, cursor_field)
        if router is None or not isinstance(cursor, ValueCursor):
            return cursor
        is_global = bool(getattr(component, "global_substream_cursor", False))
        return PartitionedCursor(router, cursor, is_global=is_global)

    def _make_value_cursor(
        self,
        stream: Stream,
        component: components.DatetimeBasedCursor | components.IncrementingCountCursor,
        cursor_field: str | None,
    ) -> Cursor:
        if isinstance(component, components.DatetimeBasedCursor):
            self._sync_start = self._sync_start or clock.now()
            has_end = sends_end(component, stream.retriever)
            return DatetimeCursor(
                component, self._config, cursor_field, self._sync_start, sends_end=has_end
            )
        return CountCursor(component, self._config, cursor_field)

    def _make_single_router(
        self, component: components.ListPartitionRouter | components.SubstreamPartitionRouter
    ) -> Router:
        if isinstance(component, components.ListPartitionRouter):
            return ListRouter(component, self._config)
        return ParentRouter(component, self._config, self._pages, self.choose)

    def _list_migrations(self, stream: Stream) -> Iterator[Migration]:
        for component in stream.state_migrations:
            yield legacy_migration(component, stream, self._config)
