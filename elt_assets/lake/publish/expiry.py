"""Removal of Iceberg snapshots whose files a vacuum of the Delta table is about to remove.

`iceberg` does it before each vacuum by `lake.admin.maintenance`, and without a retention for
`orchestration.erasing`, before an erasure removes files of older versions.

A snapshot is of one Delta version. A vacuum with a retention removes files that only versions need which were
replaced before it; the snapshots of these versions are removed first, with those up to an hour younger, and
the oldest of too many. Before that, `iceberg` publishes the newest version: else the current snapshot could
name files that are removed. If the catalog cannot do it, the table is not vacuumed. So no file that a
snapshot names is ever removed.

Then the metadata files of these snapshots go, and those that killed publications left longer ago than the
retention.
Test: `tests/lake/publishing/test_publish_maintenance.py`
"""

from __future__ import annotations

import datetime as dt

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from elt_assets.errors import ConcurrentSync
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta import log
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.publish.commits import MAX_SNAPSHOTS, VERSION, commit, remove_snapshots
from elt_assets.lake.publish.followers import Expiry
from elt_assets.lake.publish.leftovers import FOLDER, list_named, remove_metadata

_MARGIN = dt.timedelta(hours=1)
"""Added to the age: a commit may mark files as removed some time before it is made."""


def expire_snapshots(iceberg: Table, delta: Snapshot, retention: dt.timedelta) -> Expiry:
    """Remove the snapshots that a vacuum with this retention would break, and unneeded metadata files.

    Args:
        iceberg: the table, whose newest version is published.

    Raises:
        ConcurrentSync: a sync published the table meanwhile; nothing was removed.
    """
    present_time = dt.datetime.now(dt.timezone.utc)
    outdated = _list_outdated(iceberg, _oldest_version(delta, present_time - retention + _MARGIN))
    unneeded = list_named(iceberg) if outdated else set()
    if outdated:
        try:
            commit(iceberg, [remove_snapshots(outdated)], outdated[0])
        except CommitFailedException:
            raise ConcurrentSync(
                f"a sync published {'.'.join(iceberg.name())} while its snapshots were removed",
                guidance="the next maintenance removes them; the table was not vacuumed",
            ) from None
    reach(Failpoint.SNAPSHOTS_EXPIRED)
    after, storage = iceberg.catalog.load_table(iceberg.name()), delta.storage
    named = list_named(after)
    removed, left = remove_metadata(
        after, storage, named, unneeded, older_than=present_time - retention
    )
    return Expiry(removed, _list_other_folders(after), left)


def _oldest_version(delta: Snapshot, since: dt.datetime) -> int:
    """Return the oldest Delta version that was the newest one at a time, or later."""
    time = since.timestamp() * 1000
    for entry in log.read_newest_first(delta):
        if int(entry["timestamp"]) < time:
            return int(entry["version"])
    return 0


def _list_other_folders(iceberg: Table) -> tuple[str, ...]:
    """Return the folder below the root in which a catalog writes metadata, if it is not that of all others.

    Some REST catalogs write them where they want, as in `metadata/`.
    """
    folder = iceberg.metadata_location.rpartition("/")[0]
    inner = folder.removeprefix(f"{iceberg.location().rstrip('/')}/")
    return () if inner in (folder, FOLDER) else (f"{inner}/",)


def _list_outdated(iceberg: Table, oldest: int) -> list[int]:
    """Return the ids of the snapshots of older Delta versions, and of those that are too many."""
    current = iceberg.metadata.current_snapshot_id
    others = [s for s in iceberg.metadata.snapshots if s.snapshot_id != current]
    return [
        snapshot.snapshot_id
        for number, snapshot in enumerate(reversed(others))
        if number >= MAX_SNAPSHOTS // 2 or _version_of(snapshot) < oldest
    ]


def _version_of(snapshot: IcebergSnapshot) -> int:
    version = None if snapshot.summary is None else snapshot.summary[VERSION]
    return -1 if version is None else int(version)
