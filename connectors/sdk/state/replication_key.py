"""The replication key of a stream, and the order of its values: by what they mean, not by their text.

Spec: SDK Implementation Details - Stream State, "Replication Key is Singular".
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from connectors.sdk.times import finite_number, instant, is_instant, is_number, iso, moment
from elt_assets.errors import SystemFailure

DATE_TIME = "date-time"
DATE = "date"
NUMBER = "number"
TEXT = "text"


class ReplicationKey:
    """The top-level field by which a stream is read incrementally.

    Values are compared as instants if the schema declares a date or a date-time, as numbers if it declares a
    number, and as text otherwise. The first value decides for a text without a declared format, which may be
    an instant, and for a declared date-time, which may be a number. An empty text is no value.

    Args:
        field: the name of the field.
        schema: the JSON schema of the field; an empty one if it is not declared.
    """

    def __init__(self, field: str, schema: Mapping[str, Any]):
        self.field = field
        self.kind = _kind(schema)
        self.declares_number = self.kind == NUMBER
        self._is_known = False

    def order(self, value: Any) -> Any:
        """Return an object that compares as the value does. Values of one stream are comparable.

        Raises:
            SystemFailure: the value is not of the key's kind. The message names the field and the value.
        """
        try:
            if not self._is_known and value != "":
                self.kind = self._kind_of_first(value)
                self._is_known = True
            if self.kind == NUMBER:
                return finite_number(value if is_number(value) else Decimal(value))
            if self.kind in (DATE_TIME, DATE):
                return instant(iso(value))
            return _text(value)
        except (ValueError, TypeError, InvalidOperation):
            raise SystemFailure(
                f"the replication key {self.field!r} has the value {value!r}, which cannot be compared as a "
                f"{self.kind}",
                guidance="correct the type of the field in the stream's schema, or choose another key",
            ) from None

    def is_larger(self, value: Any, than: Any) -> bool:
        """Return whether a value is after another one."""
        return bool(self.order(value) > self.order(than))

    def compare(self, value: Any, other: Any) -> int | None:
        """Return -1, 0 or 1: a value is before another one, the same, or after it; None if the two cannot be
        compared, or one of them is missing."""
        if value is None or other is None:
            return None
        try:
            if is_number(value) == is_number(other):
                first, second = self.order(value), self.order(other)
                return int(first > second) - int(first < second)
        except SystemFailure:
            return None
        times = moment(value), moment(other)
        if times[0] is None or times[1] is None:
            return None
        return int(times[0] > times[1]) - int(times[0] < times[1])

    def is_before(self, value: Any, start: Any) -> bool:
        """Return whether a value is before the start of a read. What cannot be compared with it is not."""
        return self.compare(value, start) == -1

    def _kind_of_first(self, value: Any) -> str:
        """Return the kind of all values, which the first one decides where the schema does not."""
        if is_number(value):
            return NUMBER
        return DATE_TIME if self.kind == TEXT and is_instant(value) else self.kind


def find_declared_key(field: str | None, schema: Mapping[str, Any]) -> ReplicationKey | None:
    """Return the replication key of records with a JSON schema; None if there is none."""
    if field is None:
        return None
    declared = (schema.get("properties") or {}).get(field)
    return ReplicationKey(field, declared if isinstance(declared, Mapping) else {})


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the kind of values that a field's schema declares; TEXT if it declares none of the others."""
    declared = schema.get("type")
    types = set(declared) if isinstance(declared, list) else {declared}
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    kinds = {_kind(choice) for choice in choices if isinstance(choice, Mapping)}
    if schema.get("format") in (DATE_TIME, DATE):
        return str(schema["format"])
    if types & {"integer", NUMBER}:
        return NUMBER
    return next((kind for kind in (DATE_TIME, DATE, NUMBER) if kind in kinds), TEXT)
