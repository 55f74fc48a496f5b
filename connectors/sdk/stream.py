"""The base class of streams, and the items that a read yields."""

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
    """A state that covers all records yielded so far: a later read from it yields only the rest."""

    state: dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """The number of records that this read yields, as estimated by the source."""

    rows: int


Item = Record | Checkpoint | Estimate


class Stream(ABC):
    """The base class of streams. Subclasses set the attributes, on the class or on the instance.

    Spec: AirbyteStream. `cursor_field` is the `default_cursor_field`, `primary_key` the
    `source_defined_primary_key`. If they are empty, they are not declared.
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
        """Yield records, a `Checkpoint` wherever a later read can resume, and optionally an `Estimate`.

        `state` is the state of the last acknowledged checkpoint; None to read from the beginning. A full
        refresh is read from the beginning unless it resumes an interrupted one (`is_resumable`).
        `msgspec.json` encodes the values of records. It encodes NaN and the infinities as null, so a
        stream that can have them must represent them in another way.

        Raises:
            EltError: the read fails; its class names who must act. The other streams are still read.
        """

    def has_news(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool | None:
        """Return whether a read from this state would yield anything, without a read; None if unknown.

        It is called often (`probe`), so it must be cheap: a maximum, a count, an ETag.

        Raises:
            EltError: the source does not answer.
        """
        del configured, state
        return None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    def describe(self) -> AirbyteStream:
        """Return the stream as it is in the catalog of `discover`."""
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
