"""Failpoints: the named boundaries between two effects on disk, at which tests end the process.

`lake` and `sync` reach them around each commit, `orchestration` around the events of Dagster.

A name says what is true there. A kill at a failpoint leaves on disk exactly what was written before it. The
modules that keep a promise open with the argument why nothing is lost or doubled at each.

The environment variable `ELT_FAILPOINT=NAME:COUNT` kills the process (SIGKILL) when it reaches the failpoint
for the COUNTth time; default: the first time. Without it, a failpoint costs a comparison.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count

from elt_assets.errors import ConfigError

VARIABLE = "ELT_FAILPOINT"


class Failpoint(enum.Enum):
    """The failpoints, each with what is true when it is reached."""

    # A sync: from the source to its files
    SEGMENT_CLOSED = "a whole segment is staged, and no sink has received it"
    DOCUMENT_STORED = "a document is whole below its table, and no row names it"
    SEGMENT_PARSED = "the clean lines of a segment are rows in new files"
    FILES_WRITTEN = "rows that Spark wrote are in new files"
    SEGMENT_WRITTEN = "a sink has written a segment, which is still staged"

    # A commit: from files to the log
    FILES_SPLIT = "tasks have split or combined files of a table into new files"
    KEYS_MERGED = "a task has merged the rows of a batch with those of the table, in new files"
    HISTORY_REFRESHED = "the versions that a refresh corrects are in new files"
    TABLE_CREATED = "a table exists, without rows and state"
    TABLE_ALTERED = "a table has new columns, properties or features, without rows of them"
    COMMIT_BUILT = "all files of a commit exist, in the table and its companions; no log names them"
    COMPANIONS_RECORDED = "the table names its companions as they were before its first commit"
    ATTACHMENT_WRITTEN = "a large value of a commit is in its file, which no log names"
    COMMIT_READY = "all that a commit refers to exists, and its entry in the log does not"
    COMMIT_PUBLISHED = "a commit is in the log of one table"
    COMPANION_COMMITTED = "a companion is one commit ahead of its table"
    TABLE_COMMITTED = "rows, companions and state of a checkpoint are committed"
    STATE_STORED = "the state of a stream whose rows are elsewhere is committed"
    FILE_UNNEEDED = "a file that no reader needs is about to be removed"
    FOLDER_UNNEEDED = "a folder whose files no reader needs is about to be removed"

    # After the commit
    ACKNOWLEDGED = "a commit is done, and the caller of the session has no event of it"
    SHARED_ACKNOWLEDGED = (
        "all commits of shared states are done, and the caller has no event of them"
    )
    STATE_OBSERVED = "a commit before the last of its sync has an event in Dagster"
    STREAM_COMPLETE = (
        "the last commit of a stream or partition is done, without an event in Dagster"
    )
    EVENT_RECOVERED = "the event that a killed run owed is in Dagster"

    # Between two syncs
    COMPANION_ROLLED_BACK = "a companion that was ahead has the contents that its table names again"
    TABLE_WIDENED = "one of a stream's tables has wider types"
    HIDDEN_WIDENED = "hidden files are rewritten in wider types, and no commit names the new ones"
    STATE_SET = "a state that a user gave is committed, without an event in Dagster"
    REPLAY_STAGED = "rejected records are staged again, as lines in hidden files"
    FRESH_RECORDS_WRITTEN = "rejected records that are not too old are in new files"
    FILES_COMBINED = "the rows of small files are in new, larger files"
    COMPACTION_PUBLISHED = "the log names new files for the same rows"
    MOVE_BEGUN = "a table says that it is being moved, and no writer commits to it"
    WRITER_CHANGED = "the commits of one writer of a moved table continue as those of another"
    TABLE_COPIED = "a table is whole at its new place in a store, and still at the former one"
    TABLE_MOVED = "one of a stream's tables is at its new place, and no longer at the former one"
    TABLE_RELOCATED = "a copy of a table in another lake can be written, and the table cannot"
    REMOVAL_BEGUN = "a table says that it is being removed, and no writer commits to it"
    TABLE_REMOVED = "one of a stream's tables is gone"
    PART_REMOVED = "a part of a removed connection is gone, and its definition is there"
    ROWS_TAKEN_OUT = "rows to be erased are left out of new files, which no log names"
    KEYS_SUPPRESSED = (
        "records of the keys to be erased are not stored again; the rows are still there"
    )
    ROWS_ERASED = (
        "one of a stream's tables is without the erased rows; its older versions have them"
    )
    OLD_FILES_REMOVED = "no file of a table has erased rows; its log may have bounds of them"
    CHECKPOINT_WRITTEN = (
        "a checkpoint has all of a table, and the older entries of its log are there"
    )
    LOG_CUT = "a table has no older version any more"
    VACUUM_PLANNED = "the files that no version within the retention needs are known; all exist"

    # Publication in Iceberg
    ICEBERG_CREATED = "the Iceberg table of a Delta table exists, without a snapshot"
    SNAPSHOT_WRITTEN = "all files of an Iceberg snapshot exist, and the catalog does not name it"
    SNAPSHOT_PUBLISHED = (
        "the catalog names an Iceberg snapshot, and a replaced metadata file is left"
    )
    SNAPSHOTS_EXPIRED = (
        "the catalog names outdated snapshots no more, whose metadata files are left"
    )
    ICEBERG_DROPPED = "the catalog does not have an Iceberg table, whose metadata files are left"


Hook = Callable[[Failpoint], object]


def reach(point: Failpoint) -> None:
    """Say that the process has reached a failpoint."""
    if _Armed.hook is not None:
        _Armed.hook(point)


@contextlib.contextmanager
def armed(hook: Hook) -> Iterator[None]:
    """Context in which each failpoint that any thread reaches calls a function. For tests."""
    before, _Armed.hook = _Armed.hook, hook
    try:
        yield
    finally:
        _Armed.hook = before


def killer(setting: str) -> Hook:
    """Return the function that kills this process at a failpoint, as `ELT_FAILPOINT` says.

    Raises:
        ConfigError: the setting names no failpoint, or its count is not a positive number.
    """
    name, _, times = setting.partition(":")
    failpoint = Failpoint.__members__.get(name.upper())
    if failpoint is None or not (times or "1").isdecimal() or times == "0":
        raise ConfigError(
            f"{VARIABLE} is {setting!r}, which is not a failpoint with a count",
            guidance="unset it, or set it to NAME:COUNT, with one of the names "
            + ", ".join(point.lower() for point in Failpoint.__members__),
        )
    last, numbers = int(times or "1"), count(1)

    def kill(point: Failpoint) -> None:
        if point is failpoint and next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def _from_environment(point: Failpoint) -> None:
    """Arm what the environment says, if anything, when the first failpoint is reached."""
    setting = os.environ.get(VARIABLE)
    _Armed.hook = killer(setting) if setting else None
    reach(point)


class _Armed:
    hook: Hook | None = _from_environment
