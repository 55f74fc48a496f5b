"""A stream: what it is called, what its records look like, and how they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elt_assets.protocol.airbyte.catalog import (
    FULL_REFRESH,
    AirbyteStream,
    ConfiguredStream,
    StreamId,
)

Record = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """All records yielded so far are behind `state`: a later read given it yields only the rest."""

    state: dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """How many rows this read is going to yield, as far as the source can tell."""

    rows: int


Item = Record | Checkpoint | Estimate


class Stream(ABC):
    """Something that a source offers to read. Subclasses set the attributes, on class or instance.

    spec: AirbyteStream. `cursor_field` is the `default_cursor_field`, `primary_key` the
    `source_defined_primary_key`; left empty, they are not declared.
    """

    name: str
    json_schema: dict[str, Any]
    namespace: str | None = None
    primary_key: Sequence[Sequence[str]] = ()
    cursor_field: Sequence[str] = ()
    source_defined_cursor: bool = False
    is_resumable: bool = False
    supported_sync_modes: Sequence[str] = (FULL_REFRESH,)

    @abstractmethod
    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield records, a `Checkpoint` wherever a later read could go on, perhaps an `Estimate`.

        `state` is what the last acknowledged checkpoint said; None at the beginning, which that of
        a full refresh is unless it goes on with one that was interrupted (`is_resumable`). A record's
        values are what `msgspec.json` encodes; it turns NaN and the infinities into null, so a stream
        that can meet them must say them in another way.

        Raises:
            EltError: of the branch whose members must act. This stream fails, the others go on.
        """

    def has_news(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool | None:
        """Whether a read from this state would yield anything, told without reading; None: it cannot be
        told. Asked often (`probe`), so it must be cheap: a maximum, a count, an ETag.

        Raises:
            EltError: the source cannot be asked.
        """
        del configured, state
        return None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    def describe(self) -> AirbyteStream:
        """The stream as `discover` shows it."""
        return AirbyteStream(
            name=self.name,
            namespace=self.namespace,
            json_schema=self.json_schema,
            supported_sync_modes=list(self.supported_sync_modes),
            source_defined_cursor=self.source_defined_cursor,
            default_cursor_field=list(self.cursor_field) or None,
            source_defined_primary_key=[list(path) for path in self.primary_key] or None,
            is_resumable=self.is_resumable,
        )
