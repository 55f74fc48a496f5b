"""Lossless structs: they keep the properties of a message that this project does not know.

Spec: Airbyte Protocol, Messages: "all messages should allow for unknown properties".
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from elt_assets.protocol.airbyte.recovery.texts import read

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
        """Decode one JSON object, in which texts may be bad: see `recovery.texts`.

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
