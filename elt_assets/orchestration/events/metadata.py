"""The metadata of the public contract, as Dagster shows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.orchestration.events.columns import column_schema
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.protocol.airbyte.catalog import ConfiguredStream
from elt_assets.sync.events import StreamProgress

SEQUENCE = "elt/sequence"
STATE = "elt/state"
RECORDS_READ = "elt/records_read"
TABLE_PATH = "elt/table_path"
"""On the definition: the table's levels under the lake's root."""
HISTORY = "elt/history"
"""On the definition: whether the stream keeps one."""
DESTINATION = "elt/destination"
"""On the definition: the connector that the rows go to, where that is not the lake."""
SCHEMA_CHANGES = "elt/schema_changes"
COUNTED = "elt/source_records"
"""How many records the source says that it sent; left out where it does not say."""
STATUS = "elt/stream_status"
"""The last status that the source told of the stream; left out where it told none."""
IGNORED = "elt/records_ignored"
"""How many records came of streams that are not configured; left out where none did."""
UNDECLARED = "elt/undeclared_fields"
"""By field that the catalog does not declare, how many records had it; left out where none did."""
UNMENTIONED = "elt/unmentioned"
"""What the source sent in place of any message about the stream; left out where it sent one."""
ROW_COUNT = "dagster/row_count"
TABLE_ROWS = "elt/table_rows"
"""On the event of a partition: the rows of the whole table. `dagster/row_count` is the partition's own."""
_FIGURES = {
    "read": RECORDS_READ,
    "committed": "elt/records_committed",
    "rejected": "elt/records_rejected",
    "changed": "elt/records_changed",
    "bytes": "elt/bytes_read",
    "seconds": "elt/seconds",
    "undeclared": UNDECLARED,
}
"""What `SyncFigures` calls a figure, and the public contract does."""
MOST, LONGEST = 20, 300
"""Sentences in an event, and characters of each."""
MAX_SCHEMA = 20 * 1024
"""About how many bytes the columns may take of an event; the definition tells of all of them."""
MAX_STATE = 32 * 1024
"""Bytes of JSON. The event log has no guard of its own; beyond this the table alone has it whole."""


def figures_of(metadata: Mapping[str, Any]) -> SyncFigures:
    """The figures that an event tells, or will."""
    known = {name: plain(metadata[key]) for name, key in _FIGURES.items() if key in metadata}
    return SyncFigures(**known)


def figures_metadata(figures: SyncFigures) -> dict[str, Any]:
    """What an event tells of a sync's figures."""
    told = {key: getattr(figures, name) for name, key in _FIGURES.items()}
    undeclared = told.pop(UNDECLARED)
    return {
        **told,
        "elt/seconds": round(figures.seconds, 3),
        "elt/records_per_second": round(figures.rate, 1),
        **({UNDECLARED: dg.MetadataValue.json(undeclared)} if undeclared else {}),
    }


def plain(value: Any) -> Any:
    """A metadata value without Dagster's wrapping."""
    return getattr(value, "value", value)


def state_metadata(state: str | None) -> Any:
    """The acknowledged state; a pointer and a hash where it is too large for an event."""
    if state is None:
        return dg.MetadataValue.null()
    size = len(state.encode())
    message = json.loads(state)
    if len(json.dumps(message)) <= MAX_STATE:  # as Dagster stores it: ASCII alone
        return dg.MetadataValue.json(message)
    digest = hashlib.sha256(state.encode()).hexdigest()
    return dg.MetadataValue.json(
        {
            "elt/too_large": "see elt.state in the table's last commit",
            "bytes": size,
            "sha256": digest,
        }
    )


def head_metadata(head: CommitMetadata, version: int) -> dict[str, Any]:
    """What a commit says, and the table's version that it made."""
    return {
        STATE: state_metadata(head.state),
        SEQUENCE: head.sequence,
        "elt/generation": head.generation,
        "elt/table_version": version,
    }


def schema_metadata(changes: Sequence[str]) -> dict[str, Any]:
    """How the schema differs from the table's; nothing where it does not."""
    return {SCHEMA_CHANGES: dg.MetadataValue.json(few(changes))} if changes else {}


def few(sentences: Sequence[str]) -> list[str]:
    """As many of them, and as much of each, as an event may hold."""
    told = [text if len(text) <= LONGEST else f"{text[:LONGEST]}…" for text in sentences[:MOST]]
    if len(sentences) > MOST:
        told.append(f"and {len(sentences) - MOST} more")
    return told


def source_metadata(progress: StreamProgress) -> dict[str, Any]:
    """What the source says of the stream itself; nothing where it says nothing."""
    told = {
        COUNTED: progress.counted,
        STATUS: progress.status,
        "elt/estimate": progress.estimate,
        IGNORED: progress.ignored or None,
        UNMENTIONED: progress.unmentioned,
    }
    return {name: value for name, value in told.items() if value is not None}


def table_metadata(
    table: Table,
    name: str,
    stream: ConfiguredStream | None = None,
    *,
    partition_rows: int | None = None,
) -> Mapping[str, Any]:
    """What Dagster itself knows to show of a table.

    Args:
        partition_rows: the rows of the partition that the event is of, where it is of one.
    """
    whole = {} if partition_rows is None else {TABLE_ROWS: table.records}
    return {
        ROW_COUNT: table.records if partition_rows is None else partition_rows,
        **whole,
        "dagster/column_schema": column_schema(table.schema, stream, most=MAX_SCHEMA),
        "dagster/table_name": name,
        "dagster/uri": table.uri,
        "dagster/storage_kind": "delta",
    }


def companion_metadata(
    table: Table, name: str, *, partition_rows: int | None = None
) -> dict[str, Any]:
    """Return what the event of a history or dead letter says; while it is empty there may be no table."""
    found = dict(table_metadata(table, name, partition_rows=partition_rows))
    return {**found, "elt/table_version": table.version} if table.exists else found
