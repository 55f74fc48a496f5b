"""A stream that a source describes and cannot read."""

from __future__ import annotations

from typing import Any, NoReturn

from connectors.sdk.stream import Stream
from elt_assets.errors import EltError
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream


class RefusedStream(Stream):
    """A stream whose reads fail with the reason why it cannot be read.

    Args:
        name: the name of the stream.
        reason: the error of its reads.
    """

    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def __init__(self, name: str, reason: EltError):
        self.name = name
        self.json_schema = {"type": "object"}
        self._reason = reason

    def partitions(self) -> NoReturn:
        raise self._reason

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> NoReturn:
        del configured, state
        raise self._reason

    def has_new_data(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> NoReturn:
        del configured, state
        raise self._reason
