"""Singer taps: `--discover`, `--catalog`, `--state`, and `--about` of taps on the SDK of Meltano.

Spec: Singer, running taps; config and state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.testing.protocols.protocol import (
    Flaw,
    Protocol,
    SeenMessage,
    Transcript,
    excerpt,
    read_transcript,
)
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredStream
from elt_assets.protocol.messages import Message, Specification, State
from elt_assets.protocol.singer import Translator, state_value
from elt_assets.protocol.singer_catalog import (
    ENTRY,
    catalog_options,
    map_record_names,
    metadata_by_breadcrumb,
    read_catalog,
    selection,
)

_FLAGS = {
    "spec": ["--about", "--format=json"],
    "help": ["--help"],
    "discover": ["--discover"],
    "read": [],
}


class Singer(Protocol):
    """The Singer specification.

    A STATE is returned to the tap as it was sent, whatever its form, and covers all streams: a tap may send a
    state without bookmarks first, or one that has not moved since the last one.
    """

    name = "Singer"
    subject = "Singer taps"
    has_spec = has_check = False
    has_schema_messages = has_help = True

    def __init__(self) -> None:
        self._catalog_options: Sequence[str] = ("catalog",)
        self._offered: Sequence[AirbyteStream] = ()

    def arguments(self, verb: str, files: Mapping[str, Path]) -> list[str]:
        options = {"catalog": self._catalog_options}
        words = [
            word
            for name, path in files.items()
            for option in options.get(name, (name,))
            for word in (f"--{option}", str(path))
        ]
        return [*words, *_FLAGS[verb]]

    def catalog(self, streams: Sequence[ConfiguredStream]) -> bytes:
        return json.dumps(selection(streams)).encode()

    def selectable_fields(self, stream: AirbyteStream) -> Sequence[str]:
        """Return the fields that the tap declares as available.

        Spec: Singer, the catalog's metadata: `inclusion`.
        """
        properties = stream.json_schema.get("properties") or {}
        metadata = metadata_by_breadcrumb(_entry(stream))
        available = [p for p, entry in metadata.items() if entry.get("inclusion") == "available"]
        return [path[1] for path in available if len(path) == 2 and path[1] in properties]

    def state(self, states: Sequence[State]) -> bytes | None:
        value = state_value(states)
        return None if value == b"null" else value

    def output(self, verb: str, stdout: Path, streams: Sequence[ConfiguredStream]) -> Transcript:
        if verb == "spec":
            return _about(stdout.read_bytes())
        if verb == "help":
            self._catalog_options = catalog_options(stdout.read_text(errors="replace"))
            return Transcript()
        if verb == "discover":
            discovered = _parse_catalog(stdout.read_bytes())
            self._offered = [
                stream for catalog in discovered.catalogs for stream in catalog.streams
            ]
            return discovered
        # Also those that are not selected: a tap may read them all the same.
        names = map_record_names([ConfiguredStream(stream=stream) for stream in self._offered])
        parse = Translator({**names, **map_record_names(streams)}, whole_states=True).messages
        with stdout.open("rb") as lines:
            return read_transcript(lines, parse, lambda _: ())

    def record_schema(self, stream: AirbyteStream) -> Mapping[str, Any]:
        """Return the tap's own schema: the schema of the stream has other types for exact numbers."""
        return _entry(stream).get("schema") or stream.json_schema


def _entry(stream: AirbyteStream) -> dict[str, Any]:
    """Return the tap's own entry of a stream; empty if the stream is from a SCHEMA message."""
    return dict(json.loads(bytes(stream.extra[ENTRY]))) if ENTRY in stream.extra else {}


def _about(text: bytes) -> Transcript:
    """Return the settings of a tap as a specification; nothing if the tap does not support `--about`."""
    try:
        settings = json.loads(_document(text)[0])["settings"]
        schema = _mark_secrets(dict(settings))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Transcript()
    message = Message(type="SPEC", spec=Specification(connectionSpecification=schema))
    return Transcript(messages=[SeenMessage(message, 1)])


def _parse_catalog(text: bytes) -> Transcript:
    document, stray = _document(text)
    try:
        message = Message(type="CATALOG", catalog=read_catalog(document))
    except EltError as error:
        flaw = [Flaw(len(stray) + 1, error.message)] if document.strip() else []
        return Transcript(stray=[*stray, *flaw])
    return Transcript(messages=[SeenMessage(message, len(stray) + 1)], stray=stray)


def _document(text: bytes) -> tuple[bytes, list[Flaw]]:
    """Return the JSON object at the end of an output, and the lines before it."""
    start = 0 if text.startswith(b"{") else text.find(b"\n{") + 1
    before = enumerate(text[:start].splitlines(), 1)
    return text[start:], [Flaw(n, f"not a catalog: {excerpt(line)}") for n, line in before if line]


def _mark_secrets(schema: Any) -> Any:
    """Return the schema of a tap's settings, with its secrets marked as in the Airbyte Protocol."""
    if isinstance(schema, list):
        return [_mark_secrets(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    marked = {name: _mark_secrets(part) for name, part in schema.items()}
    is_secret = marked.get("secret") is True or marked.get("writeOnly") is True
    return {**marked, "airbyte_secret": True} if is_secret else marked
