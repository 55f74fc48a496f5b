"""Commits to an Iceberg table: who may make one, what it has, and whether it was made.

`iceberg` publishes with it, and `expiry` removes snapshots.

A commit is sent once, with the condition that the snapshot is the one that the table was loaded with: so of
two commits from one snapshot, one fails. If it ends in an error, the table is loaded again, and has or has
not the snapshot that the commit adds or removes. Nothing that was written for it is deleted then: a request
whose answer is lost may still be on its way.
Test: `tests/lake/publishing/test_publish_catalogs.py`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from elt_assets.errors import ConfigError
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.storage.location import Location

VERSION = "elt.delta-version"
"""Property of a table, and of the summary of each of its snapshots: the Delta version that is published."""
DELTA_ID = "elt.delta-id"
"""Property of each table that is published: Delta's id of its Delta table."""
MAX_SNAPSHOTS = 500
"""Snapshots from which a publication removes the oldest half: each is named in the metadata, which is written
whole with each commit."""


def root_uri(location: Location) -> str:
    """Return the root of a table as Iceberg names it.

    Raises:
        ConfigError: readers of Iceberg would take a part of it for something else.
    """
    uri = location.for_spark if location.path is None else f"file://{location.path}"
    if re.search(r"[?#%]", uri):
        raise ConfigError(
            f"the place {uri} has one of the characters ? # %, which readers of Iceberg tables misread",
            guidance="give the lake, the `namespace` or the `table` another name, or write `iceberg: false`",
        )
    return uri.rstrip("/")


def _normalize(uri: str) -> str:
    """Return the URI of a table's root as `root_uri` writes it: catalogs write some in other forms."""
    return re.sub(r"^file:/+", "file:///", uri).rstrip("/")


def is_published_of(iceberg: Table, table: LakeTable) -> bool:
    """Return whether an Iceberg table was made here, of a table at its place."""
    is_there = _normalize(iceberg.location()) == root_uri(table.location)
    return DELTA_ID in iceberg.properties and is_there


def refuse_foreign(iceberg: Table, table: LakeTable) -> None:
    """Refuse an Iceberg table that is not as a publication of the table left it.

    Raises:
        ConfigError: says what is different, and how to start a new one.
    """
    name, root = ".".join(iceberg.name()), root_uri(table.location)
    properties, snapshot = iceberg.properties, iceberg.current_snapshot()
    version = None if snapshot is None or snapshot.summary is None else snapshot.summary[VERSION]
    is_changed = version != properties.get(VERSION) or (
        snapshot is not None and snapshot.schema_id != iceberg.metadata.current_schema_id
    )
    if DELTA_ID not in properties:
        reason = "was made by another program"
    elif _normalize(iceberg.location()) != root:
        reason = f"is that of the files at {iceberg.location()}, and not of those at {root}"
    elif is_changed:
        reason = (
            "was changed by another program: its snapshot or its columns are not those published"
        )
    else:
        return
    raise ConfigError(
        f"the Iceberg table {name} {reason}",
        guidance=f"`elt publish {table.connection} --replace` (with the name of the stream) removes it from "
        "the catalog, but no data file, and starts a new one; or publish under another name (`namespace` of "
        "[tool.elt.iceberg], `table` of the stream)",
    )


def schema_updates(iceberg: Table, schema: Schema, spec: PartitionSpec) -> Iterator[TableUpdate]:
    """Yield the updates of the columns and the partition fields, if they are not the present ones."""
    metadata = iceberg.metadata
    if metadata.schema_by_id(schema.schema_id) is None:
        yield AddSchemaUpdate(schema=schema)
        yield _set_schema(-1)
    elif schema.schema_id != metadata.current_schema_id:
        yield _set_schema(schema.schema_id)
    if spec.spec_id not in metadata.specs():
        yield AddPartitionSpecUpdate(spec=spec)
        yield _set_spec(-1)
    elif spec.spec_id != metadata.default_spec_id:
        yield _set_spec(spec.spec_id)


def _set_schema(number: int) -> TableUpdate:
    return SetCurrentSchemaUpdate.model_validate({"schema-id": number})


def _set_spec(number: int) -> TableUpdate:
    return SetDefaultSpecUpdate.model_validate({"spec-id": number})


def snapshot_updates(snapshot: Snapshot) -> Iterator[TableUpdate]:
    """Yield the updates that make a snapshot the current one."""
    yield AddSnapshotUpdate(snapshot=snapshot)
    yield SetSnapshotRefUpdate.model_validate(
        {
            "ref-name": MAIN_BRANCH,
            "type": SnapshotRefType.BRANCH,
            "snapshot-id": snapshot.snapshot_id,
        }
    )


def remove_snapshots(ids: Sequence[int]) -> TableUpdate:
    """Return the update that removes snapshots."""
    return RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(ids)})


def list_outdated(iceberg: Table, schema: Schema) -> list[int]:
    """Return the ids of the snapshots that would not be read rightly, or are too many.

    The name mapping has the ids of the new schema only. A snapshot with a column of another id would be read
    with nulls in it.
    """
    metadata = iceberg.metadata
    ids = set(_list_ids(schema))
    readable = {s.schema_id for s in metadata.schemas if set(_list_ids(s)) <= ids}
    outdated = [s.snapshot_id for s in metadata.snapshots if s.schema_id not in readable]
    rest = [s.snapshot_id for s in metadata.snapshots if s.schema_id in readable]
    if len(rest) > MAX_SNAPSHOTS:
        outdated += rest[: -MAX_SNAPSHOTS // 2]
    return outdated


def _list_ids(schema: Schema) -> Iterator[tuple[str, int]]:
    for name in schema.column_names:
        yield name, schema.find_field(name).field_id


def commit(table: Table, updates: Sequence[TableUpdate], snapshot: int) -> TableMetadata:
    """Commit updates to an Iceberg table as it was loaded, once, and return its metadata after it.

    Args:
        snapshot: the id of a snapshot that the commit adds or removes, by which it is recognised if its
            answer is lost.

    Raises:
        CommitFailedException: another program was first; nothing was committed.
        Exception: of the catalog; nothing was committed, as far as is known.
    """
    present = table.current_snapshot()
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate(
            {"ref": MAIN_BRANCH, "snapshot-id": None if present is None else present.snapshot_id}
        ),
    )
    was_there = table.metadata.snapshot_by_id(snapshot) is not None
    try:
        return table.catalog.commit_table(table, requirements, tuple(updates)).metadata
    except Exception:
        metadata = table.catalog.load_table(table.name()).metadata
        if (metadata.snapshot_by_id(snapshot) is not None) is was_there:
            raise
        return metadata
