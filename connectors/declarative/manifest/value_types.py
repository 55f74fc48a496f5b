"""The types that a manifest can ask for with `value_type`."""

from __future__ import annotations

from collections.abc import Mapping

Types = tuple[type, ...]

TEXT: Types = (str,)
_TYPES: Mapping[str, Types] = {
    "string": TEXT,
    "number": (float, int),
    "integer": (int,),
    "boolean": (bool,),
}


def types_of(value_type: str | None) -> Types:
    """Return the types that the value of a template may have; a value of another type stays a text. Empty for
    all."""
    return _TYPES.get(value_type or "", ())
