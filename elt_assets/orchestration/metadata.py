"""The metadata of events and asset definitions in Dagster; the keys are part of the public contract.

Most modules of this package use it: `translator` writes it for definitions, `report` for events; `recovery`
and `table_reading` read it.

First `column_schema`, the columns of a table as Dagster displays them; then the keys; then a function for
each kind of metadata, and for reading it again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from elt_assets.lake.columns import logical_types, metadata_columns
from elt_assets.lake.columns.names import columns_kept
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.lake.worker.blocks import FieldChange, parse_name
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.paths import TablePath
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.wire import decode_for_output
from elt_assets.sync.events import StreamProgress
from elt_assets.sync.field_selection import properties

_COLUMN_OVERHEAD = 160
"""Approximate bytes of a column in an event, without its texts."""

_CONSTRAINTS = {
    (nullable, unique): dg.TableColumnConstraints(nullable=nullable, unique=unique)
    for nullable in (False, True)
    for unique in (False, True)
}


def column_schema(
    schema: metadata_columns.TableSchema,
    stream: ConfiguredStream | None = None,
    max_bytes: int = sys.maxsize,
) -> dg.TableSchema:
    """Return the columns of a table, with the descriptions and the key of their stream.

    Args:
        schema: the schema of the table.
        stream: the stream as it is stored.
        max_bytes: approximate maximum size. Above it descriptions are omitted, then the last columns; a
            final entry contains the number of omitted columns.
    """
    described = {} if stream is None else properties(stream.stream.json_schema)
    key = stream.key if stream and stream.deduplicates else []
    fields = {f.name: f.metadata.get(logical_types.SOURCE, f.name) for f in schema.fields}
    declared = {old: name for name, old in columns_kept(described, list(fields.values())).items()}
    columns = []
    for field in schema.fields:
        source = declared.get(fields[field.name])
        is_key = [[source]] == key  # a part of a composite key may be null
        columns.append(
            dg.TableColumn(
                field.name,
                field.dataType.simpleString(),
                description=metadata_columns.OWN.get(field.name)
                or _text(source and described[source]),
                constraints=_CONSTRAINTS[
                    not is_key and field.name not in metadata_columns.OWN,
                    is_key or field.name == metadata_columns.RAW_ID,
                ],
            )
        )
    return dg.TableSchema(_limit_columns(columns, max_bytes))


def _limit_columns(columns: list[dg.TableColumn], max_bytes: int) -> list[dg.TableColumn]:
    if max_bytes == sys.maxsize or sum(map(_size, columns)) <= max_bytes:
        return columns
    shortened, size = [], 0
    for number, column in enumerate(columns):
        plain = dg.TableColumn(column.name, column.type[:200], constraints=column.constraints)
        size += _size(plain)
        if size > max_bytes:
            shortened.append(dg.TableColumn(f"… and {len(columns) - number} more", ""))
            break
        shortened.append(plain)
    return shortened


def _size(column: dg.TableColumn) -> int:
    texts = (column.name, column.type, column.description or "")
    # Dagster stores ASCII only.
    return _COLUMN_OVERHEAD + sum(len(json.dumps(text)) for text in texts)


def _text(schema: Any) -> str | None:
    """Return the description of a field, or else its title."""
    joined = (
        [schema.get(key) for key in ("description", "title")] if isinstance(schema, dict) else []
    )
    return next((text for text in joined if isinstance(text, str)), None)


TABLE = "elt/table"
"""Metadata key of an event: the table that it is of, by its URI and by Delta's id (`table_events`)."""
SEQUENCE = "elt/sequence"
GENERATION = "elt/generation"
STATE = "elt/state"
RECORDS_READ = "elt/records_read"
RECORDS_FILTERED = "elt/records_filtered"
"""Number of records that the conditions of `filter` kept from being stored; absent if zero."""
DOCUMENTS, DOCUMENT_BYTES = "elt/documents", "elt/document_bytes"
"""Number and bytes of the files that records have beside their data; absent if there are none."""
RATE = "elt/records_per_second"
TABLE_PATH = "elt/table_path"
"""Metadata key of a definition: the path of the table under the root of the lake, by the streams' names. Of
an event: where it is."""
OTHER_TABLE_PATH = "elt/other_table_path"
"""Metadata key of a definition: where the table is instead if the stream already had it there."""
CONNECTION = "elt/connection"
"""Metadata key of a definition: the name of its connection."""
HISTORY = "elt/history"
"""Metadata key of a definition: whether the stream has a history table."""
CLUSTER_BY = "elt/cluster_by"
"""Metadata key of a definition: paths of the columns that maintenance sorts the table by."""
PARTITION_BY = "elt/partition_by"
"""Metadata key of a definition: Delta's partition columns of the table."""
COMPANION_OF = "elt/companion_of"
"""Metadata key of a companion table's definition: the stream that the companion belongs to."""
DESTINATION = "elt/destination"
"""Metadata key of a definition: the destination connector, if the destination is not the lake."""
PRIMARY_KEY = "elt/primary_key"
"""Metadata key of a definition: the fields by which the rows of a deduplicated stream are told apart."""
POSITION = "elt/position/"
"""Start of a metadata key of an event: the version up to which a downstream asset has read an upstream table.
The upstream asset's key follows."""
SCHEMA_CHANGES = "elt/schema_changes"
MEASURE = "elt/measure/"
"""Start of a metadata key of an event: a number that the source reports. Its name follows."""
MAX_MEASURES = 50
SOURCE_RECORDS = "elt/source_records"
"""Number of records that the source reports as sent; absent if it does not report it."""
STATUS = "elt/stream_status"
"""Last stream status from the source; absent if the source sent none."""
IGNORED = "elt/records_ignored"
"""Number of records of streams that are not configured; absent if zero."""
UNDECLARED = "elt/undeclared_fields"
"""Number of records by field that the catalog does not declare; absent if there is no such field."""
CHANGED_FIELDS = "elt/changed_fields"
"""Number of records by field, and by what was changed in it, as `NULLED DESTINATION_TYPECAST_ERROR`; absent
if nothing was changed."""
REJECTED_REASONS = "elt/rejected_reasons"
"""Number of rejected records by reason; absent if there are none."""
SUPPRESSED = "elt/records_suppressed"
"""Number of records that are not stored, because their keys were erased for good; absent if zero."""
UNCHANGED = "elt/records_unchanged"
"""Number of committed records that the table had already, with the same values; absent if zero."""
UNMENTIONED = "elt/unmentioned"
"""Description of what the source sent if it sent no message about the stream; absent if it sent one."""
DEAD_LETTER = "elt/dead_letter"
"""Metadata key of an event: where the table of rejected records is; absent if there is none yet."""
TABLE_VERSION = "elt/table_version"
ICEBERG_LAG = "elt/iceberg_lag"
"""Metadata key of an event: how many Delta versions are newer than what is published in Iceberg; absent if
that is not known, or the table is not published. `elt/iceberg_snapshot` is the snapshot."""
NOT_PUBLISHED = "elt/not_published"
"""Metadata key of an event: why the table's newest version is not published; absent if it is."""
ICEBERG = "elt/iceberg"
"""Metadata key of a definition: whether its connection or stream says that the table is published in Iceberg,
or is not; absent if they do not say it."""
ROW_COUNT = "dagster/row_count"
TABLE_ROWS = "elt/table_rows"
"""Metadata key of a partition's event: rows of the whole table. `dagster/row_count`: of the partition."""
TABLE_BYTES = "elt/table_bytes"
"""Metadata key of an event: bytes of the files of the table's version."""
SOURCE_LAG = "elt/source_lag_seconds"
"""Metadata key of an event: time from the source's commit of the oldest change that the last window of a log
brought, until its commit in the lake. Absent if no change came, or the source does not say when it was."""
DAYS = "elt/days"
"""Metadata key of an event: the last days of the stream in short (`days`)."""
_FIGURES = {
    "read": RECORDS_READ,
    "filtered": RECORDS_FILTERED,
    "documents": DOCUMENTS,
    "document_bytes": DOCUMENT_BYTES,
    "committed": "elt/records_committed",
    "rejected": "elt/records_rejected",
    "changed": "elt/records_changed",
    "bytes": "elt/bytes_read",
    "seconds": "elt/seconds",
    "undeclared": UNDECLARED,
    "changed_fields": CHANGED_FIELDS,
    "rejected_reasons": REJECTED_REASONS,
    "suppressed": SUPPRESSED,
    "unchanged": UNCHANGED,
}
"""Attributes of `SyncFigures`, and their metadata keys in the public contract."""
MAX_SENTENCES, MAX_LENGTH = 20, 300
"""Maximum number of sentences in an event, and of characters in a sentence."""
MAX_SCHEMA_BYTES = 20 * 1024
"""Approximate maximum bytes of the columns in an event; the asset definition contains all columns."""
MAX_STATE_BYTES = 32 * 1024
"""Maximum bytes of a state (JSON) in an event, since the event log has no limit. The table always has it."""


def figures_of(metadata: Mapping[str, Any]) -> SyncFigures:
    """Return the figures in the metadata of an event; a figure that it does not contain has its default."""
    values_by_name = {
        name: unwrap(metadata[key]) for name, key in _FIGURES.items() if key in metadata
    }
    if "changed_fields" in values_by_name:
        values_by_name["changed_fields"] = {
            FieldChange(field, *change.split(" ", 1)).name: records
            for field, changes in values_by_name["changed_fields"].items()
            for change, records in changes.items()
        }
    return SyncFigures(**values_by_name)


def figures_metadata(figures: SyncFigures) -> dict[str, Any]:
    """Return the metadata of a sync's figures."""
    values = {key: getattr(figures, name) for name, key in _FIGURES.items()}
    optional = (RECORDS_FILTERED, SUPPRESSED, UNCHANGED, DOCUMENTS, DOCUMENT_BYTES)
    losses = (UNDECLARED, REJECTED_REASONS, CHANGED_FIELDS)
    return {
        **{
            k: value
            for k, value in values.items()
            if k not in losses and (value or k not in optional)
        },
        "elt/seconds": round(figures.seconds, 3),
        RATE: round(figures.rate, 1),
        **losses_metadata(figures),
    }


def losses_metadata(figures: SyncFigures) -> dict[str, Any]:
    """Return the metadata of what a sync did not store as it came, by field and by reason."""
    by_field: dict[str, dict[str, int]] = {}
    for name, records in figures.changed_fields.items():
        change = parse_name(name)
        by_field.setdefault(change.field, {})[f"{change.change} {change.reason}"] = records
    counts: dict[str, Mapping[str, Any]] = {
        UNDECLARED: figures.undeclared,
        CHANGED_FIELDS: by_field,
        REJECTED_REASONS: figures.rejected_reasons,
    }
    return {key: dg.MetadataValue.json(dict(value)) for key, value in counts.items() if value}


def measures_metadata(measures: Mapping[str, float]) -> dict[str, float]:
    """Return the metadata of numbers that the source reports, the first ones by name."""
    names = sorted(measures)[:MAX_MEASURES]
    return {f"{MEASURE}{name}": measures[name] for name in names}


def lag_metadata(seconds: float | None) -> dict[str, float]:
    """Return the metadata of the lag of a source's log; empty if it is not known."""
    return {} if seconds is None else {SOURCE_LAG: seconds}


def remove_figures(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an event without the figures of its sync and of its source."""
    figures = {*_FIGURES.values(), RATE, SOURCE_RECORDS, IGNORED, SOURCE_LAG}
    return {
        key: value
        for key, value in metadata.items()
        if key not in figures and not key.startswith(MEASURE)
    }


def cluster_columns_of(metadata: Mapping[str, Any]) -> list[list[str]]:
    """Return the columns that a table is sorted by, from the metadata of its definition."""
    return [list(path) for path in unwrap(metadata.get(CLUSTER_BY, []))]


def unwrap(value: Any) -> Any:
    """Return a metadata value without the wrapper object of Dagster."""
    return getattr(value, "value", value)


def table_path_of(metadata: Mapping[str, Any]) -> TablePath | None:
    """Return the path of a table from the metadata of its definition; None if that does not contain it.

    A table of another stream at the path by the names is not that of this stream.
    """
    levels, other = (
        tuple(str(unwrap(metadata[key])).split("/")) if key in metadata else None
        for key in (TABLE_PATH, OTHER_TABLE_PATH)
    )
    if levels is None:
        return None
    return TablePath(levels, levels) if other is None else TablePath(levels, other, (levels,))


def state_metadata(state: str | None) -> Any:
    """Return the metadata value of a state; a reference and a hash if the state is too large for an event."""
    if state is None:
        return dg.MetadataValue.null()
    message, text = decode_for_output(state), state.encode()
    if len(json.dumps(message)) > MAX_STATE_BYTES:  # Dagster stores ASCII only
        message = {
            "elt/too_large": "see elt.state in the table's last commit",
            "bytes": len(text),
            "sha256": hashlib.sha256(text).hexdigest(),
        }
    return dg.MetadataValue.json(message)


def table_mark(table: Table) -> dict[str, Any]:
    """Return the metadata that says which table an event is of."""
    return {TABLE: dg.MetadataValue.json(table_identity(table))}


def table_identity(table: Table) -> dict[str, Any]:
    """Return the place of a table, and Delta's id, which is None if there is no table yet."""
    return {"uri": table.uri, "id": table.id}


def commit_metadata(
    table: Table, commit: CommitMetadata | None = None, version: int | None = None
) -> dict[str, Any]:
    """Return the metadata of a commit to a table, and of the version of the table that it created.

    Args:
        commit: default: the newest commit of the table's writer.
        version: default: the version of the snapshot.
    """
    commit = table.metadata if commit is None else commit
    return {
        **table_mark(table),
        STATE: state_metadata(commit.state),
        SEQUENCE: commit.sequence,
        GENERATION: commit.generation,
        TABLE_VERSION: table.version if version is None else version,
    }


def recovery_metadata(table: Table) -> dict[str, Any]:
    """Return the metadata of the event that a killed run owed for the newest commit of a table's writer."""
    return {**commit_metadata(table), "elt/recovered": True}


def schema_metadata(changes: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of the schema changes; empty if there are none."""
    return {SCHEMA_CHANGES: dg.MetadataValue.json(truncate(changes))} if changes else {}


def truncate(sentences: Sequence[str]) -> list[str]:
    """Return the sentences, limited in number and length for an event."""
    rows = [
        text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"
        for text in sentences[:MAX_SENTENCES]
    ]
    if len(sentences) > MAX_SENTENCES:
        rows.append(f"and {len(sentences) - MAX_SENTENCES} more")
    return rows


def source_metadata(progress: StreamProgress) -> dict[str, Any]:
    """Return the metadata of the values that the source reported about the stream."""
    values = {
        SOURCE_RECORDS: progress.counted,
        STATUS: progress.status,
        "elt/estimate": progress.estimate,
        IGNORED: progress.ignored or None,
        UNMENTIONED: progress.unmentioned,
    }
    return {name: value for name, value in values.items() if value is not None}


def table_metadata(
    table: Table,
    name: str,
    stream: ConfiguredStream | None = None,
    *,
    partition_rows: int | None = None,
    display_name: str | None = None,
) -> Mapping[str, Any]:
    """Return the metadata of a table that Dagster displays by itself.

    Args:
        table: the table.
        name: the name of the table.
        stream: the stream as it is stored, for the descriptions of columns.
        partition_rows: number of rows of the partition, if the event is for one.
        display_name: its name in a catalog, if it is published there.
    """
    records, size = table.totals
    total = {} if partition_rows is None else {TABLE_ROWS: records}
    return {
        ROW_COUNT: records if partition_rows is None else partition_rows,
        **total,
        TABLE_BYTES: size,
        "dagster/column_schema": column_schema(table.schema, stream, max_bytes=MAX_SCHEMA_BYTES),
        TABLE_PATH: name.replace(".", "/"),
        "dagster/table_name": display_name or name,
        "dagster/uri": table.uri,
        "dagster/storage_kind": "delta",
    }


def publication_metadata(places: Mapping[str, Any], problems: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of where a table is published.

    Args:
        places: as `Followers.metadata` returns them.
        problems: why its newest version is not published.
    """
    if not problems:
        return dict(places)
    return {**places, NOT_PUBLISHED: dg.MetadataValue.json(truncate(problems))}


def dead_letter_metadata(tables: StreamTables) -> dict[str, Any]:
    """Return the metadata that names the table of a stream's rejected records; empty if there is none yet."""
    table = tables.dead_letter
    return {DEAD_LETTER: dg.MetadataValue.path(table.uri)} if table.exists else {}


def companion_metadata(
    table: Table, name: str, *, partition_rows: int | None = None, display_name: str | None = None
) -> dict[str, Any]:
    """Return the metadata of a companion table's event; a companion without rows may have no table."""
    described = table_metadata(
        table, name, partition_rows=partition_rows, display_name=display_name
    )
    values = {**table_mark(table), **described}
    return {**values, TABLE_VERSION: table.version} if table.exists else values
