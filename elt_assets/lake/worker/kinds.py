"""The table of types: what a JSON value becomes in a column of each logical type, and how it is decoded.

Used by the modules of the parse, by `widening`, by `lake.write`, which makes the fields of a job, and by
`pipeline.row_conditions`, for the filter of records.

A value is decoded to the type `decoded`, with all others of its block. A value of another JSON type is read
alone by `read`, from its text as it stands in the line. Where the type has a form (a time, a number in a
string), the column of decoded values is cast at once, and what has another form is read alone by `finish`.
So the result for a value is the same whichever way it goes.

To add a type, add a row to `KINDS` and a member to `lake.columns.logical_types.Scalar`. After the table come
the fields, as tasks know them, and the types that the JSON decoder decodes them to.

Spec: Airbyte supported data types, v0 semantics; the well-known types of v1 where a schema names them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from elt_assets.lake.worker.values import (
    CLEAN,
    MISFIT,
    BecomesNull,
    Report,
    cast_times,
    read_big_integer,
    read_big_number,
    read_date,
    read_double,
    read_instant,
    read_integer,
    read_integer_text,
    read_local_time,
    read_number_text,
    read_time_of_day,
    read_time_with_zone,
    read_time_without_zone,
    shortest_text,
)

Reader = Callable[[Any, Report], Any]
"""Returns a value; records a change of it, or raises `BecomesNull` if it becomes null."""


@dataclass(frozen=True)
class Form:
    """The form of clean values of a type, once they are decoded to text."""

    pattern: str  # of RE2
    # Returns a column from texts of this form, in the column's type.
    cast: Callable[[pa.Array, pa.DataType], pa.Array]
    finish: Reader  # returns the value of a text of another form


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    decoded: type  # the Python type of a clean value; `Raw`: its text as it stands in the line
    read: Reader  # returns a decoded value from the text of a JSON value that is not null
    form: Form | None = None  # of the decoded values; None if they are those of the column
    # For JSON text, the first byte of the values that fit; None for all other types.
    opening: bytes | None = None
    is_sized: bool = False  # a value above the limit of sizes becomes null
    is_double: bool = False  # a number may have more digits than the column keeps

    @property
    def decoder_type(self) -> Any:
        """The type for the decoder. It is made here, because bounds cannot be sent to a worker."""
        if self.decoded is int:
            return Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
        return self.decoded


def _read_string(raw: bytes, _: Report) -> str:
    if raw[:1] != b'"':
        raise BecomesNull(*MISFIT)
    return str(msgspec.json.decode(raw))


def _read_text(raw: bytes, _: Report) -> str:
    """Return a string; a number in its one text; any other JSON value as it stands in the line."""
    if raw[:1] == b'"':
        return str(msgspec.json.decode(raw))
    return raw.decode() if raw[:1] in b"[{tf" else shortest_text(raw.decode())


def _read_boolean(raw: bytes, _: Report) -> bool:
    if raw not in (b"true", b"false"):
        raise BecomesNull(*MISFIT)
    return raw == b"true"


def _read_raw(raw: bytes, _: Report) -> Raw:
    return Raw(raw)


_WITHOUT_SPACES = str.maketrans("", "", " \t\r\n")


def _read_bytes(text: str, _: Report) -> bytes:
    """Return the bytes of a base64 text (RFC 4648), also without padding, or in lines as MIME has them."""
    text = text.translate(_WITHOUT_SPACES)
    if "=" not in text:
        text += "=" * (-len(text) % 4)
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise BecomesNull(*MISFIT) from None


def _cast_numbers(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    if pc.any(pc.starts_with(texts, '"'), min_count=0).as_py():
        texts = pc.utf8_trim(texts, '"')
    return texts.cast(type_)


def _number_kind(form: str, read: Reader) -> Kind:
    """Return the row of a number that may also be a string. It is taken as it stands in the line."""
    return Kind(Raw, _read_raw, Form(rf'^(?:{form}|"{form}")$', _cast_numbers, read))


def _time_kind(name: str, read: Reader) -> Kind:
    return Kind(str, _read_string, Form(CLEAN[name], partial(cast_times, name), read))


def _json_kind(opening: bytes) -> Kind:
    return Kind(Raw, _read_raw, opening=opening, is_sized=True)


_FIFTEEN_DIGITS = r"(?:0|-?[1-9]\d{0,14}|-?(?:0|[1-9]\d{0,6})\.\d{1,8}|-?0\.\d{9,15})"
"""Numbers of at most fifteen digits: a double keeps all of them."""

KINDS: dict[str, Kind] = {
    "TEXT": Kind(str, _read_text, is_sized=True),
    "BOOLEAN": Kind(bool, _read_boolean),
    "INTEGER": Kind(int, read_integer),
    "NUMBER": Kind(float, read_double, is_double=True),
    "INTEGER_IN_DOUBLE": Kind(float, read_double, is_double=True),
    "INTEGER_TEXT": _number_kind(r"-?(?:0|[1-9]\d{0,17})", read_integer_text),
    "NUMBER_TEXT": _number_kind(_FIFTEEN_DIGITS, read_number_text),
    "BIG_INTEGER": _number_kind(r"-?(?:0|[1-9]\d{0,36})", read_big_integer),
    "BIG_NUMBER": _number_kind(r"-?(?:0|[1-9]\d{0,27})(?:\.\d{1,9})?", read_big_number),
    "DATE": _time_kind("DATE", read_date),
    "TIMESTAMP": _time_kind("TIMESTAMP", read_instant),
    "TIMESTAMP_NTZ": _time_kind("TIMESTAMP_NTZ", read_local_time),
    "TIME": _time_kind("TIME", read_time_of_day),
    "TIME_WITH_TIMEZONE": _time_kind("TIME_WITH_TIMEZONE", read_time_with_zone),
    "TIME_WITHOUT_TIMEZONE": _time_kind("TIME_WITHOUT_TIMEZONE", read_time_without_zone),
    "BINARY": Kind(
        str,
        _read_string,
        Form(r"^$", lambda texts, type_: texts.cast(type_), _read_bytes),
        is_sized=True,
    ),
    "JSON": _json_kind(b""),
    "JSON_OBJECT": _json_kind(b"{"),
    "JSON_ARRAY": _json_kind(b"["),
}


ARRAY, STRUCT, UNREAD = "ARRAY", "STRUCT", "UNREAD"
DECODING_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


@dataclass(frozen=True)
class Field:
    """A column, a field nested in one, or the element of an array.

    Tasks know nothing of the project's own schemas. In a decoded object, `f0` is the first field, and so on.
    """

    source: str
    name: str
    kind: str  # the name of a `Scalar`, or ARRAY, STRUCT or UNREAD
    type: pa.DataType  # the type of the column in the file
    inner: tuple[Field, ...] = ()  # the fields of an object, or the one element of an array

    @property
    def is_read(self) -> bool:
        """A decoder reads the field: no stream fills one that it does not read."""
        return self.kind != UNREAD

    @property
    def has_double(self) -> bool:
        """The field has numbers that become doubles, at any depth."""
        if self.inner:
            return any(field.has_double for field in self.inner)
        return self.is_read and KINDS[self.kind].is_double


def object_type(
    fields: Sequence[Field],
    raw_fields: frozenset[int] = frozenset(),
    *,
    is_closed: bool = False,
    keeps_number_texts: bool = False,
) -> Any:
    """Return the type that decodes an object.

    Args:
        raw_fields: numbers of fields that are taken as they stand in the line.
        is_closed: an object with another name is refused.
        keeps_number_texts: numbers that become doubles are taken as they stand in the line, at any depth.

    Raises:
        ValueError: the decoder supports no name with a backslash, a quote or a control character.
    """
    types, names = [], {}
    for number, field in enumerate(fields):
        if field.is_read:
            type_ = (
                Raw if number in raw_fields else value_type(field, is_closed, keeps_number_texts)
            )
            types.append((f"f{number}", type_, None))
            names[f"f{number}"] = field.source
    return msgspec.defstruct(
        "Record", types, rename=names, forbid_unknown_fields=is_closed, gc=False
    )


def value_type(field: Field, is_closed: bool = False, keeps_number_texts: bool = False) -> Any:
    """Return the type that decodes a value of a field, see `object_type`."""
    if field.kind == ARRAY:
        return list[value_type(field.inner[0], is_closed, keeps_number_texts)] | None  # type: ignore[misc]
    if field.kind == STRUCT:
        return (
            object_type(field.inner, is_closed=is_closed, keeps_number_texts=keeps_number_texts)
            | None
        )
    kind = KINDS[field.kind]
    type_ = Raw if keeps_number_texts and kind.is_double else kind.decoder_type
    return Raw if type_ is Raw else type_ | None  # `Raw` also takes null, and cannot be in a union
