"""Attributes of new connections and streams, as written to `defs.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elt_assets.connection.files import COMPONENT
from elt_assets.connection.models import Connection
from elt_assets.connection.stream_resolution import resolve_streams
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import (
    FULL_REFRESH,
    INCREMENTAL,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
)
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP, OVERWRITE

Written = dict[str, Any]
StreamCheck = Callable[[ConfiguredStream], None]


def attributes(name: str, source: Written, streams: Sequence[Written]) -> Written:
    """Return the attributes of a connection, in the order in which people read them."""
    return {"name": name, "source": source, "streams": list(streams)}


def document(name: str, source: Written, streams: Sequence[Written]) -> Written:
    """Return the whole content of `defs.yaml`."""
    return {"type": COMPONENT, "attributes": attributes(name, source, streams)}


def stream_attributes(stream: AirbyteStream, check: StreamCheck) -> Written | None:
    """Return the attributes of a stream, with the best sync modes that it supports.

    A stream that supports incremental syncs and has a cursor is incremental: with a key it is deduplicated,
    without a key its records are appended. Any other stream is a full refresh that overwrites its table.

    Args:
        check: raises a ConfigError if a table cannot be made for the stream as it is configured.

    Returns:
        The attributes. None if the stream cannot be configured: its own key or cursor is not in its schema.
    """
    options = [_incremental(stream), replaced(stream.name, stream.namespace)]
    return next((one for one in options if one is not None and _is_valid(one, stream, check)), None)


def replaced(name: str, namespace: str | None = None) -> Written:
    """Return the attributes of a full refresh that overwrites its table, which any stream supports."""
    named = _named(name, namespace)
    return {**named, "sync_mode": FULL_REFRESH, "destination_sync_mode": OVERWRITE}


def _incremental(stream: AirbyteStream) -> Written | None:
    has_cursor = stream.source_defined_cursor or stream.default_cursor_field
    if INCREMENTAL not in stream.sync_modes or not has_cursor:
        return None
    keyed = bool(stream.source_defined_primary_key)
    written = {
        **_named(stream.name, stream.namespace),
        "sync_mode": INCREMENTAL,
        "destination_sync_mode": APPEND_DEDUP if keyed else APPEND,
    }
    # The user can change a cursor that the source only proposes, so it is written.
    if not stream.source_defined_cursor:
        written["cursor_field"] = stream.default_cursor_field
    return written


def _named(name: str, namespace: str | None) -> Written:
    return {"name": name, **({} if namespace is None else {"namespace": namespace})}


def _is_valid(written: Written, stream: AirbyteStream, check: StreamCheck) -> bool:
    """Return whether the attributes are valid with the schema of the stream."""
    connection = attributes("any", {"command": ["any"]}, [written])
    try:
        for each in resolve_streams(
            Connection.model_validate(connection), Catalog(streams=[stream])
        ):
            check(each)
    except ConfigError:
        return False
    return True
