"""Metadata files of an Iceberg table that nothing names any more, and their removal.

`iceberg` removes what a commit or a removed table leaves; `expiry` what removed snapshots and killed
publications leave.

Several catalogs may have a table of the same Delta table, for example those of two environments. So a file in
the folder is this table's only if its name says so, which is that of manifests (they have the table's id), or
its content does, which is that of metadata files.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Collection, Iterator

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from elt_assets.lake.delta.storage import DataFile, TableStorage
from elt_assets.machine_faults import first_line

FOLDER = "_iceberg"
"""The folder of the Iceberg metadata, below the table's root. Vacuums leave alone what begins with `_`."""
_METADATA = ".metadata.json"
_log = logging.getLogger(__name__)


def remove_replaced_metadata(before: Table, after: TableMetadata) -> None:
    """Remove the metadata files that a commit has dropped from the log of metadata files."""
    named = {entry.metadata_file for entry in after.metadata_log}
    for entry in before.metadata.metadata_log:
        if entry.metadata_file in named or f"/{FOLDER}/" not in entry.metadata_file:
            continue
        try:
            before.io.delete(entry.metadata_file)
        except Exception as error:  # noqa: BLE001 - of any store; maintenance removes it
            _log.debug("%s could not be removed: %s", entry.metadata_file, first_line(error))


def list_named(table: Table) -> set[str]:
    """Return the names of the metadata files that a table is made of, without their folder."""
    metadata = table.metadata
    paths = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    paths |= {snapshot.manifest_list for snapshot in metadata.snapshots}
    for snapshot in metadata.snapshots:
        paths |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return {path.rpartition("/")[2] for path in paths}


def remove_metadata(
    table: Table,
    storage: TableStorage,
    named: Collection[str],
    unneeded: Collection[str] = (),
    *,
    older_than: dt.datetime | None = None,
) -> tuple[int, int]:
    """Remove a table's own metadata files but those named.

    Args:
        unneeded: files that are removed whatever their age.
        older_than: other files that were written later stay too: a publication may be writing them.

    Returns:
        how many are gone, and how many could not be removed.
    """
    names = [
        name
        for name in _list_own(table, storage)
        if name not in named
        and (
            older_than is None
            or name in unneeded
            or _read_time(storage, name) < older_than.timestamp() * 1000
        )
    ]
    gone = storage.discard(DataFile(f"{FOLDER}/{name}", 0, 0) for name in names)
    return gone, len(names) - gone


def _read_time(storage: TableStorage, name: str) -> int:
    return storage.modification_time(f"{FOLDER}/{name}")


def _list_own(table: Table, storage: TableStorage) -> Iterator[str]:
    """Yield the names of the files in the folder that are of a table."""
    identity = str(table.metadata.table_uuid)
    for info in storage.list_folder(FOLDER):
        name = str(info.base_name)
        if name.endswith(_METADATA):
            text = storage.read_text(f"{FOLDER}/{name}")
            if text is not None and _identity_of(text) == identity:
                yield name
        elif identity in name:
            yield name


def _identity_of(text: str) -> str | None:
    try:
        value = json.loads(text).get("table-uuid")
    except (ValueError, AttributeError):  # a file that is being written, or none of Iceberg
        return None
    return None if value is None else str(value)
