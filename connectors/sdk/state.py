"""The files a connector is called with: config, configured catalog, state.

spec: State & Checkpointing; Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredCatalog, StreamId
from elt_assets.protocol.messages import State

T = TypeVar("T")


def load_config(path: str) -> dict[str, Any]:
    """The config as written.

    Raises:
        ConfigError: unreadable, or not a JSON object.
    """
    return _decode(_content(path, "config"), dict[str, Any], "config")


def load_catalog(path: str) -> ConfiguredCatalog:
    """What is wanted.

    Raises:
        ConfigError: unreadable, or not a configured catalog.
    """
    content = _content(path, "catalog")
    try:
        return ConfiguredCatalog.from_json(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the catalog file is not a configured catalog: {error}") from error


def load_states(path: str | None) -> dict[StreamId, dict[str, Any]]:
    """Where each stream's last read ended. Streams with a null state, or none, are not in it.

    Raises:
        ConfigError: unreadable, or not a list of per-stream states.
    """
    if path is None:
        return {}
    items = _decode(_content(path, "state"), list[Raw], "state")
    states = dict(_stream_state(item) for item in items)
    return {stream: state for stream, state in states.items() if state is not None}


def _stream_state(item: Raw) -> tuple[StreamId, dict[str, Any] | None]:
    try:
        message = State.from_json(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the state file holds something that is no state: {error}") from error
    if message.stream is None:
        raise ConfigError(
            f"the state file holds a state of type {message.type or 'LEGACY'}, not STREAM",
            guidance="this source keeps its state per stream: reset the state",
        )
    stream, blob = message.stream.stream_descriptor.id, message.stream.stream_state
    return stream, None if blob is None else _decode(blob, dict[str, Any], f"state of {stream}")


def _content(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} file {path}: {error.strerror}") from error


def _decode(data: bytes | Raw, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"the {what} is not the JSON expected: {error}") from error
