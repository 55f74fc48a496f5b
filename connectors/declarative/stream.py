"""Streams of a manifest, as streams of the SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from connectors.declarative.cursors.cursor import read_slice
from connectors.declarative.cursors.settings import text_of
from connectors.declarative.manifest import components
from connectors.declarative.readers import Readers
from connectors.declarative.reading import read_slices
from connectors.sdk.items import Context, Item
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

    def __init__(self, component: components.DeclarativeStream, readers: Readers, threads: int = 1):
        self.name = component.name
        self.place = component.place
        self._component = component
        self._readers = readers
        self._threads = threads
        self.primary_key = _key(component.primary_key)
        cursor = component.incremental_sync
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
        return self._readers.schema(self._component)

    def schema_to_check(self, configured: ConfiguredStream) -> Mapping[str, Any]:
        """Return the stream's schema; the schema of the catalog if otherwise an API must be asked."""
        loader = self._component.schema_loader
        loaders = loader if isinstance(loader, tuple) else (loader,)
        is_local = all(
            loader_part is None or isinstance(loader_part, _LOCAL) for loader_part in loaders
        )
        return self.json_schema if is_local else configured.stream.json_schema

    def partitions(self) -> Iterable[Context] | None:
        """Return the partitions, or the intervals of a cursor with a `step`; None if there are none."""
        return self._readers.cursors.get(self._component).contexts()

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        is_incremental = configured.sync_mode == INCREMENTAL
        partitions = find_named_partitions(configured)
        cursor, remaining = self._readers.cursors.choose(
            self._component,
            state if state is not None and is_incremental else {},
            ".".join(configured.cursor_field or ()) or None,
        )
        progress = cursor.begin(remaining)
        retriever = self._readers.retriever(self._component)
        yield from read_slices(
            progress,
            progress.slices(partitions),
            lambda stream_slice: retriever.pages(stream_slice, progress.options(stream_slice)),
            threads=self._threads,
            sends_states=is_incremental,
            report=self._readers.environment.report,
        )

    def check(self) -> None:
        """Read the first page of the first slice, and report what the user should know about it.

        Raises:
            EltError: it cannot be read.
        """
        cursor, state = self._readers.cursors.choose(self._component, {})
        progress = cursor.begin(state)
        for stream_slice in progress.slices():
            pages = self._readers.retriever(self._component).pages(
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
        return self._readers.cursors.get(self._component).lacks_overlap()


def _key(primary_key: str | Sequence[str | Sequence[str]]) -> Sequence[str | Sequence[str]]:
    if isinstance(primary_key, str):
        return (primary_key,) if primary_key else ()
    return primary_key
