"""Attributes of new connections and streams, as `elt new`, `elt import` and `dg scaffold` write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elt_assets.connection.connection import Connection
from elt_assets.connection.places import COMPONENT
from elt_assets.connection.resolution import resolve_streams
from elt_assets.connection.stream_settings import drop_undeclared
from elt_assets.connection.templates import write_literally
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    FULL_REFRESH,
    INCREMENTAL,
    OVERWRITE,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
)

Attributes = dict[str, Any]
StreamCheck = Callable[[ConfiguredStream], None]


def attributes(name: str, source: Attributes, streams: Sequence[Attributes]) -> Attributes:
    """Return the attributes of a connection, in the order in which people read them."""
    return {"name": name, "source": source, "streams": list(streams)}


def document(name: str, source: Attributes, streams: Sequence[Attributes]) -> Attributes:
    """Return the whole content of `defs.yaml`."""
    return {
        "type": COMPONENT,
        "attributes": attributes(name, source, write_literally(list(streams))),
    }


def stream_attributes(stream: AirbyteStream, check: StreamCheck) -> Attributes | None:
    """Return the attributes of a stream, with the best sync modes that it supports.

    A stream that supports incremental syncs and has a cursor is incremental: with a key it is deduplicated,
    without a key its records are appended. Any other stream is a full refresh that overwrites its table.

    Args:
        check: raises a ConfigError if a table cannot be made for the stream as it is configured.

    Returns:
        The attributes. None if the stream cannot be configured: its own key or cursor is not in its schema.
    """
    stream = drop_undeclared(stream)
    options = [_incremental(stream), overwrite_attributes(stream.name, stream.namespace)]
    candidates = (option for option in options if option is not None)
    return next((option for option in candidates if _is_valid(option, stream, check)), None)


def overwrite_attributes(name: str, namespace: str | None = None) -> Attributes:
    """Return the attributes of a full refresh that overwrites its table, which any stream supports."""
    named = _name_attributes(name, namespace)
    return {**named, "sync_mode": FULL_REFRESH, "destination_sync_mode": OVERWRITE}


def _incremental(stream: AirbyteStream) -> Attributes | None:
    has_cursor = stream.source_defined_cursor or stream.default_cursor_field
    if INCREMENTAL not in stream.sync_modes or not has_cursor:
        return None
    keyed = bool(stream.source_defined_primary_key)
    attributes = {
        **_name_attributes(stream.name, stream.namespace),
        "sync_mode": INCREMENTAL,
        "destination_sync_mode": APPEND_DEDUP if keyed else APPEND,
    }
    # The user can change a cursor that the source only proposes, so it is written.
    if not stream.source_defined_cursor:
        attributes["cursor_field"] = stream.default_cursor_field
    return attributes


def _name_attributes(name: str, namespace: str | None) -> Attributes:
    return {"name": name, **({} if namespace is None else {"namespace": namespace})}


def _is_valid(candidate: Attributes, stream: AirbyteStream, check: StreamCheck) -> bool:
    """Return whether the attributes are valid with the schema of the stream."""
    connection = attributes("any", {"command": ["any"]}, [candidate])
    try:
        for configured in resolve_streams(
            Connection.model_validate(connection), Catalog(streams=[stream])
        ):
            check(configured)
    except ConfigError:
        return False
    return True
