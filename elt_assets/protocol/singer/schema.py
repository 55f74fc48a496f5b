"""Conversion of the schemas of Singer taps to schemas of this project.

Spec: Singer, SCHEMA message; Airbyte supported data types.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from elt_assets.protocol.airbyte.json_schema import compose_schema, list_types

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
