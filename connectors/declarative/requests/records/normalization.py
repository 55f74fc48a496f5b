"""Schema normalization: values are cast to the types of the schema before a record is emitted.

The rules are those of the Airbyte CDK, except where a cast loses information: numbers keep all digits, null
stays null, and an object that becomes a text becomes JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from connectors.declarative.requests.decoding.json_body import number
from connectors.sdk.encoding import encode
from elt_assets.protocol.json_schema import local

Convert = Callable[[Any], Any]
"""Returns a value in its type; the value itself if it cannot be cast."""

_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})
_SIMPLE = frozenset({"string", "number", "integer", "boolean", "null"})
MAX_REFERENCES = 100
"""Number of references that may follow each other without a property between them."""


def normalizer(schema: Mapping[str, Any]) -> Convert:
    """Return the function that casts the values of records in place, and returns the record.

    Args:
        schema: the JSON schema of the stream. Properties, items and local references are followed;
            alternatives (`anyOf`, `oneOf`) leave their values as they are.
    """
    normalize = _Compiler(schema).inner(schema)
    return normalize or (lambda record: record)


class _Compiler:
    """Makes functions of schemas. A schema that refers to itself is made once."""

    def __init__(self, root: Mapping[str, Any]):
        self._root = root
        self._known: dict[int, Convert] = {}

    def inner(self, schema: Any) -> Convert | None:
        """Return the function that casts what is within a value; None if nothing is."""
        if not isinstance(schema, Mapping):
            return None
        if id(schema) in self._known:
            return self._deferred(id(schema))
        self._known[id(schema)] = lambda value: value
        steps = list(filter(None, (self._properties(schema), self._items(schema))))
        if "$ref" in schema:
            referred = self.inner(self._resolved(schema["$ref"]))
            steps = [referred] if referred else []
        if not steps:
            return None
        self._known[id(schema)] = _chain(steps)
        return self._known[id(schema)]

    def _deferred(self, key: int) -> Convert:
        """Return a function that is known only when the schema that contains it is made."""

        def convert(value: Any) -> Any:
            return self._known[key](value)

        return convert

    def whole(self, schema: Any) -> Convert | None:
        """Return the function that casts a value, and what is within it; None if nothing changes."""
        if not isinstance(schema, Mapping):
            return None
        steps = list(filter(None, (_cast(schema), self.inner(schema))))
        return _chain(steps) if steps else None

    def _properties(self, schema: Mapping[str, Any]) -> Convert | None:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return None
        normalizers = {
            name: self.whole(property_schema) for name, property_schema in properties.items()
        }
        casts = [(name, convert) for name, convert in normalizers.items() if convert is not None]
        if not casts:
            return None

        def change(value: Any) -> Any:
            if isinstance(value, dict):
                for name, convert in casts:
                    if name in value:
                        value[name] = convert(value[name])
            return value

        return change

    def _items(self, schema: Mapping[str, Any]) -> Convert | None:
        convert = self.whole(schema.get("items"))
        if convert is None:
            return None

        def change(value: Any) -> Any:
            if isinstance(value, list):
                value[:] = map(convert, value)
            return value

        return change

    def _resolved(self, reference: Any) -> Any:
        """Return the schema to which a local reference leads; None if there is none."""
        for _ in range(MAX_REFERENCES):
            target = find_definition(self._root, str(reference))
            if not (isinstance(target, Mapping) and "$ref" in target):
                return target
            reference = target["$ref"]
        return None


def find_definition(root: Mapping[str, Any], reference: str) -> Any:
    """Return the part of a schema that a local reference names; None if there is none. As in the CDK, the
    pointer need not begin with a slash."""
    address, mark, pointer = reference.partition("#")
    pointer = pointer.strip("/")
    return None if address or not mark else local(root, f"#/{pointer}" if pointer else "#")


def _chain(steps: list[Convert]) -> Convert:
    if len(steps) == 1:
        return steps[0]
    first, second = steps
    return lambda value: second(first(value))


def _cast(schema: Mapping[str, Any]) -> Convert | None:
    """Return the cast to the type of a schema; None if it has none, or several."""
    types = schema.get("type", ())
    kinds = [types] if isinstance(types, str) else [kind for kind in types if kind != "null"]
    if len(kinds) != 1:
        return None
    if kinds[0] == "array":
        return _wrap if _has_simple_items(schema) else None
    cast = _CASTS.get(kinds[0])
    if cast is None:
        return None

    def convert(value: Any) -> Any:
        return None if value is None else cast(value)

    return convert


def _has_simple_items(schema: Mapping[str, Any]) -> bool:
    items = schema.get("items", {})
    kinds = items.get("type", ()) if isinstance(items, Mapping) else None
    return isinstance(kinds, list | tuple) and _SIMPLE.issuperset(kinds)


def _wrap(value: Any) -> Any:
    return [value] if value is None or isinstance(value, str | int | float | Decimal) else value


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return encode(value).decode()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return value
    try:
        return number(value.strip()) if math.isfinite(float(value)) else value
    except (ValueError, InvalidOperation):
        return value


def _integer(value: Any) -> Any:
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return value


def _boolean(value: Any) -> Any:
    if not isinstance(value, str):
        return bool(value)
    text = value.strip().lower()
    return True if text in _TRUE else False if text in _FALSE else value


_CASTS: Mapping[str, Convert] = {
    "string": _text,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
}
