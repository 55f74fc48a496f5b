"""The metadata of the public contract, as Dagster shows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets.lake import types
from elt_assets.lake.head import Head
from elt_assets.lake.table import Table
from elt_assets.sync.events import Committed

SEQUENCE = "elt/sequence"
STATE = "elt/state"
TABLE_PATH = "elt/table_path"
"""On the definition: the table's levels under the lake's root."""
HISTORY = "elt/history"
"""On the definition: whether the stream keeps one."""
SCHEMA_CHANGES = "elt/schema_changes"
MAX_STATE = 32 * 1024
"""Bytes of JSON. The event log has no guard of its own; beyond this the table alone has it whole."""


@dataclass
class SyncFigures:
    """What one materialisation moved, summed over its commits."""

    read: int = 0
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, metadata: Mapping[str, dg.MetadataValue[Any]]) -> SyncFigures:
        """The figures that an event tells."""
        names = {
            "read": "elt/records_read",
            "committed": "elt/records_committed",
            "rejected": "elt/records_rejected",
            "changed": "elt/records_changed",
            "bytes": "elt/bytes_read",
            "seconds": "elt/seconds",
        }
        return cls(**{name: metadata[key].value for name, key in names.items() if key in metadata})

    def add(self, commit: Committed) -> None:
        self.committed += commit.records
        self.rejected += commit.rejected
        self.changed += commit.changed

    def metadata(self) -> dict[str, Any]:
        rate = self.read / self.seconds if self.seconds else 0.0
        return {
            "elt/records_read": self.read,
            "elt/records_committed": self.committed,
            "elt/records_rejected": self.rejected,
            "elt/records_changed": self.changed,
            "elt/bytes_read": self.bytes,
            "elt/seconds": round(self.seconds, 3),
            "elt/records_per_second": round(rate, 1),
        }


def state_metadata(state: str | None) -> Any:
    """The acknowledged state; a pointer and a hash where it is too large for an event."""
    if state is None:
        return dg.MetadataValue.null()
    size = len(state.encode())
    if size <= MAX_STATE:
        return dg.MetadataValue.json(json.loads(state))
    digest = hashlib.sha256(state.encode()).hexdigest()
    return dg.MetadataValue.json(
        {
            "elt/too_large": "see elt.state in the table's last commit",
            "bytes": size,
            "sha256": digest,
        }
    )


def head_metadata(head: Head, version: int) -> dict[str, Any]:
    """What a commit says, and the table's version that it made."""
    return {
        STATE: state_metadata(head.state),
        SEQUENCE: head.sequence,
        "elt/generation": head.generation,
        "elt/table_version": version,
    }


def schema_metadata(changes: Sequence[str]) -> dict[str, Any]:
    """How the schema differs from the table's; nothing where it does not."""
    return {SCHEMA_CHANGES: dg.MetadataValue.json(list(changes))} if changes else {}


def table_metadata(table: Table, name: str) -> Mapping[str, Any]:
    """What Dagster itself knows to show of a table."""
    return {
        "dagster/row_count": table.records,
        "dagster/column_schema": column_schema(table.schema),
        "dagster/table_name": name,
        "dagster/uri": table.uri,
        "dagster/storage_kind": "delta",
    }


def column_schema(schema: types.TableSchema) -> dg.TableSchema:
    """A table's columns as Dagster shows them."""
    described = types.described(schema)
    return dg.TableSchema([dg.TableColumn(name, kind) for name, kind in described])
