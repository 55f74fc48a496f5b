"""Conversion of the lines and schemas of Singer taps to messages and schemas of this project.

For `runner` (`singer_tap`, `singer_batches`), `target-elt`, `routing`, `singer_catalog` and
`connectors.testing`; `sync.segments` decodes single records of a tap.

First `json_schema`; then `Translator`, which gets the lines of one tap in their order; then the conversion of
states in both directions. A stream is identified by its `tap_stream_id`, which is also the key of its
bookmark.

Spec: Singer, SCHEMA message, messages and state; State & Bookmarks ("Standard State Format"); Airbyte
supported data types.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import AirbyteStream, Catalog, StreamDescriptor
from elt_assets.protocol.json_schema import compose_schema, list_types, shallow
from elt_assets.protocol.lines import Body, LineProtocol, take_single, too_deep
from elt_assets.protocol.messages import Message, RawRecord, State, StreamGeneration, StreamState
from elt_assets.protocol.wire import check_values, read

DECIMALS = 9
"""Digits after the decimal point that a `big_number` keeps."""
_MAX_LONG = 2**63 - 1


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a stream's schema as `compose_schema`, with the exact types of its numbers.

    Decimals (`format: singer.decimal`, which are sent as strings, and numbers with a `multipleOf`) become
    `big_number`s or `big_integer`s if these types can store them.
    """
    return dict(_exact(compose_schema(schema)))


def _exact(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_exact(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return _refine_number({key: _exact(part) for key, part in schema.items()})


def _refine_number(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a number with a more exact type than `number` or `integer`, if there is one.
    Any other schema is unchanged."""
    types = list_types(schema)
    if schema.get("format") == "singer.decimal" and "string" in types:
        number = ["number" if kind == "string" else kind for kind in types]
        rest = {key: part for key, part in schema.items() if key not in ("format", "type")}
        return {**rest, "type": number, "airbyte_type": "big_number"}
    if "number" in types and "airbyte_type" not in schema:
        places = _places(schema.get("multipleOf"))
        if places is not None and places <= DECIMALS:
            return {**schema, "airbyte_type": "big_number" if places else "big_integer"}
    if "integer" in types and "airbyte_type" not in schema and _exceeds_long(schema.get("maximum")):
        return {**schema, "airbyte_type": "big_integer"}
    return schema


def _places(step: Any) -> int | None:
    """Return the digits after the decimal point of the multiples of `step`; None if `step` is not valid."""
    if isinstance(step, bool) or not isinstance(step, (int, float)) or step <= 0:
        return None
    try:
        exponent = Decimal(str(step)).normalize().as_tuple().exponent
    except InvalidOperation:  # not a finite number
        return None
    return max(0, -exponent) if isinstance(exponent, int) else None


def _exceeds_long(maximum: Any) -> bool:
    """Return whether a maximum is larger than a long can store, as the maximum of an unsigned long is."""
    is_number = isinstance(maximum, (int, float)) and not isinstance(maximum, bool)
    return is_number and maximum > _MAX_LONG


_BOOKMARKS = "bookmarks"
_OTHER_BOOKMARKS = "singer_bookmarks"
"""The property of a stream's state that contains the bookmarks of streams that are not read, for example of
its parent. The tap gets them back with the state."""
_STANDARD = frozenset({_BOOKMARKS, "currently_syncing"})
_NAMED = rb'"stream"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*'
_BODIES = {
    "RECORD": Body(["record", "stream", "time_extracted"], _NAMED + rb'"record"\s*:\s*\{'),
    "SCHEMA": Body(
        ["schema", "key_properties", "bookmark_properties"], _NAMED + rb'"schema"\s*:\s*\{'
    ),
    "STATE": Body(["value"], rb'"value"\s*:\s*\{\s*"bookmarks"\s*:'),
    "ACTIVATE_VERSION": Body(["version"], _NAMED + rb'"version"\s*:\s*\d+\s*\}'),
    "BATCH": Body(["manifest", "encoding"], rb'"encoding"\s*:\s*\{\s*"format"\s*:'),
}
_PROTOCOL = LineProtocol(_BODIES, vital=_BODIES)
_NOTHING = Raw(b"")
_TIME_LENGTH = 32
"""Characters of a time in the form that most taps write: with microseconds and an offset."""


class Encoding(msgspec.Struct, frozen=True):
    """The encoding of the files of a BATCH."""

    format: str
    compression: str | None = None


ReadFile = Callable[[str, Encoding], Iterator[bytes]]
"""Function that yields the records of a file, one line each, given the file's URL and encoding."""


class _Envelope(msgspec.Struct):
    """Any message, with all properties of a RECORD. Raw values are not decoded."""

    type: str
    stream: str | None = None
    record: Raw = _NOTHING
    version: int | None = None
    time_extracted: Any = None


class _Schema(msgspec.Struct):
    type: str
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
_decode_properties = msgspec.json.Decoder(dict[str, Any]).decode
_decode_state = msgspec.json.Decoder(_State).decode
_decode_schema = msgspec.json.Decoder(_Schema).decode
_decode_activation = msgspec.json.Decoder(_Activation).decode
_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


class Translator:
    """Converts a tap's lines to messages, in order.

    Args:
        names: the `tap_stream_id` by the name in records and schemas, where the two differ.
        read_file: reads the files of a BATCH. Without it, a BATCH is refused.
        streams: the streams that are read. The states of these contain the bookmarks of all other streams.
            None: every stream that has a bookmark is read.
        whole_states: every STATE becomes a LEGACY state, whatever its form: a target returns it unchanged.
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
        self.names = dict(names)
        self._read_file = read_file
        self._whole_states = whole_states
        self._versions: dict[str, int] = {}
        self._schemas: dict[str, tuple[bytes, object, object]] = {}
        self._bookmarks: dict[str, bytes] = {}
        self._others: dict[str, bytes] = {}
        self._unsaved: set[str] = set()
        self._is_legacy = False
        self._parse_time = _TimeParser()

    def messages(self, line: bytes) -> Iterable[RawRecord | Message]:
        """Return the messages of one line, without its newline.

        A RECORD becomes a `RawRecord`, after a GENERATION if its stream's `version` has changed.
        An ACTIVATE_VERSION becomes a complete GENERATION. A SCHEMA becomes a CATALOG of its one stream,
        unless it equals the stream's previous SCHEMA. A STATE of the standard form becomes a state of each
        stream whose bookmark changes or that has records since its last state: records with equal
        replication keys leave the bookmark where it is, and it covers them all the same. Any other STATE
        becomes a LEGACY state. A BATCH becomes the records of its files. Any other line becomes an
        `UndecodedLine` LOG message. Bad texts make no message malformed, and a message behind other text is
        taken, as in `codec.decode_line`.

        Raises:
            SystemFailure: the line is a Singer message, but is truncated, malformed, or nested too deeply; or
                `read_file` fails.
            ConfigError: a BATCH cannot be read.
        """
        try:
            envelope = read(_decode_envelope, line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _PROTOCOL.take_apart(line, error, self.messages)
        except RecursionError:
            return self._shallow_schema(line)
        if envelope.type != "RECORD":
            return self._other(line, envelope.type)
        if envelope.stream is None or envelope.record is _NOTHING:
            missing = "stream" if envelope.stream is None else "record"
            return [_PROTOCOL.replacement(line, f"it has no {missing!r}")]
        name = self.names.get(envelope.stream, envelope.stream)
        record = RawRecord(name, envelope.record, self._parse_time(envelope.time_extracted))
        self.add_records(name)
        if envelope.version is None or envelope.version == self._versions.get(name):
            return (record,)
        return (self._generation(name, envelope.version, complete=False), record)

    def add_records(self, name: str) -> None:
        """Remember that a stream has records after its last state; also called for records that are routed
        without being decoded here."""
        if self._is_read(name):
            self._unsaved.add(name)

    def _is_read(self, name: str) -> bool:
        """Return whether a stream is read: of others nothing is kept, since a tap may name any number."""
        return self._streams is None or name in self._streams

    def _other(self, line: bytes, kind: str) -> Iterable[RawRecord | Message]:
        try:
            check_values(line)
            if kind == "STATE":
                return self._state(read(_decode_state, line).value)
            if kind == "SCHEMA":
                return self._schema(read(_decode_schema, line))
            if kind == "ACTIVATE_VERSION":
                activation = read(_decode_activation, line)
                name = self.names.get(activation.stream, activation.stream)
                return [self._generation(name, activation.version, complete=True)]
            if kind == "BATCH":
                return self._batch(read(_decode_batch, line))
        except msgspec.MsgspecError as error:
            return [_PROTOCOL.replacement(line, error)]
        except RecursionError:
            raise too_deep(line) from None
        return [_PROTOCOL.replacement(line, "its type is unknown")]

    def _generation(self, name: str, version: int, *, complete: bool) -> Message:
        """Return the GENERATION of a version, which has the version's number."""
        if self._is_read(name):
            self._versions[name] = version
        descriptor = StreamDescriptor(name=name)
        generation = StreamGeneration(
            stream_descriptor=descriptor, generation_id=version, complete=complete
        )
        return Message(type="GENERATION", generation=generation)

    def _schema(self, message: _Schema) -> list[Message]:
        name = self.names.get(message.stream, message.stream)
        contents = (bytes(message.schema), message.key_properties, message.bookmark_properties)
        if self._schemas.get(name) == contents:
            return []
        stream = AirbyteStream(
            name=name,
            json_schema=json_schema(read(_decode_properties, shallow(bytes(message.schema)))),
        )
        stream.source_defined_primary_key = key_paths(message.key_properties)
        cursors = message.bookmark_properties
        if isinstance(cursors, list) and len(cursors) == 1 and isinstance(cursors[0], str):
            stream.default_cursor_field = [cursors[0]]
        if self._is_read(name):
            self._schemas[name] = contents
        return [Message(type="CATALOG", catalog=Catalog(streams=[stream]))]

    def _shallow_schema(self, line: bytes) -> Iterable[RawRecord | Message]:
        """Return the messages of a line that is nested too deeply, if it is a SCHEMA, of which only a
        `shallow` part is read."""
        part = shallow(line)
        try:
            kind = read(_decode_envelope, part).type
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise too_deep(line) from None
        if kind != "SCHEMA":
            raise too_deep(line)
        return self._other(part, kind)

    def _state(self, value: Raw) -> list[Message]:
        marks = None if self._whole_states else bookmarks(value)
        if marks is None or (self._is_legacy and not marks):  # no stream has a bookmark
            self._is_legacy, self._bookmarks, self._others = True, {}, {}
            self._unsaved.clear()
            return [Message(type="STATE", state=State(type="LEGACY", data=value.copy()))]
        self._is_legacy = False
        read_names = marks.keys() if self._streams is None else self._streams
        others = {name: mark for name, mark in marks.items() if name not in read_names}
        marks = {name: mark for name, mark in marks.items() if name in read_names}
        previous, self._bookmarks = self._bookmarks, marks
        lost_names = [name for name in previous if name not in marks]
        # A child stream may have no bookmark but its parent's, which covers its records too.
        covered_names = [*marks, *sorted(read_names - marks.keys())] if others else list(marks)
        changed_names = [
            name
            for name in covered_names
            if name in self._unsaved or previous.get(name) != marks.get(name)
        ]
        if others != self._others:
            self._others, changed_names = others, sorted(read_names)
        changed_names = [*lost_names, *(name for name in changed_names if name not in lost_names)]
        self._unsaved.difference_update(changed_names)
        return [self._stream_state(name, marks.get(name)) for name in changed_names]

    def _stream_state(self, name: str, bookmark: bytes | None) -> Message:
        """Return the state of a stream. It is null if there are no bookmarks, neither of the stream nor of
        others: the stream has lost the bookmark that it had."""
        others = {key: Raw(mark) for key, mark in self._others.items()}
        blob = bookmark or (b"{}" if others else None)
        state = StreamState(
            stream_descriptor=StreamDescriptor(name=name),
            stream_state=None if blob is None else Raw(blob),
            extra={_OTHER_BOOKMARKS: Raw(msgspec.json.encode(others))} if others else {},
        )
        return Message(type="STATE", state=State(type="STREAM", stream=state))

    def _batch(self, batch: _Batch) -> Iterator[RawRecord]:
        name = self.names.get(batch.stream, batch.stream)
        if self._read_file is None:
            raise ConfigError(
                f"stream {name!r}: the tap sent a BATCH, but no folder is configured to read its files from",
                guidance="set `batch_config.storage.root` in the tap's config to a folder's file:// URL, "
                "or remove `batch_config`",
            )
        self.add_records(name)
        for url in batch.manifest:
            line = b""
            try:
                for line in self._read_file(url, batch.encoding):
                    yield RawRecord(name, read(_decode_raw, line))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise SystemFailure(
                    f"the batch file {url} contains a malformed record: {error}",
                    guidance="this is a defect of the tap, or the file was truncated; "
                    "the sync stops so that no data is lost",
                ) from None
            except RecursionError:
                raise too_deep(line) from None


def decode_record(line: bytes) -> RawRecord | Message:
    """Decode a line, without its newline, that should be a RECORD. Its stream is named as in the line.

    Raises:
        SystemFailure: as `Translator.messages`; or the line contains a message beside other text.
    """
    messages = Translator().messages(line)
    return take_single([m for m in messages if not (isinstance(m, Message) and m.generation)])


class _TimeParser:
    """Parses times. Successive times in the same millisecond, as in thousands of records, are parsed once."""

    def __init__(self) -> None:
        self._prefix = self._offset = " "
        self._milliseconds: float | None = None

    def __call__(self, time: Any) -> float | None:
        """Return milliseconds since the epoch; None for anything but a time. Without a zone it is in UTC."""
        if not isinstance(time, str):
            return None
        if len(time) != _TIME_LENGTH:
            return _milliseconds(time)
        # 2026-01-02T03:04:05.123|456|+00:00
        if not (time.startswith(self._prefix) and time.endswith(self._offset)):
            self._milliseconds = _milliseconds(time)
            self._prefix, self._offset = time[:23], time[26:]
        return self._milliseconds


def _milliseconds(time: str) -> float | None:
    try:
        moment = msgspec.convert(time, dt.datetime)
    except msgspec.ValidationError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
    return float(round(moment.timestamp() * 1000))


def key_paths(names: Any) -> list[list[str]] | None:
    """Return the primary key that consists of these properties; None if there are none."""
    properties = names if isinstance(names, list) else []
    return [[name] for name in properties if isinstance(name, str)] or None


def bookmarks(value: bytes | Raw) -> dict[str, bytes] | None:
    """Return the bookmarks in the value of a STATE, byte for byte; None if it does not have the standard
    form: an object with `bookmarks`, which are objects, and no other key than `currently_syncing`."""
    try:
        parts = read(_decode_object, value)
        if _BOOKMARKS not in parts or not parts.keys() <= _STANDARD:
            return None
        marks = read(_decode_object, parts[_BOOKMARKS])
        blobs = {name: bytes(mark) for name, mark in marks.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return blobs if all(blob.startswith(b"{") for blob in blobs.values()) else None


def state_value(states: Sequence[State]) -> bytes | None:
    """Return the value for a tap's `--state`: the STATE from which these states were made, without
    `currently_syncing`; None if no state has a value.

    A stream that has no state here loses its bookmark if the states of other streams contain different
    bookmarks of it: that stream is read from the beginning.

    Raises:
        ConfigError: a state is GLOBAL, which no tap has.
    """
    legacy: bytes | None = None
    marks: dict[str, Raw] = {}
    others: dict[str, set[bytes]] = {}
    for state in states:
        if state.global_ is not None:
            raise ConfigError(
                "a Singer tap cannot start from a GLOBAL state",
                guidance='give the state of the tap as {"type": "LEGACY", "data": {…}}',
            )
        if state.stream is None:
            legacy = None if state.data is None else bytes(state.data)
            marks, others = {}, {}
            continue
        for other, mark in _others(state.stream).items():
            others.setdefault(other, set()).add(bytes(mark))
        legacy, name = None, state.stream.stream_descriptor.name
        marks.pop(name, None)
        if state.stream.stream_state is not None:
            marks[name] = state.stream.stream_state
    common_marks = {name: Raw(*values) for name, values in others.items() if len(values) == 1}
    marks = {**common_marks, **marks}
    return msgspec.json.encode({_BOOKMARKS: marks}) if marks else legacy


def _others(state: StreamState) -> Mapping[str, Raw]:
    """Return the bookmarks of other streams that a stream's state contains."""
    raw = state.extra.get(_OTHER_BOOKMARKS)
    return {} if raw is None else read(_decode_object, raw)
