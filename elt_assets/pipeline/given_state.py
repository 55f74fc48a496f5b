"""States as people write them, as the messages that a source gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from elt_assets.errors import ConfigError
from elt_assets.pipeline.connection_stream import ConnectionStream
from elt_assets.protocol.airbyte.catalog import INCREMENTAL, ConfiguredStream
from elt_assets.protocol.airbyte.messages import State
from elt_assets.protocol.airbyte.states import stream_of

KINDS = ("STREAM", "LEGACY", "GLOBAL")


def as_message(given: Any, stream: ConfiguredStream) -> dict[str, Any]:
    """A state as people write it, as the STATE message that the source gets.

    Args:
        given: such a message, in its envelope or without, or what it says of the stream alone; a JSON
            object.

    Raises:
        ConfigError: it is neither, or of another stream.
    """
    name = str(stream.id)
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(
            f"the state of stream {name!r} must be a JSON object, not {json.dumps(given, default=str)}",
            guidance='write what the source says of the stream, as {"updated_at": "2026-01-01"}, or a whole '
            "STATE message; to begin anew, use `elt state reset` or `refresh`",
        )
    if given.get("type") == "STATE" and isinstance(given.get("state"), Mapping):
        given = {"type": "LEGACY", **given["state"]}  # which is what no type means
    if given.get("type") not in KINDS:
        descriptor = {"name": stream.stream.name}
        if stream.stream.namespace is not None:
            descriptor["namespace"] = stream.stream.namespace
        blob = {"stream_descriptor": descriptor, "stream_state": dict(given)}
        return {"type": "STREAM", "stream": blob}
    try:
        message = State.from_json(json.dumps(given))
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the state of stream {name!r} is no STATE message: {error}") from error
    if message.type == "GLOBAL" or (message.stream is None and message.data is None):
        raise ConfigError(
            f"the state of stream {name!r} is a {message.type} state that says nothing of one stream alone",
            guidance="give what it says of this stream",
        )
    if stream_of(message, [stream.id]) is None:
        raise ConfigError(f"the state is of another stream than {name!r}")
    return dict(given)


def blob(state: str | None) -> str | None:
    """What the source itself wrote, out of its protocol envelope."""
    if state is None:
        return None
    message: dict[str, Any] = json.loads(state)
    if stream := message.get("stream"):
        return json.dumps(stream.get("stream_state"))
    return json.dumps(message.get("data", message))


def refuse_stateless(stream: ConnectionStream) -> None:
    """Refuse a state of a stream of which no sync starts from one.

    Raises:
        ConfigError: says so.
    """
    landed = stream.landed()
    if landed.sync_mode != INCREMENTAL or landed.overwrites:
        what = "each partition of it" if stream.wanted.partitions is not None else "it"
        raise ConfigError(
            f"{stream.name} starts from no state: each sync reads {what} whole",
            guidance="a state is for streams with `sync_mode: incremental`, and not for windows of them",
        )
