"""The types that the JSON decoder decodes objects to: `f0` is the first field of an object, and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.lake.spark.types.fields import ARRAY, STRUCT, UNREAD, Field
from elt_assets.lake.spark.types.kinds import KINDS

_UNSUPPORTED = frozenset('\\"')
"""Characters that the decoder does not support in a declared name. It does not support control characters
either."""

DECODING_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)

TypeOf = Callable[[Field], Any]
"""Returns the type of a scalar; None to leave its field out."""


def clean_type(field: Field) -> Any:
    """Return the type of a clean scalar. `Raw` also takes null, and cannot be in a union."""
    type_ = KINDS[field.kind].decoder_type
    return Raw if type_ is Raw else type_ | None


def object_type(
    fields: Sequence[Field],
    type_of: TypeOf = clean_type,
    *,
    is_closed: bool = False,
    raw: frozenset[int] = frozenset(),
) -> Any:
    """Return the type that decodes an object.

    Args:
        is_closed: an object with another name is refused.
        raw: numbers of fields that are taken as they stand in the line.
    """
    known = [(number, each) for number, each in enumerate(fields) if is_read(each)]
    types = [
        (
            f"f{number}",
            Raw if number in raw else value_type(each, type_of, is_closed=is_closed),
            None,
        )
        for number, each in known
    ]
    rename = {f"f{number}": each.source for number, each in known}
    return msgspec.defstruct(
        "Record", types, rename=rename, forbid_unknown_fields=is_closed, gc=False
    )


def value_type(field: Field, type_of: TypeOf = clean_type, *, is_closed: bool = False) -> Any:
    """Return the type that decodes a value of a field."""
    if field.kind == ARRAY:
        return list[value_type(field.inner[0], type_of, is_closed=is_closed)] | None  # type: ignore[misc]
    if field.kind == STRUCT:
        return object_type(field.inner, type_of, is_closed=is_closed) | None
    return type_of(field)


def is_read(field: Field) -> bool:
    """Return whether a decoder reads a field: no stream fills one that it does not read."""
    return field.kind != UNREAD


def has_supported_names(field: Field) -> bool:
    """Return whether the decoder supports the name of a field and of all fields nested in it."""
    is_supported = field.source.isprintable() and _UNSUPPORTED.isdisjoint(field.source)
    return not is_read(field) or (is_supported and all(map(has_supported_names, field.inner)))


def has_double(field: Field) -> bool:
    """Return whether a field has numbers that become doubles, at any depth."""
    if field.inner:
        return any(map(has_double, field.inner))
    return is_read(field) and KINDS[field.kind].is_double
