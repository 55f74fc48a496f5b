"""Fields that rows have if they are read from a log of changes, as other sources of Airbyte name them; and
what a snapshot of a table says of the rows that were there before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from connectors.sdk.items import Slice
from elt_assets.protocol.airbyte.catalog import DELETED_AT

UPDATED_AT = "_ab_cdc_updated_at"
_TIME = {
    "type": ["string", "null"],
    "format": "date-time",
    "airbyte_type": "timestamp_with_timezone",
}


def list_taken(columns: Iterable[str], cursor: str) -> list[str]:
    """Return the columns of a table that have names of the fields of its changes, in any case of letters."""
    names = {cursor, UPDATED_AT, DELETED_AT}
    return sorted(name for name in columns if name.lower() in names)


def add_log_fields(schema: Mapping[str, Any], cursor: str) -> dict[str, Any]:
    """Return the JSON schema of a table with the fields of its changes.

    Args:
        cursor: the field with the number of a change.
    """
    added = {cursor: {"type": ["integer", "null"]}, UPDATED_AT: _TIME, DELETED_AT: _TIME}
    return {**schema, "properties": {**schema["properties"], **added}}


def make_truncation_slice(number: int, time: int, key: Sequence[str]) -> Slice:
    """Return a slice that deletes the rows of a table with a number that is not greater.

    A table that is read in full again, after a reset, may have lost rows meanwhile. So in a table that
    deduplicates, this comes after the rows of the snapshot, whose numbers are greater: readers see each row
    that stayed all the time.

    Args:
        time: in microseconds since 1970.
        key: the names of the key's fields.
    """
    return Slice(
        "rows that are gone", {"truncation": number, "time": time, "key": list(key)}, rows=1
    )
