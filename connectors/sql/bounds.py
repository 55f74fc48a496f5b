"""Bounds of ranges: values of keys and cursors in states, and in conditions.

States are JSON, and a query takes the values of the driver. So a value is kept with its type: what SQLite has
as a text is compared as a text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from elt_assets.errors import ConfigError

_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
}
_TYPES = {Decimal: "decimal", dt.date: "date", dt.datetime: "datetime"}


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
    return {name: str(value)}


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


@dataclass
class Condition:
    """A condition of a query with parameters. `mark`: returns the mark of a parameter by its number."""

    mark: Callable[[int], str]
    values: list[Any] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def add(self, value: Any) -> str:
        """Add a parameter, and return its mark."""
        self.values.append(value)
        return self.mark(len(self.values))

    def require(self, part: str) -> None:
        """Add a part that must hold too."""
        self.parts.append(part)

    def compare(self, names: Sequence[str], bound: Sequence[Any], sign: str, last: str) -> str:
        """Return the comparison of a key with a bound, column by column.

        Args:
            names: the columns in quotes.
            sign: `<` or `>`; `last`: the sign of the last column.
        """
        name, value = names[0], bound[0]
        if len(names) == 1:
            return f"{name} {last} {self.add(value)}"
        strict = f"{name} {sign} {self.add(value)}"
        equal = f"{name} = {self.add(value)}"
        rest = self.compare(names[1:], bound[1:], sign, last)
        return f"({strict} OR ({equal} AND {rest}))"

    def __str__(self) -> str:
        return "".join(f" {'AND' if n else 'WHERE'} ({part})" for n, part in enumerate(self.parts))
