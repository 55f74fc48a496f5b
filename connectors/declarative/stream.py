"""Streams of a manifest, as streams of the SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from connectors.declarative.cursors.cursor import Cursor, State, read_slice
from connectors.declarative.cursors.settings import text_of
from connectors.declarative.manifest import components
from connectors.declarative.readers import AnyStream, Readers
from connectors.declarative.reading import read_slices
from connectors.declarative.requests.files import FileDownloads
from connectors.sdk.items import Context, Item, Page
from connectors.sdk.named_partitions import find_named_partitions
from connectors.sdk.reports import report_warning
from connectors.sdk.stream import Stream
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

_LOCAL = (components.InlineSchemaLoader, components.JsonFileSchemaLoader)
"""The schema loaders that send no requests."""


class ManifestStream(Stream):
    """A stream of a manifest.

    Args:
        component: its component.
        readers: the retrievers and cursors of the manifest.
        threads: the number of slices that are read at the same time.
    """

    def __init__(self, component: AnyStream, readers: Readers, threads: int = 1):
        self.name = component.name
        self.place = component.place
        self._component = component
        self._readers = readers
        self._threads = threads
        self.primary_key = _key(self._described.primary_key)
        self.is_file_based = self._described.file_uploader is not None
        cursor = self._cursor_component
        if cursor is not None:
            self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
            field = text_of(getattr(cursor, "cursor_field", None), readers.environment.config)
            self.cursor_field = [field] if field else []
            is_chosen_by_user = getattr(cursor, "allow_catalog_defined_cursor_field", False)
            self.source_defined_cursor = not is_chosen_by_user

    @cached_property
    def json_schema(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The JSON schema of a record; an API may have to be asked for it.

        Raises:
            EltError: the schema cannot be loaded.
        """
        return self._readers.schema(self._described)

    def schema_to_check(self, configured: ConfiguredStream) -> Mapping[str, Any]:
        """Return the stream's schema; the schema of the catalog if otherwise an API must be asked."""
        loader = self._described.schema_loader
        loaders = loader if isinstance(loader, tuple) else (loader,)
        is_local = all(
            loader_part is None or isinstance(loader_part, _LOCAL) for loader_part in loaders
        )
        return self.json_schema if is_local else configured.stream.json_schema

    def partitions(self) -> Iterable[Context] | None:
        """Return the partitions, or the intervals of a cursor with a `step`; None if there are none."""
        _, cursor, _ = self._choose({}, is_partition=True)
        return cursor.contexts()

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        is_incremental = configured.sync_mode == INCREMENTAL
        self._readers.select(self.name, configured.stream.json_schema)
        partitions = find_named_partitions(configured)
        stream, cursor, remaining = self._choose(
            state if state is not None and is_incremental else {},
            ".".join(configured.cursor_field or ()) or None,
            is_partition=partitions is not None,
        )
        progress = cursor.begin(remaining)
        retriever = self._readers.retriever(stream)
        items = read_slices(
            progress,
            progress.slices(partitions),
            lambda stream_slice: retriever.pages(stream_slice, progress.options(stream_slice)),
            threads=self._threads,
            sends_states=is_incremental,
            report=self._readers.environment.report,
        )
        if configured.has_documents and stream.file_uploader is not None:
            downloads = FileDownloads(stream.file_uploader, self._readers.environment, self.name)
            items = _attach_files(items, downloads)
        yield from items

    def check(self) -> None:
        """Read the first page of the first slice, and report what the user should know about it.

        Raises:
            EltError: it cannot be read.
        """
        stream, cursor, state = self._choose({})
        progress = cursor.begin(state)
        for stream_slice in progress.slices():
            pages = self._readers.retriever(stream).pages(
                stream_slice, progress.options(stream_slice)
            )
            with closing(read_slice(progress, stream_slice, pages)) as records:
                next(records, None)
            for warning in progress.warnings:
                report_warning(f"stream {self.name!r}: {warning}")
            return

    def lacks_overlap(self) -> bool:
        """Return whether a record that the API shows later than its cursor value says may be missed.

        Raises:
            ConfigError: the stream is not valid.
        """
        _, cursor, _ = self._choose({}, is_partition=True)
        return cursor.lacks_overlap()

    def _choose(
        self, state: State, cursor_field: str | None = None, *, is_partition: bool = False
    ) -> tuple[components.DeclarativeStream, Cursor, State]:
        """Return the stream to read, its cursor, and the state to begin with. Partitions are those of the
        stream that is read incrementally, whatever the state."""
        component = self._component
        if is_partition and isinstance(component, components.StateDelegatingStream):
            component = component.incremental_stream
        return self._readers.cursors.choose(component, state, cursor_field)

    @property
    def _described(self) -> components.DeclarativeStream:
        """The component whose schema and key are in the catalog."""
        if isinstance(self._component, components.StateDelegatingStream):
            return self._component.full_refresh_stream
        return self._component

    @property
    def _cursor_component(self) -> components.Component | None:
        component = self._component
        if isinstance(component, components.StateDelegatingStream):
            streams = (component.full_refresh_stream, component.incremental_stream)
            return next(filter(None, (stream.incremental_sync for stream in streams)), None)
        return component.incremental_sync


def _attach_files(items: Iterator[Item], downloads: FileDownloads) -> Iterator[Item]:
    """Yield the items of a read, with the file of each record."""
    with closing(items):  # type: ignore[type-var] # a generator
        for item in items:
            if isinstance(item, Page):
                yield from map(downloads.attach, item.records)
            else:
                yield item


def _key(primary_key: str | Sequence[str | Sequence[str]]) -> Sequence[str | Sequence[str]]:
    if isinstance(primary_key, str):
        return (primary_key,) if primary_key else ()
    return primary_key
