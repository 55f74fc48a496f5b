"""Singer's lines as this project's messages.

spec: Singer, messages and state; State & Bookmarks ("Standard State Format"). A stream is known by its
`tap_stream_id`, which is what bookmarks are kept by.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.catalog import AirbyteStream, Catalog, StreamDescriptor
from elt_assets.protocol.airbyte.lines import Language, repair, too_deep
from elt_assets.protocol.airbyte.messages import (
    Message,
    RawRecord,
    State,
    StreamGeneration,
    StreamState,
)
from elt_assets.protocol.singer.schema import json_schema

BOOKMARKS = "bookmarks"
OTHERS = "singer_bookmarks"
"""The property of a stream's state that holds the bookmarks of streams that are not read: of its parent, say.
They are given back with it."""
_STANDARD = frozenset({BOOKMARKS, "currently_syncing"})
_KINDS = {
    "RECORD": ["record", "stream", "time_extracted"],
    "SCHEMA": ["schema", "key_properties", "bookmark_properties"],
    "STATE": ["value"],
    "ACTIVATE_VERSION": ["version"],
    "BATCH": ["manifest", "encoding"],
}
_LANGUAGE = Language(_KINDS, vital=_KINDS)
_NOTHING = Raw(b"")
_USUAL = 32
"""Characters of a time as most taps write it: with microseconds and an offset."""


class Encoding(msgspec.Struct, frozen=True):
    """How the files of a BATCH are written."""

    format: str
    compression: str | None = None


ReadFile = Callable[[str, Encoding], Iterator[bytes]]
"""From a file's URL and encoding to the records in it, a line each."""


class _Envelope(msgspec.Struct):
    """Any message, and all of a RECORD; what is raw is not looked into."""

    type: str
    stream: str | None = None
    record: Raw = _NOTHING
    version: int | None = None
    time_extracted: Any = None


class _Schema(msgspec.Struct):
    stream: str
    schema: Raw
    key_properties: list[str] | None = None
    bookmark_properties: Any = None


class _State(msgspec.Struct):
    value: Raw


class _Activation(msgspec.Struct):
    stream: str
    version: int


class _Batch(msgspec.Struct):
    stream: str
    encoding: Encoding
    manifest: list[str]


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_schema = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


class Translator:
    """Reads a tap's lines, in their order.

    Args:
        names: of streams, where records and schemas have another one than the bookmarks.
        read_file: reads the files of a BATCH; without it, a BATCH is refused.
        streams: that are read; bookmarks of others travel with the states of these. None: whichever come.
        whole_states: each STATE is a LEGACY one, whatever its form: a target gives it back as it came.
    """

    def __init__(
        self,
        names: Mapping[str, str] = MappingProxyType({}),
        read_file: ReadFile | None = None,
        *,
        streams: Collection[str] | None = None,
        whole_states: bool = False,
    ):
        self._streams = None if streams is None else frozenset(streams)
        self._names = dict(names)
        self._read_file = read_file
        self._whole_states = whole_states
        self._versions: dict[str, int] = {}
        self._schemas: dict[str, tuple[bytes, object, object]] = {}
        self._bookmarks: dict[str, bytes] = {}
        self._others: dict[str, bytes] = {}
        self._is_legacy = False
        self._clock = _Clock()

    def messages(self, line: bytes) -> Iterable[RawRecord | Message]:
        """What one line says, its newline left off.

        A RECORD is a `RawRecord`, before it a GENERATION where its `version` is another than that of the
        record before; an ACTIVATE_VERSION is a GENERATION that is complete; a SCHEMA is a CATALOG of its one
        stream, unless it says what the last one said; a STATE is one of each stream that it moves, if it has
        the standard form, else a LEGACY one; a BATCH is the records of its files. A line that is none
        of these is an `Unread` LOG message, and what JSON does not have is repaired, as `codec.decode` does.

        Raises:
            SystemFailure: the line is a Singer message, but cut off, not well formed, not UTF-8, or nested
                too deeply; or as `read_file`.
            ConfigError: a BATCH that cannot be read.
        """
        try:
            if not line.isascii():
                line.decode()  # the decoder would let other bytes through in what it leaves raw
            said = _decode_envelope(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self._unreadable(line, error)
        except RecursionError:
            raise too_deep(line) from None
        if said.type != "RECORD":
            return self._other(line, said.type)
        if said.stream is None or said.record is _NOTHING:
            missing = "stream" if said.stream is None else "record"
            return [_LANGUAGE.misshapen(line, f"it has no {missing!r}")]
        name = self._names.get(said.stream, said.stream)
        record = RawRecord(name, said.record, self._clock(said.time_extracted))
        if said.version is None or said.version == self._versions.get(name):
            return (record,)
        return (self._generation(name, said.version, complete=False), record)

    def _unreadable(self, line: bytes, error: Exception) -> Iterable[RawRecord | Message]:
        """Almost JSON, a torn or misshapen message, or plain text."""
        mended = _LANGUAGE.mended(line, error, _decode_envelope)
        return self.messages(mended) if isinstance(mended, bytes) else [mended]

    def _other(self, line: bytes, kind: str) -> Iterable[RawRecord | Message]:
        try:
            if kind == "STATE":
                return self._state(msgspec.json.decode(line, type=_State).value)
            if kind == "SCHEMA":
                return self._schema(msgspec.json.decode(line, type=_Schema))
            if kind == "ACTIVATE_VERSION":
                told = msgspec.json.decode(line, type=_Activation)
                name = self._names.get(told.stream, told.stream)
                return [self._generation(name, told.version, complete=True)]
            if kind == "BATCH":
                return self._batch(msgspec.json.decode(line, type=_Batch))
        except msgspec.MsgspecError as error:
            return [_LANGUAGE.misshapen(line, error)]
        except RecursionError:
            raise too_deep(line) from None
        return [_LANGUAGE.misshapen(line, None)]

    def _generation(self, name: str, version: int, *, complete: bool) -> Message:
        """A version is a generation, and its number is the generation's."""
        self._versions[name] = version
        descriptor = StreamDescriptor(name=name)
        told = StreamGeneration(
            stream_descriptor=descriptor, generation_id=version, complete=complete
        )
        return Message(type="GENERATION", generation=told)

    def _schema(self, said: _Schema) -> list[Message]:
        name = self._names.get(said.stream, said.stream)
        told = (bytes(said.schema), said.key_properties, said.bookmark_properties)
        if self._schemas.get(name) == told:
            return []
        stream = AirbyteStream(name=name, json_schema=json_schema(_decode_schema(said.schema)))
        stream.source_defined_primary_key = key_paths(said.key_properties)
        cursors = said.bookmark_properties
        if isinstance(cursors, list) and len(cursors) == 1 and isinstance(cursors[0], str):
            stream.default_cursor_field = [cursors[0]]
        self._schemas[name] = told
        return [Message(type="CATALOG", catalog=Catalog(streams=[stream]))]

    def _state(self, value: Raw) -> list[Message]:
        found = None if self._whole_states else bookmarks(value)
        if found is None or (
            self._is_legacy and not found
        ):  # of no stream is there anything to say
            self._is_legacy, self._bookmarks, self._others = True, {}, {}
            return [Message(type="STATE", state=State(type="LEGACY", data=value.copy()))]
        self._is_legacy = False
        wanted = found.keys() if self._streams is None else self._streams
        others = {name: mark for name, mark in found.items() if name not in wanted}
        found = {name: mark for name, mark in found.items() if name in wanted}
        before, self._bookmarks = self._bookmarks, found
        gone = [name for name in before if name not in found]
        moved = [name for name, bookmark in found.items() if before.get(name) != bookmark]
        if others != self._others:
            self._others, moved = others, sorted(wanted - set(gone))
        return [self._stream_state(name, found.get(name)) for name in (*gone, *moved)]

    def _stream_state(self, name: str, bookmark: bytes | None) -> Message:
        """Without a bookmark, and none of other streams: the stream has lost the one that it had."""
        others = {key: Raw(mark) for key, mark in self._others.items()}
        blob = bookmark or (b"{}" if others else None)
        told = StreamState(
            stream_descriptor=StreamDescriptor(name=name),
            stream_state=None if blob is None else Raw(blob),
            extra={OTHERS: Raw(msgspec.json.encode(others))} if others else {},
        )
        return Message(type="STATE", state=State(type="STREAM", stream=told))

    def _batch(self, said: _Batch) -> Iterator[RawRecord]:
        name = self._names.get(said.stream, said.stream)
        if self._read_file is None:
            raise ConfigError(
                f"stream {name!r}: the tap sent a BATCH, but from where files may be read is not said",
                guidance="set `batch_config.storage.root` in its config to a folder's file:// URL, "
                "or leave `batch_config` out",
            )
        for url in said.manifest:
            for line in self._read_file(url, said.encoding):
                yield RawRecord(name, _in_file(line, url))


class _Clock:
    """Reads times. Of times in the same millisecond, as those of thousands of records are, one is read."""

    def __init__(self) -> None:
        self._until = self._zone = " "
        self._milliseconds: float | None = None

    def __call__(self, told: Any) -> float | None:
        """Milliseconds since the epoch; a time without a zone is in UTC; None: it is none."""
        if not isinstance(told, str):
            return None
        if len(told) != _USUAL:
            return _milliseconds(told)
        # 2026-01-02T03:04:05.123|456|+00:00
        if not (told.startswith(self._until) and told.endswith(self._zone)):
            self._milliseconds = _milliseconds(told)
            self._until, self._zone = told[:23], told[26:]
        return self._milliseconds


def _milliseconds(told: str) -> float | None:
    try:
        at = msgspec.convert(told, dt.datetime)
    except msgspec.ValidationError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)
    return float(round(at.timestamp() * 1000))


def _in_file(line: bytes, url: str) -> Raw:
    """A line of a BATCH's file, which must be JSON."""
    try:
        line.decode()
        try:
            return _decode_raw(line)
        except msgspec.MsgspecError:
            return _decode_raw(repair(line))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SystemFailure(
            f"the batch file {url} holds a malformed record: {error}",
            guidance="this is a defect of the tap, or the file was cut off; "
            "the sync stops so that no data is lost",
        ) from None
    except RecursionError:
        raise too_deep(line) from None


def key_paths(names: Any) -> list[list[str]] | None:
    """The primary key that the names of properties make; None of none."""
    named = names if isinstance(names, list) else []
    return [[name] for name in named if isinstance(name, str)] or None


def bookmarks(value: bytes | Raw) -> dict[str, bytes] | None:
    """The bookmarks in the value of a STATE, to the letter; None if it has not the standard form: an
    object of `bookmarks`, which are objects, and nothing else but `currently_syncing`."""
    try:
        parts = _decode_object(value)
        if BOOKMARKS not in parts or not parts.keys() <= _STANDARD:
            return None
        found = {name: bytes(each) for name, each in _decode_object(parts[BOOKMARKS]).items()}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if all(each.startswith(b"{") for each in found.values()) else None


def state_value(states: Sequence[State]) -> bytes | None:
    """What a tap's `--state` is given: the value of the STATE that these came from, but for
    `currently_syncing`; None where there is nothing to give.

    A bookmark of a stream that has no state here is left out where the states of two streams say it
    differently: that stream is read from its beginning.

    Raises:
        ConfigError: a GLOBAL state, which no tap has.
    """
    legacy: bytes | None = None
    found: dict[str, Raw] = {}
    others: dict[str, set[bytes]] = {}
    for state in states:
        if state.global_ is not None:
            raise ConfigError(
                "a GLOBAL state is none that a Singer tap understands",
                guidance="give a LEGACY state, or those of its streams",
            )
        if state.stream is None:
            legacy = None if state.data is None else bytes(state.data)
            found, others = {}, {}
            continue
        for other, mark in _others(state.stream).items():
            others.setdefault(other, set()).add(bytes(mark))
        legacy, name = None, state.stream.stream_descriptor.name
        found.pop(name, None)
        if state.stream.stream_state is not None:
            found[name] = state.stream.stream_state
    agreed = {name: Raw(*marks) for name, marks in others.items() if len(marks) == 1}
    found = {**agreed, **found}
    return msgspec.json.encode({BOOKMARKS: found}) if found else legacy


def _others(state: StreamState) -> Mapping[str, Raw]:
    """The bookmarks of other streams that travel with a stream's state."""
    raw = state.extra.get(OTHERS)
    return {} if raw is None else _decode_object(raw)
