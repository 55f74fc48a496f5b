"""Comparison of records, and of values of a cursor."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from connectors.testing.protocols.protocol import SeenRecord
from elt_assets.protocol.catalog import FieldPath, StreamId

_OTHER, _NUMBER, _TIME, _TEXT = range(4)

Order = tuple[int, Any]
"""The place of a cursor's value among other values: times are compared as times, in any notation."""


class Identity:
    """Identifies the records of streams: by the primary key if there is one, else by all fields.

    Args:
        keys: the primary key of each stream; empty for a stream without one.
        ignored: the top-level fields that are not compared.
    """

    def __init__(self, keys: Mapping[StreamId, Sequence[FieldPath]], ignored: Collection[str] = ()):
        self._keys = keys
        self._ignored = frozenset(ignored)

    def __call__(self, record: SeenRecord) -> str:
        """Return a text that is the same for records that are the same."""
        key = self._keys.get(record.stream) or ()
        values = {".".join(path): value_at(record.data, path) for path in key}
        compared: Mapping[str, Any] = values
        if not values or None in values.values():
            compared = {k: v for k, v in record.data.items() if k not in self._ignored}
        stream = f"{record.stream} " if len(self._keys) > 1 else ""
        return stream + canonical(compared)


@dataclass(frozen=True)
class Difference:
    """The difference between a whole read and a read in two parts.

    Args:
        missing: the records of the whole that are in no part.
        extra: the records of the second part that the whole does not have, or has less often.
    """

    missing: Counter[str]
    extra: Counter[str]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)


def difference(whole: Iterable[str], before: Iterable[str], after: Iterable[str]) -> Difference:
    """Compare the records of a whole read with those before a state and those that a read from it yields.

    The read from the state may repeat records from before it.
    """
    complete, resumed = Counter(whole), Counter(after)
    return Difference(complete - (Counter(before) + resumed), resumed - complete)


def canonical(value: Any) -> str:
    """Return the JSON of a value, the same for equal values: numbers by their value, keys sorted."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def value_at(data: Any, path: Sequence[str]) -> Any:
    """Return the value of a field of a record; None if the record does not have it."""
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def order(value: Any) -> Order:
    """Return the place of a cursor's value. A time without a zone is in UTC."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return (_OTHER, canonical(value))
    if not isinstance(value, str):
        return (_NUMBER, value)
    moment = parse_time(value)
    return (_TEXT, value) if moment is None else (_TIME, moment)


def parse_time(text: str) -> dt.datetime | None:
    """Return a date or a date-time of ISO 8601; None for any other text."""
    for kind in (dt.datetime, dt.date):
        try:
            parsed = msgspec.convert(text, kind)
        except msgspec.ValidationError:
            continue
        if not isinstance(parsed, dt.datetime):
            parsed = dt.datetime(parsed.year, parsed.month, parsed.day, tzinfo=dt.timezone.utc)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.timezone.utc)
    return None


def is_later(place: Order, time: dt.datetime) -> bool:
    """Return whether a cursor's value is a time after another one."""
    return place[0] == _TIME and bool(place[1] > time)


def decoded(blob: bytes | msgspec.Raw | None) -> Any:
    """Return the value of a JSON text; None if there is none."""
    return None if blob is None else msgspec.json.decode(blob)


def scalars(value: Any) -> Iterator[Any]:
    """Yield every text and number in a JSON value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from scalars(inner)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        yield value


def list_scalars(
    value: Any, skipped: Collection[str] = (), name: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield every text and number in a JSON value with the name of the property that has it.

    Args:
        skipped: the names of properties that are left out.
        name: the name of the property that has the value.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in skipped:
                yield from list_scalars(inner, skipped, key)
    elif isinstance(value, list):
        for inner in value:
            yield from list_scalars(inner, skipped, name)
    else:
        yield from ((name, scalar) for scalar in scalars(value))


def is_time(place: Order) -> bool:
    """Return whether a cursor's value is a time."""
    return place[0] == _TIME


def evenly_spread(count: int, limit: int | None) -> list[int]:
    """Return at most `limit` of the numbers below `count`, evenly spread; the last one is among them."""
    if limit is None or limit >= count:
        return list(range(count))
    return sorted({(step + 1) * count // limit - 1 for step in range(limit)})
