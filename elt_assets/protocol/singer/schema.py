"""Schemas as Singer taps write them, in this project's words.

spec: Singer, SCHEMA message; Airbyte supported data types.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

DECIMALS = 9
"""Digits after the point that a `big_number` keeps."""
_MOST_REFERENCES = 10_000
"""That are followed in one schema: each may name several others, and so grow without end."""
_LARGEST = 2**63 - 1

Place = tuple[str, ...]


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A stream's schema that needs nothing but itself, and says what its numbers are.

    References into the schema (`#/definitions/…`) are replaced by what they name; one that comes back to
    itself, leads nowhere, or is one too many, by `{}`: any JSON. Decimals (`format: singer.decimal`, which
    come as strings, and numbers with a `multipleOf`) are `big_number`s or `big_integer`s, where those hold
    them.

    Raises:
        RecursionError: it is nested too deeply.
    """
    found = _Resolution(schema).of(schema, ())
    return {key: part for key, part in found.items() if key not in ("definitions", "$defs")}


class _Resolution:
    """The references of one schema."""

    def __init__(self, root: Mapping[str, Any]):
        self._root = root
        self._left = _MOST_REFERENCES

    def of(self, schema: Any, followed: Place) -> Any:
        """The same without references. `followed`: those that led here."""
        if isinstance(schema, list):
            return [self.of(part, followed) for part in schema]
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            beside = {key: part for key, part in schema.items() if key != "$ref"}
            named = self._named(reference, followed)
            return {**named, **self.of(beside, followed)} if isinstance(named, Mapping) else {}
        return _told({key: self.of(part, followed) for key, part in schema.items()})

    def _named(self, reference: str, followed: Place) -> Any:
        self._left -= 1
        if reference in followed or self._left < 0:
            return {}
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return self.of(found, (*followed, reference))


def _told(schema: dict[str, Any]) -> dict[str, Any]:
    """What a number is, where the column for it says more than `number` or `integer`."""
    kinds = schema.get("type")
    given = kinds if isinstance(kinds, list) else [kinds]
    if schema.get("format") == "singer.decimal" and "string" in given:
        number = ["number" if kind == "string" else kind for kind in given]
        rest = {key: part for key, part in schema.items() if key not in ("format", "type")}
        return {**rest, "type": number, "airbyte_type": "big_number"}
    if "number" in given and "airbyte_type" not in schema:
        places = _places(schema.get("multipleOf"))
        if places is not None and places <= DECIMALS:
            return {**schema, "airbyte_type": "big_number" if places else "big_integer"}
    if "integer" in given and "airbyte_type" not in schema and _is_larger(schema.get("maximum")):
        return {**schema, "airbyte_type": "big_integer"}
    return schema


def _places(step: Any) -> int | None:
    """Digits after the point of the multiples of a number."""
    if isinstance(step, bool) or not isinstance(step, (int, float)) or step <= 0:
        return None
    try:
        exponent = Decimal(str(step)).normalize().as_tuple().exponent
    except InvalidOperation:  # no number that is finite
        return None
    return max(0, -exponent) if isinstance(exponent, int) else None


def _is_larger(maximum: Any) -> bool:
    """Than a long: an unsigned one is."""
    is_number = isinstance(maximum, (int, float)) and not isinstance(maximum, bool)
    return is_number and maximum > _LARGEST
