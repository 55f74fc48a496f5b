"""Streams of a manifest, as streams of the SDK: their retrievers and cursors, and how they are read.

The slices of a stream are read in one thread or in several. Records of slices that are read at the same time
are interleaved. A state covers a slice only after all its records were yielded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from threading import RLock
from typing import Any

from connectors.declarative.cursors.build import Cursors
from connectors.declarative.cursors.cursor import Progress, read_slice
from connectors.declarative.cursors.settings import text_of
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import DeclarativeStream
from connectors.declarative.requests.building import build_retriever
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.retriever import Retriever
from connectors.declarative.requests.schemas import load_schema
from connectors.sdk.http.failures import AccessRefused
from connectors.sdk.items import Checkpoint, Context, Item, Page, Record, Warn
from connectors.sdk.named_partitions import find_named_partitions
from connectors.sdk.reports import report_warning
from connectors.sdk.stream import Stream
from connectors.sdk.team import run_jobs
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

Schema = Mapping[str, Any]


class Readers:
    """Makes the retriever, the cursor and the schema of each stream when it is first needed.

    Args:
        environment: what the requesters share.
        streams: the streams to read. The responses of a stream that several of them need are kept: as itself,
            or as a parent of others.

    Attributes:
        cursors: the cursors of the streams.
        environment: what the requesters share.
    """

    def __init__(self, environment: Environment, streams: Iterable[DeclarativeStream] = ()):
        self.environment = environment
        self.cursors = Cursors(environment.config, self.pages)
        needed = Counter(
            shared_stream.name
            for stream in streams
            for shared_stream in (stream, *_parents(stream))
        )
        self._shared = {name for name, number in needed.items() if number > 1}
        self._retrievers: dict[DeclarativeStream, Retriever] = {}
        self._schemas: dict[DeclarativeStream, Schema] = {}
        self._lock = RLock()

    def pages(
        self, stream: DeclarativeStream, stream_slice: Slice, options: Sequence[Option]
    ) -> Iterator[list[Record]]:
        """Return the pages of a slice of a stream, with the values that the slice puts into requests."""
        return self.retriever(stream).pages(stream_slice, options)

    def retriever(self, stream: DeclarativeStream) -> Retriever:
        """Return the retriever of a stream.

        Raises:
            ConfigError: a component of the stream is not valid.
        """
        with self._lock:
            if stream not in self._retrievers:
                cursor = stream.incremental_sync
                self._retrievers[stream] = build_retriever(
                    stream.retriever,
                    self.environment,
                    name=stream.name,
                    transformations=stream.transformations,
                    schema=partial(self.schema, stream),
                    is_client_side=bool(getattr(cursor, "is_client_side_incremental", False)),
                    use_cache=stream.name in self._shared,
                )
            return self._retrievers[stream]

    def schema(self, stream: DeclarativeStream) -> Schema:
        """Return the JSON schema of a stream.

        Raises:
            ConfigError: its file is missing or not valid.
            EltError: the API that describes the schema fails.
        """
        with self._lock:
            if stream not in self._schemas:
                self._schemas[stream] = load_schema(
                    stream.schema_loader, self.environment, stream.name
                )
            return self._schemas[stream]


def _parents(stream: DeclarativeStream) -> Iterator[DeclarativeStream]:
    """Yield the parent streams of a stream, and theirs."""
    routers = getattr(stream.retriever, "partition_router", None)
    for router in routers if isinstance(routers, tuple) else (routers,):
        for config in getattr(router, "parent_stream_configs", None) or ():
            yield config.stream
            yield from _parents(config.stream)


MAX_FAILURES = 10
"""Number of partitions that may fail before the other ones are not read any more."""

Pages = Callable[[Slice], Iterable[list[Record]]]
"""Requests the pages of a slice."""
Report = Callable[[], object]


def read_slices(
    progress: Progress,
    slices: Iterator[Slice],
    pages: Pages,
    *,
    threads: int,
    sends_states: bool,
    report: Report = lambda: None,
) -> Iterator[Item]:
    """Yield the records of slices, and a checkpoint wherever a later read can resume.

    Args:
        progress: the progress of the read.
        slices: the slices to read.
        pages: requests the pages of a slice.
        threads: the number of slices that are read at the same time.
        sends_states: whether checkpoints are yielded.
        report: called often by the thread that uses the items: reports what other threads must not report.

    Raises:
        EltError: a slice cannot be read. The last checkpoint before it covers all slices that were complete.
            The other partitions of the stream are read first, unless `MAX_FAILURES` of them fail.
    """
    states = _States(progress, are_sent=sends_states)
    try:
        read = partial(_steps, progress, pages)
        with closing(run_jobs(slices, read, threads=threads, report=report)) as steps:
            yield from _items(progress, states, steps)
    except Exception:
        yield from states.send_pending()
        raise
    progress.finish()
    yield from map(Warn, progress.warnings)
    yield from states.send_last()


class _States:
    """The checkpoints of one read."""

    def __init__(self, progress: Progress, *, are_sent: bool):
        self._progress = progress
        self._are_sent = are_sent
        self._is_pending = False
        self._last_checkpoint: Checkpoint | None = None

    def send_after_slice(self) -> Iterator[Checkpoint]:
        """Yield the state after a slice that was closed, if it is due."""
        self._is_pending = True
        if self._are_sent and self._progress.is_due():
            yield from self.send_pending()

    def send_pending(self) -> Iterator[Checkpoint]:
        """Yield the state, if slices were closed since the one before."""
        if self._are_sent and self._is_pending:
            self._last_checkpoint, self._is_pending = Checkpoint(self._progress.encode()), False
            yield self._last_checkpoint

    def send_last(self) -> Iterator[Checkpoint]:
        """Yield the state at the end of the read, unless it is the one before."""
        last = Checkpoint(self._progress.encode())
        if self._are_sent and last != self._last_checkpoint:
            yield last


Step = tuple[Slice, list[Record] | EltError | None]
"""A slice and a page of it. After the last page, None is in its place, or the error that ended the slice."""


def _items(progress: Progress, states: _States, steps: Iterator[Step]) -> Iterator[Item]:
    failures: list[EltError] = []
    for stream_slice, outcome in steps:
        if isinstance(outcome, EltError):
            failures.append(outcome)
            if _ends_stream(stream_slice, outcome) or len(failures) >= MAX_FAILURES:
                break
        elif outcome is not None:
            yield Page(outcome)
        else:
            progress.close(stream_slice)
            yield from states.send_after_slice()
    if failures:
        raise _combine(failures)


def _ends_stream(stream_slice: Slice, error: EltError) -> bool:
    """Return whether an error is not one of a partition alone: others would fail likewise."""
    is_general = isinstance(error, ConfigError) and not isinstance(error, AccessRefused)
    return not stream_slice.partition or is_general


def _combine(failures: Sequence[EltError]) -> EltError:
    first = failures[0]
    if len(failures) > 1:
        first.message += f"; {len(failures) - 1} more partitions failed"
        first.args = (first.message,)
    return first


def _steps(progress: Progress, pages: Pages, stream_slice: Slice) -> Iterator[Step]:
    try:
        for page in read_slice(progress, stream_slice, pages(stream_slice)):
            yield stream_slice, page
    except EltError as error:
        yield stream_slice, error
    else:
        yield stream_slice, None


_LOCAL = (components.InlineSchemaLoader, components.JsonFileSchemaLoader)
"""The schema loaders that send no requests."""


class ManifestStream(Stream):
    """A stream of a manifest.

    Args:
        component: its component.
        readers: the retrievers and cursors of the manifest.
        threads: the number of slices that are read at the same time.
    """

    def __init__(self, component: DeclarativeStream, readers: Readers, threads: int = 1):
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
