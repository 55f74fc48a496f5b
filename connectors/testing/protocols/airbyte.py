"""Airbyte sources: `spec`, `check`, `discover` and `read`.

Spec: Airbyte Specification, the commands and their arguments; Airbyte Protocol, Messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.testing.protocols.protocol import Protocol, Transcript, read_transcript
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.codec import decode
from elt_assets.protocol.message_rules import LEGACY, kind_of
from elt_assets.protocol.messages import Message, RawRecord, State

_BODIES = {
    "ERROR": "error",
    "ESTIMATE": "estimate",
    "STREAM_STATUS": "stream_status",
    "ANALYTICS": "analytics",
}
"""The property that a TRACE of each type must have."""


class Airbyte(Protocol):
    """The Airbyte Protocol."""

    name = "Airbyte"
    subject = "Airbyte sources"
    has_spec = has_check = True
    has_schema_messages = has_help = False

    def arguments(self, verb: str, files: Mapping[str, Path]) -> list[str]:
        return [
            verb,
            *(word for name, path in files.items() for word in (f"--{name}", str(path))),
        ]

    def catalog(self, streams: Sequence[ConfiguredStream]) -> bytes:
        return ConfiguredCatalog(streams=list(streams)).to_json()

    def state(self, states: Sequence[State]) -> bytes | None:
        """Return a list of states, or the `data` of a LEGACY state.

        Spec: State & Checkpointing.
        """
        typed = [state.to_json() for state in states if kind_of(state) != LEGACY]
        if typed:
            return b"[" + b",".join(typed) + b"]"
        data = [bytes(state.data) for state in states if state.data is not None]
        return data[-1] if data else None

    def output(self, verb: str, stdout: Path, streams: Sequence[ConfiguredStream]) -> Transcript:
        with stdout.open("rb") as lines:
            return read_transcript(lines, _parse, _describe_missing)

    def record_schema(self, stream: AirbyteStream) -> Mapping[str, Any]:
        return stream.json_schema


def _parse(line: bytes) -> Iterable[RawRecord | Message]:
    return [decode(line, whole=True)]


def _describe_missing(message: Message) -> Iterator[str]:
    """Yield the properties that the protocol requires, and that the decoder does not."""
    if message.record is not None:
        if not _is_whole(message.record.emitted_at):
            yield "an integer `emitted_at`"
    elif message.trace is not None:
        if message.trace.emitted_at is None:
            yield "`emitted_at`"
        body = _BODIES.get(message.trace.type)
        if body is not None and getattr(message.trace, body) is None:
            yield f"`{body}`"
        if message.trace.error is not None and message.trace.error.message is None:
            yield "`error.message`"
    elif message.type == "STATE" and message.state is not None:
        kind = message.state.type
        body = {"STREAM": "stream", "GLOBAL": "global_"}.get(kind or "", "data")
        if getattr(message.state, body) is None:
            yield f"`{body.strip('_')}`, which a state of type {kind or 'LEGACY'} has"


def _is_whole(number: float | None) -> bool:
    return number is not None and number == int(number)
