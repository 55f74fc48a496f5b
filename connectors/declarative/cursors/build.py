"""The cursors of the streams of a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from connectors.declarative.cursors.count_cursor import CountCursor
from connectors.declarative.cursors.cursor import Cursor, State, ValueCursor, WholeStream
from connectors.declarative.cursors.datetime_cursor import DatetimeCursor
from connectors.declarative.cursors.older_states import Migration, legacy_migration
from connectors.declarative.cursors.per_partition import PartitionedCursor, RoutedStream
from connectors.declarative.cursors.period_end import sends_end
from connectors.declarative.cursors.routers.parents import Pages, ParentRouter, Stream
from connectors.declarative.cursors.routers.product import ProductRouter
from connectors.declarative.cursors.routers.router import ListRouter, Router
from connectors.declarative.manifest import clock, components


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
