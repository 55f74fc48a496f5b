"""A new connection, as `defs.yaml` has it."""

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
Fits = Callable[[ConfiguredStream], None]


def attributes(name: str, source: Written, streams: Sequence[Written]) -> Written:
    """Those of a connection, in the order in which people read them."""
    return {"name": name, "source": source, "streams": list(streams)}


def document(name: str, source: Written, streams: Sequence[Written]) -> Written:
    """The whole of `defs.yaml`."""
    return {"type": COMPONENT, "attributes": attributes(name, source, streams)}


def stream_attributes(stream: AirbyteStream, fits: Fits) -> Written | None:
    """A stream with the best modes that it supports: what is new alone, if the source can tell it, and
    one row for each key, if there is one; else all of it, each time in place of what was there.

    Args:
        fits: raises a ConfigError where a stream cannot land as it is configured.

    Returns:
        None: the stream's own key or cursor is not in its schema, so that it cannot be had as it stands.
    """
    ways = [_incremental(stream), replaced(stream.name, stream.namespace)]
    return next((way for way in ways if way is not None and _goes(way, stream, fits)), None)


def replaced(name: str, namespace: str | None = None) -> Written:
    """A stream that is read whole each time, and replaces its table: right for any stream."""
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
    # A cursor that the source only proposes is one that people may want to see, and to change.
    if not stream.source_defined_cursor:
        written["cursor_field"] = stream.default_cursor_field
    return written


def _named(name: str, namespace: str | None) -> Written:
    return {"name": name, **({} if namespace is None else {"namespace": namespace})}


def _goes(written: Written, stream: AirbyteStream, fits: Fits) -> bool:
    """Whether the stream's own schema goes with it."""
    given = attributes("any", {"command": ["any"]}, [written])
    try:
        for each in resolve_streams(Connection.model_validate(given), Catalog(streams=[stream])):
            fits(each)
    except ConfigError:
        return False
    return True
