"""Fields: the columns as tasks know them, and the types that the JSON decoder decodes them to.

Tasks know nothing of the project's own schemas. In a decoded object, `f0` is the first field, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw

from elt_assets.lake.spark.types.kinds import KINDS

ARRAY, STRUCT, UNREAD = "ARRAY", "STRUCT", "UNREAD"
DECODING_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


@dataclass(frozen=True)
class Field:
    """A column, a field nested in one, or the element of an array."""

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
