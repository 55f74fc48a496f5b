r"""Decoding of JSON of others, for most packages: bad texts do not stop it, and raw values keep their bytes.

First `check_values`, which limits the values of a text that is decoded: a line of 256 MiB may have 80 million
of them. A RECORD has no such limit, since its data is not decoded in this process. Then `read` and its
relatives; then `Wire`, the base of all messages, which keeps the properties that this project does not know.

`read` decodes JSON in which texts are no text, and numbers are no numbers. A text may have half of a
surrogate pair (an emoji that was cut in two: `"\ud83d"`), bytes that are not UTF-8, or raw control
characters; a number may be `NaN` or `Infinity`; a byte order mark may stand before all. None of them makes
anything else in the JSON unreadable, and none of them stops a sync. So they are covered by characters that
the decoder accepts, and uncovered in what it returns:

- A raw value (the data of a record, a state) has its bytes as received.
- A decoded text has U+FFFD for half a pair and for bytes that are not UTF-8, and its control characters. A
  number that is not finite is a string of its name.

The table in docs/connectors.md says what each message does with them; `tests/protocol/test_texts.py` shows
that any bytes do so.

Spec: Airbyte Protocol, Messages: "all messages should allow for unknown properties"; RFC 8259, sections 7 and
8; the Unicode Standard, chapter 3.9 (U+FFFD for what cannot be decoded).
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

MAX_VALUES = 4_000_000
"""Maximum number of values. Decoded, each takes up to 300 bytes of memory."""
_SEPARATORS = (b",", b"[", b"{")


def check_values(text: bytes, limit: int = MAX_VALUES) -> None:
    """Refuse a text of JSON that may have more values than the limit; separators in strings count as well.

    Raises:
        msgspec.ValidationError: it may have more.
    """
    if len(text) > limit and sum(map(text.count, _SEPARATORS)) > limit:
        raise msgspec.ValidationError(f"it has more than {limit:,} values")


T = TypeVar("T")

_decode_raw = msgspec.json.Decoder(Raw).decode
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# JSON allows no raw control characters in strings. Outside of strings it allows these three.
_SPACES = (b"\t", b"\n", b"\r")
_OTHER_CONTROLS = [bytes([code]) for code in range(0x20) if bytes([code]) not in _SPACES]
# Quotes, escaped quotes, raw white space, and non-finite numbers, which JSON does not have.
_TOKEN = re.compile(rb'\\[\\"]|"|[\t\n\r]+|-?Infinity|NaN')
_ODD = re.compile(rb"[\t\n\r]|Infinity|NaN")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_UNDECODED = re.compile("[\udc80-\udcff]")
_UNUSED = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Characters that Unicode reserves for marks inside of a program."""


def read(decode: Callable[[Any], T], data: bytes | str | Raw) -> T:
    """Decode JSON in which texts and numbers may be bad, as the module says.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: besides, the data is not JSON, or not what `decode` decodes.
    """
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        received = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        mark = _mark(received)
        covered = None if mark is None else _cover_bad_parts(received, mark)
        if mark is None or covered is None or covered == received:
            raise
    value: T = _Cover(mark).remove(decode(covered))
    return value


def as_read(data: bytes) -> bytes:
    """Return JSON that the decoder accepts: texts and numbers are as `read` returns them, raw values too."""
    try:
        if not data.isascii():
            data.decode()
        _decode_raw(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        mark = _mark(data)
        return data if mark is None else _Cover(mark).as_read(_cover_bad_parts(data, mark))
    return data


def decode_for_output(text: str) -> Any:
    """Decode JSON for output: half of a surrogate pair, which no output takes, is shown as its escape."""
    escaped = _ESCAPES.sub(lambda match: b"\\" + match[0] if match[1] else match[0], text.encode())
    return loads(escaped.decode())


def loads(data: str | bytes | Raw) -> Any:
    """Decode JSON with Python's decoder, which keeps all digits of integers, and half surrogate pairs."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
    return json.loads(text, strict=False, parse_constant=str)


def repair(data: bytes) -> bytes:
    """Return JSON without what many decoders refuse, and some skip with the whole line: raw control
    characters in strings become escapes, numbers that are not finite become strings of their names, and a
    byte order mark is dropped. All texts stay as they are. Time and memory are proportional to the length.
    """
    try:
        _decode_raw(data)
    except (msgspec.MsgspecError, RecursionError):
        return _rewritten(data, rb"\u%04x", b'"%b"')
    return data


def _rewritten(data: bytes, control: bytes, number: bytes) -> bytes:
    """Return JSON with other forms of raw control characters and of numbers that are not finite."""
    while data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
    parts, end, is_string = bytearray(), 0, False
    for token in _TOKEN.finditer(data) if _ODD.search(data) else ():
        text = token[0]
        if text == b'"':
            is_string = not is_string
        elif text.isspace() if is_string else text[0] in b"-IN":
            parts += data[end : token.start()]
            parts += _replace_controls(text, _SPACES, control) if is_string else number % text
            end = token.end()
    return _replace_controls(bytes(parts + data[end:]) if end else data, _OTHER_CONTROLS, control)


def _replace_controls(text: bytes, controls: Iterable[bytes], form: bytes) -> bytes:
    for control in controls:
        if control in text:
            text = text.replace(control, form % ord(control))
    return text


def _mark(data: bytes) -> str | None:
    """Return a character that JSON does not contain, also not as an escape; None if it has all of them."""
    for mark in _UNUSED:
        escape = re.compile(rb"\\u%04x" % ord(mark), re.IGNORECASE)
        if mark.encode() not in data and not escape.search(data):
            return mark
    return None


def _cover_bad_parts(data: bytes, mark: str) -> bytes:
    """Return JSON in which the decoder refuses no text and no number."""
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        data = _UNDECODED.sub(lambda match: f"{mark}b{ord(match[0]) - 0xDC00:04x}", text).encode()
    cover = mark.encode()
    data = _rewritten(data, cover + b"c%04x", b'"%bn%%b"' % cover)
    if not _HALF.search(data):
        return data
    return _ESCAPES.sub(lambda match: cover + match[1] if match[1] else match[0], data)


class _Cover:
    """The cover of the bad parts of one JSON text: a mark, the kind of the part, and its hexadecimal code.

    `u`: half of a surrogate pair, as an escape; `b`: a byte that is not UTF-8; `c`: a control character; `n`:
    a number that is not finite, by its name in a string.
    """

    def __init__(self, mark: str):
        self._mark = mark
        self._cover = cover = mark.encode()
        self._in_bytes = re.compile(
            rb'%b(u[0-9a-fA-F]{4})|((?:%bb[0-9a-f]{4})+)|%bc00([0-9a-f]{2})|"%bn(-?\w+)"'
            % ((cover,) * 4)
        )
        # A long text may have been cut within a part.
        self._in_text = re.compile(
            rf"(?:{mark}b[0-9a-f]{{4}})+|{mark}u[0-9a-fA-F]{{4}}|{mark}c([0-9a-f]{{4}})|{mark}(?:n|\w*\Z)"
        )

    def as_read(self, covered: bytes) -> bytes:
        """Return covered JSON with what `remove` leaves in decoded values."""
        return self._in_bytes.sub(_as_read, covered)

    def remove(self, value: Any) -> Any:
        """Return a decoded value without the cover; objects and lists are changed in place."""
        if isinstance(value, Raw):
            data = bytes(value)
            return Raw(self._in_bytes.sub(self._restore, data)) if self._cover in data else value
        if isinstance(value, str):
            return self._in_text.sub(_text, value) if self._mark in value else value
        if isinstance(value, dict):
            return {self.remove(name): self.remove(inner) for name, inner in value.items()}
        if isinstance(value, list):
            value[:] = map(self.remove, value)
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                inner = getattr(value, name)
                msgspec.structs.force_setattr(value, name, self.remove(inner))
        return value

    def _restore(self, part: re.Match[bytes]) -> bytes:
        half, octets, control, number = part.groups()
        if octets:
            control = octets.replace(self._cover + b"b00", b"")
        return b"\\" + half if half else number or bytes.fromhex(control.decode())


def _as_read(part: re.Match[bytes]) -> bytes:
    _, _, control, number = part.groups()
    if control:
        return b"\\u00" + control
    return b'"%b"' % number if number else "\ufffd".encode()


def _text(part: re.Match[str]) -> str:
    if part[1] is not None:
        return chr(int(part[1], 16))
    return "\ufffd" if part[0][1:2] in ("u", "b") else ""


W = TypeVar("W", bound="Wire")
Reader = Callable[[Raw], Any]

_RAW_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_RAW_LIST = msgspec.json.Decoder(list[Raw])
_NULL = Raw(b"null")
_STRING = msgspec.json.Decoder(str)
MAX_TEXT = 1 << 20
"""Maximum number of bytes of a string property, in JSON; the rest is dropped."""
_MAX_ESCAPE = 6
_BREAKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\r\n]+', re.DOTALL)


class Wire(msgspec.Struct, kw_only=True):
    """A JSON object of the protocol: typed properties, and `extra` for all others, byte for byte.

    A typed property that was sent as null is None, and its null is kept in `extra`. `to_json` writes that
    null back, but does not write a typed property that was absent. If the property is set after decoding,
    `to_json` writes the new value and not the null.
    """

    extra: dict[str, Raw] = {}

    @classmethod
    def from_json(cls: type[W], data: bytes | str | Raw) -> W:
        """Decode one JSON object, in which texts may be bad: see `read`.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: besides, the data is not JSON.
            msgspec.ValidationError: a property has the wrong type, or a required property is missing.
        """
        return read(cls._decode, data)

    @classmethod
    def _decode(cls: type[W], data: bytes | str | Raw) -> W:
        properties = _RAW_OBJECT.decode(data)
        values: dict[str, Any] = {}
        for name, encoded, decode in _readers(cls):
            value = properties.get(encoded)
            if value is not None and value != _NULL:
                values[name] = decode(properties.pop(encoded))
        try:
            return cls(**values, extra={key: raw.copy() for key, raw in properties.items()})
        except TypeError as error:  # a required property is missing
            raise msgspec.ValidationError(f"{cls.__name__}: {error}") from None

    def to_json(self) -> bytes:
        """Encode as one line of JSON, without the newline.

        Typed properties that are None are omitted, unless they were sent as null.
        """
        encoded = msgspec.json.encode(self._properties())
        if b"\n" in encoded or b"\r" in encoded:  # between the tokens of a formatted JSON file
            return _BREAKS.sub(lambda match: b" " if match[0].isspace() else match[0], encoded)
        return encoded

    def _properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = dict(self.extra)
        for name, encoded, _ in _readers(type(self)):
            value = getattr(self, name)
            if value is not None:
                properties[encoded] = _plain(value)
        return properties


def _decode_text(raw: Raw) -> str:
    """Return a string, without what exceeds `MAX_TEXT` bytes of its JSON: the text of a log or an error."""
    data = memoryview(raw)
    if len(data) <= MAX_TEXT:
        return _STRING.decode(raw)
    start = bytes(data[:MAX_TEXT])
    # The cut may stand within an escape, between two surrogates, or within a character.
    escape = start.rfind(b"\\", len(start) - _MAX_ESCAPE)
    whole = start[:escape] if escape >= 0 else start
    if (len(whole) - len(whole.rstrip(b"\\"))) % 2:
        whole = whole[:-1]
    text: str = json.loads(whole.decode("utf-8", "ignore") + '"')
    return text.encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    """Return a value that msgspec can encode: structs become dictionaries, also in lists."""
    if isinstance(value, Wire):
        return value._properties()  # noqa: SLF001 - the same method of a different struct
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@cache
def _readers(cls: type[Wire]) -> tuple[tuple[str, str, Reader], ...]:
    """Return the attribute name, the JSON name and the decoder of each typed property of a class."""
    hints = typing.get_type_hints(cls)
    fields = (field for field in msgspec.structs.fields(cls) if field.name != "extra")
    return tuple((f.name, f.encode_name, _reader(hints[f.name])) for f in fields)


def _reader(hint: Any) -> Reader:
    """Return the function that decodes raw JSON to the type of an annotation. It never receives null."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(members) == 1:
            return _reader(members[0])
    if isinstance(hint, type) and issubclass(hint, Wire):
        return hint._decode  # noqa: SLF001 - the same method of a different struct
    if typing.get_origin(hint) is list:
        item = _reader(typing.get_args(hint)[0])
        return lambda raw: [item(element) for element in _RAW_LIST.decode(raw)]
    if hint is Raw:
        return Raw.copy
    if hint is str:
        return _decode_text
    return msgspec.json.Decoder(hint).decode
