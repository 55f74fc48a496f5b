"""The decision whether a record is new, that is, not one that its source sends again with each read."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from elt_assets.connection.partitions import moment
from elt_assets.pipeline.given_state import source_state
from elt_assets.protocol.airbyte.catalog import ConfiguredStream
from elt_assets.protocol.airbyte.messages import RawRecord
from elt_assets.protocol.airbyte.recovery.texts import loads


def is_new(record: RawRecord, stream: ConfiguredStream, state: str | None) -> bool:
    """Return whether a record of a read from `state` is new.

    Many sources read from the bookmark on, the bookmark included, so they send the last record again. A
    record is not new if the state contains the value of its cursor. Every record is new if there is no state
    or no cursor.
    """
    if record.stream != stream.id.name or record.namespace not in (None, stream.id.namespace):
        return False
    if state is None or not stream.cursor:
        return True
    cursor_value: Any = loads(record.data)
    for name in stream.cursor:
        cursor_value = cursor_value.get(name) if isinstance(cursor_value, dict) else None
    if cursor_value is None:
        return True
    value = _comparable(cursor_value)
    return all(
        _comparable(cursor) != value
        for cursor in _values(json.loads(source_state(state) or "null"))
    )


def _values(state: Any) -> Iterator[Any]:
    """Yield the texts and numbers in a JSON value, at any depth."""
    if isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _values(part)
    elif state is not None:
        yield state


def _comparable(value: Any) -> Any:
    """Return a value in one form for all its notations: numbers as text, times with or without a zone."""
    if not isinstance(value, str | int | float):
        return value
    with contextlib.suppress(InvalidOperation):
        number = Decimal(str(value))
        if number.is_finite():
            return number
    if not isinstance(value, str):
        return value
    try:
        instant = moment(value)
    except ValueError:
        return value
    return instant if instant.tzinfo else instant.replace(tzinfo=dt.timezone.utc)
