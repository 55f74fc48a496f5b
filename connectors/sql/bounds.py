"""Bounds of ranges: values of keys and cursors in states, and in conditions.

States are JSON, and a query takes the values of the driver. So a value is kept with its type: what SQLite has
as a text is compared as a text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from elt_assets.errors import ConfigError

_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "hex": bytes.fromhex,
}
_TYPES = {Decimal: "decimal", dt.date: "date", dt.datetime: "datetime", bytes: "hex"}


def encode_bound(value: Any) -> Any:
    """Return a value as JSON.

    Raises:
        ConfigError: it is of a type that no bound has.
    """
    if type(value) in (int, str, bool):
        return value
    name = _TYPES.get(type(value))
    if name is None:
        raise ConfigError(
            f"a value of the type {type(value).__name__} cannot be a bound of a range",
            guidance="choose another cursor, or leave out the primary key of the table in the dialect",
        )
    return {name: value.hex() if name == "hex" else str(value)}


def decode_bound(bound: Any) -> Any:
    """Return the value of a bound.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(bound, dict):
        return bound
    try:
        ((name, text),) = bound.items()
        return _PARSERS[name](text)
    except (KeyError, ValueError, TypeError, ArithmeticError):
        raise ConfigError(
            "the state has a bound that cannot be read",
            guidance="reset the stream (`elt reset`), so that it is read from the beginning",
        ) from None


def look_back(bound: Any, lookback: int) -> Any:
    """Return the bound below another one: so many seconds, days or units.

    Raises:
        ConfigError: nothing can be taken from it.
    """
    value = decode_bound(bound)
    if value is None or not lookback:
        return bound
    if isinstance(value, (dt.datetime, dt.date)):
        return encode_bound(value - dt.timedelta(seconds=lookback))
    if isinstance(value, (int, Decimal)):
        return encode_bound(value - lookback)
    raise ConfigError(
        "the driver gives the cursor as a text, below which nothing can be looked for",
        guidance="leave out the look-back, or let the driver give times",
    )


Operand = Callable[[int], str]
"""Returns the SQL of a value of a key, by the number of its column. A parameter is added each time."""


def is_after(names: Sequence[str], operand: Operand) -> str:
    """Return the condition that a key is greater than another one, whose values are operands."""
    return _compare(names, operand, ">", ">")


def is_until(names: Sequence[str], operand: Operand) -> str:
    """Return the condition that a key is at most another one."""
    return _compare(names, operand, "<", "<=")


def write_between(
    names: Sequence[str],
    after: Sequence[str] | None,
    until: Sequence[str] | None,
) -> str:
    """Return the condition that a key is in a range, whose ends are SQL; empty if it has no end.

    Args:
        after: the key before the range; None for no bound.
        until: the last key of the range; None for no bound.
    """
    ends = ((after, is_after), (until, is_until))
    return " AND ".join(
        compare(names, operands.__getitem__) for operands, compare in ends if operands is not None
    )


def _compare(
    names: Sequence[str], operand: Operand, strict: str, last: str, number: int = 0
) -> str:
    """Return a comparison column by column: servers find no range of an index for (a, b) > (1, 2)."""
    name = names[number]
    if number == len(names) - 1:
        return f"{name} {last} {operand(number)}"
    # The first part is implied: it is the range that the server looks for.
    first = f"{name} {strict}= {operand(number)}"
    greater = f"{name} {strict} {operand(number)}"
    rest = _compare(names, operand, strict, last, number + 1)
    return f"({first} AND ({greater} OR {rest}))"
