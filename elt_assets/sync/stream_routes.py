"""The streams of a sync by the names that messages use for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.streams import StreamRun


class StreamRoutes(Mapping[StreamId, StreamRun]):
    """A mapping from the stream name of a message to the configured stream.

    Some sources omit the namespace in their messages. Such a message belongs to the configured stream of
    that name, if there is exactly one. Iteration yields the configured names only.

    Attributes:
        direct: every name that was resolved so far; the hot path looks here first.
    """

    def __init__(self) -> None:
        self.direct: dict[tuple[str, str | None], StreamRun] = {}
        self._configured: dict[StreamId, StreamRun] = {}
        self._by_name: dict[str, list[StreamRun]] = {}

    def add(self, run: StreamRun) -> None:
        self._configured[run.configured.id] = run
        self.direct[run.configured.id] = run
        self._by_name.setdefault(run.configured.id.name, []).append(run)

    def __getitem__(self, stream: StreamId) -> StreamRun:
        if stream not in self.direct:
            namesakes = self.namesakes(stream)
            if len(namesakes) != 1:
                raise KeyError(stream)
            self.direct[stream] = namesakes[0]
        return self.direct[stream]

    def __iter__(self) -> Iterator[StreamId]:
        return iter(self._configured)

    def __len__(self) -> int:
        return len(self._configured)

    def namesakes(self, stream: StreamId) -> list[StreamRun]:
        """Return the configured streams of the same name; an empty list if `stream` has a namespace."""
        return self.same_name(stream) if stream.namespace is None else []

    def same_name(self, stream: StreamId) -> list[StreamRun]:
        """Return the configured streams of the same name, whatever their namespaces."""
        return self._by_name.get(stream.name, [])
