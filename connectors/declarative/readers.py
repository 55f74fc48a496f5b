"""Retrievers and cursors of the streams of one manifest with one config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import Any

from connectors.declarative.cursors.build import Cursors
from connectors.declarative.cursors.cursor import Page
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.requests import Environment, Retriever, build_retriever, load_schema

Stream = components.DeclarativeStream
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

    def __init__(self, environment: Environment, streams: Iterable[Stream] = ()):
        self.environment = environment
        self.cursors = Cursors(environment.config, self.pages)
        needed = Counter(
            shared_stream.name
            for stream in streams
            for shared_stream in (stream, *_parents(stream))
        )
        self._shared = {name for name, number in needed.items() if number > 1}
        self._retrievers: dict[Stream, Retriever] = {}
        self._schemas: dict[Stream, Schema] = {}
        self._lock = RLock()

    def pages(
        self, stream: Stream, stream_slice: Slice, options: Sequence[Option]
    ) -> Iterator[Page]:
        """Return the pages of a slice of a stream, with the values that the slice puts into requests."""
        return self.retriever(stream).pages(stream_slice, options)

    def retriever(self, stream: Stream) -> Retriever:
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

    def schema(self, stream: Stream) -> Schema:
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


def _parents(stream: Stream) -> Iterator[Stream]:
    """Yield the parent streams of a stream, and theirs."""
    routers = getattr(stream.retriever, "partition_router", None)
    for router in routers if isinstance(routers, tuple) else (routers,):
        for config in getattr(router, "parent_stream_configs", None) or ():
            yield config.stream
            yield from _parents(config.stream)
