"""The streams of a sync by the names that messages give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.streams import StreamRun


class StreamRoutes(Mapping[StreamId, StreamRun]):
    """Finds the stream that a message means; iterates over the configured streams alone.

    Some sources leave the namespace out of their messages. Such a message means the configured stream of
    that name, where there is only one.

    Attributes:
        direct: all names found so far; the hot path looks here first.
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
        """The streams that a message without a namespace may mean."""
        return self._by_name.get(stream.name, []) if stream.namespace is None else []
