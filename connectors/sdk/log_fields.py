"""Fields that rows have if they are read from a log of changes, as other sources of Airbyte name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elt_assets.protocol.airbyte.catalog import DELETED_AT

UPDATED_AT = "_ab_cdc_updated_at"
_TIME = {
    "type": ["string", "null"],
    "format": "date-time",
    "airbyte_type": "timestamp_with_timezone",
}


def add_log_fields(schema: Mapping[str, Any], cursor: str) -> dict[str, Any]:
    """Return the JSON schema of a table with the fields of its changes.

    Args:
        cursor: the field with the number of a change.
    """
    added = {cursor: {"type": ["integer", "null"]}, UPDATED_AT: _TIME, DELETED_AT: _TIME}
    return {**schema, "properties": {**schema["properties"], **added}}
