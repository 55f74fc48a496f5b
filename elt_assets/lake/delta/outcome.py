"""The one way to make a commit: it has a name, and is looked up by it whenever its writer gets an error.

`commits` and `opening` make commits with it; `table`, `lake.write` and `lake.admin` handle its errors, and
`lake.read.changes` reads the names of commits.

An error of delta-rs does not say whether the commit took effect. The answer to the request may be lost, and
its own retry of the request is then refused because of the first one; a checkpoint may fail after the commit.
So after every error the table is read again. What can happen, and what follows:

- A commit with the name is there: it counts, whatever failed afterwards. That is logged.
- Another commit has the version that was tried: ours cannot take effect any more, since a version is created
  once. The commit is tried on top of the other one, if that does not forbid it.
- No commit has that version yet, and the error is a conflict: the same version is tried again, a few times.
  A request that is still on its way takes effect at this version or not at all, and is found by its name.
- No commit has that version yet, and delta-rs refused the commit for another reason, such as a feature of the
  table that it does not support. It would refuse each further attempt too, so that is reported at once.
- No commit has that version yet, after any other error: the error is raised. If a disk is full or read-only,
  nothing was published (NotPublished). In a store a request may still be on its way, so that is not certain.
- The table cannot be read either: the outcome is unknown, and the error says so.
- The version that was tried was free because an erasure has removed it from the log (`log_cut`): the commit
  counts for nobody, although its entry is there. So the snapshot is moved on before an attempt if the entry
  of its own version is gone. And after an attempt the commit counts if no checkpoint is newer, since an
  erasure writes one before it removes an entry. If one is, the newest snapshot is read. A commit that is not
  in it is taken out of the log, and tried on top of that snapshot, where the erasure forbids it.

Files are removed only after an error that proves that nothing was published (`NOTHING_PUBLISHED`). After any
other error they stay until maintenance finds that no version names them. These errors prove it:

- A refusal (ConcurrentSync, Superseded, UnsupportedTable, MovingTable): the checks before an attempt found
  that the commit must not be made. This attempt has written nothing. Earlier ones cannot take effect any
  more: a check that passed before fails only on a newer snapshot, so another commit has the version that they
  tried. The same holds when all attempts are used up: each of them met another commit.
- NotPublished: the first attempt was not reached, or the disk itself refused the entry.

A ConfigError alone proves nothing: the store may have refused the credentials when the outcome was looked up.
Tests: tests/lake/test_lying_store.py, tests/lake/test_foreign_rules.py, tests/lake/test_storage_faults.py,
tests/lake/test_log_cut.py.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable
from urllib.parse import urlsplit

from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import Transaction

from elt_assets.errors import ConcurrentSync, ConfigError, EltError, SystemFailure, TransientError
from elt_assets.lake.delta import log
from elt_assets.lake.delta.rules import MovingTable, UnsupportedTable
from elt_assets.lake.delta.snapshot import CONFLICT, Snapshot
from elt_assets.lake.delta.storage import DataFile
from elt_assets.machine_faults import first_line, translate

NAME = "elt.commit"
"""Metadata key of a commit's name."""
REFUSALS = 5
"""Attempts at one version. A store may refuse it for a moment (409), although no other commit takes it."""
ATTEMPTS = 100
"""Attempts for a commit whose conflicts are harmless. Each takes milliseconds; with many partitions,
some writers lose often."""
NO_RETRIES = 0
"""Retries by delta-rs: a stale commit that is retried after a compaction would duplicate moved rows."""
_log = logging.getLogger(__name__)


class Superseded(TransientError):
    """A commit cannot replace files, because a compaction or another engine has replaced them."""


class NotPublished(Exception):
    """A commit failed, and is certainly not in the table. Its cause is the error."""

    def __init__(self, uri: str, error: Exception):
        super().__init__(
            f"a commit to the table {uri} failed, and nothing was published: {first_line(error)}"
        )


NOTHING_PUBLISHED = (ConcurrentSync, Superseded, UnsupportedTable, MovingTable, NotPublished)
"""The errors that prove that a commit did not take effect and never will: its files can be removed."""


def new_name() -> str:
    """Return a name for a commit."""
    return uuid.uuid4().hex


def properties(
    values: dict[str, str], transactions: list[Transaction] | None = None
) -> CommitProperties:
    """Return the properties of a commit with metadata, which contains its name."""
    assert values[NAME]
    return CommitProperties(
        custom_metadata=values, max_commit_retries=NO_RETRIES, app_transactions=transactions
    )


def publish_once(
    delta: Snapshot,
    name: str,
    write: Callable[[], object],
    has: Callable[[Snapshot], bool | None] = lambda _: None,
) -> int:
    """Make a commit exactly once, and move `delta` to it or to a newer snapshot.

    Args:
        name: the commit's name, which no other commit has.
        write: writes the commit on top of the snapshot of `delta`. It raises an EltError instead if the
            commit must not be made on top of that snapshot.
        has: returns whether a newer snapshot, whose log may begin after the commit, has its contents; None
            if that cannot be told.

    Returns:
        the version of the commit.

    Raises:
        EltError: as `write` raised it; nothing was published.
        Superseded: other writers committed first at every attempt; nothing was published.
        NotPublished: the disk is full, or similar; nothing was published.
        EltError: of another class. It is unknown whether the commit took effect, or it was refused without a
            conflict.
    """
    basis = int(delta.version())
    refusals = 0
    for _ in range(ATTEMPTS):
        try:
            delta.leave_removed_version()
            write()
        except (DeltaError, OSError) as error:
            tried = int(delta.version())
            version = _look_up(delta, name, basis, error)
            if version is None:
                refusals = refusals + 1 if int(delta.version()) == tried else 0
                _raise_unless_conflict(delta, error, refusals)
                time.sleep(random.uniform(0, 0.02) + refusals * 0.1)
                continue
            if not _counts(delta, name, version, has):
                continue
            _warn_of_late_error(delta, version, error)
        else:
            version = int(delta.version()) + 1
            if not _counts(delta, name, version, has):
                continue
            delta.update_incremental()
        return version
    raise Superseded(
        f"a commit to the table {delta.table_uri} failed {ATTEMPTS} times: other runs committed first",
        guidance="nothing was published; run it again when fewer runs write to this table",
    )


def _counts(
    delta: Snapshot, name: str, version: int, has: Callable[[Snapshot], bool | None]
) -> bool:
    """Return whether a commit whose entry was made counts. If not, its entry is removed, and `delta` moves to
    the newest snapshot.

    The entries go from the oldest one. So if the next one is gone and that of the commit is there, the commit
    was made in between; and it was made before if that of the version before is there.

    Raises:
        TransientError: it is unknown.
    """
    storage = delta.storage
    try:
        if log.find_checkpoint_version(storage) <= version:
            return True
        newest = Snapshot.newest(storage)
        has_next = storage.exists(log.path_of(version + 1))
        entry = log.read_info(storage, version)
        is_there = entry is not None and entry.get(NAME) == name
        is_first = log.is_cut(storage, version - 1)
        counts = has(newest) if has_next or not is_there else False
    except (DeltaError, OSError) as error:
        raise _unknown_beside_erasure(delta) from error
    if counts is None and is_first:
        raise _unknown_beside_erasure(delta)
    if counts is False:
        storage.discard([DataFile(log.path_of(version), 0, 0)] if is_there and is_first else [])
        delta.become(newest)
    return counts is not False


def _unknown_beside_erasure(delta: Snapshot) -> TransientError:
    return TransientError(
        f"rows of the table {delta.table_uri} were erased (`elt erase`) while a commit was made, and it is "
        "unknown whether the commit took effect",
        guidance="its files stay; the next run continues from the last commit",
    )


def _raise_unless_conflict(delta: Snapshot, error: Exception, refusals: int) -> None:
    """Raise the error of a commit that is not in the table, unless the commit can be tried again.

    Args:
        refusals: the number of attempts in a row at one version, which no other commit has taken.

    Raises:
        NotPublished: the disk is full, or similar.
        EltError: the commit was refused, although no other writer has committed; or it failed for another
            reason, and may still take effect.
    """
    if isinstance(error, CommitFailedError):
        attempts = REFUSALS if str(error).startswith(CONFLICT) else 1
        if refusals < attempts:
            return
        raise SystemFailure(
            f"a commit to the table {delta.table_uri} was refused, although no other run has committed: "
            f"{first_line(error)}",
            guidance="correct what the message says, or move the table away; the next run continues from the "
            "last commit",
        ) from error
    fault = translate(error, f"while a commit to the table {delta.table_uri} was made")
    is_on_disk = urlsplit(delta.table_uri).scheme in ("", "file")
    # An I/O error of a disk may come from its network: the request may still be on its way.
    if is_on_disk and isinstance(fault, ConfigError):
        raise NotPublished(delta.table_uri, error) from error
    raise fault or SystemFailure(
        f"a commit to the table {delta.table_uri} failed: {first_line(error)}",
        guidance="its files stay, since it may still take effect; the next run continues from the commit "
        "that is then the last one",
    ) from error


def _warn_of_late_error(delta: Snapshot, version: int, error: Exception) -> None:
    _log.warning(
        "Version %d of the table %s was committed, although this error was reported: %s",
        version,
        delta.table_uri,
        first_line(error),
    )


def _look_up(delta: Snapshot, name: str, basis: int, error: Exception) -> int | None:
    """Move to the newest snapshot; return the version of the commit with a name, or None.

    Raises:
        EltError: the table cannot be read, so that the outcome of the commit is unknown.
    """
    try:
        delta.update_incremental()
        entries = log.read_since(delta, basis)
    except (DeltaError, OSError) as reason:
        raise _unknown_outcome(delta, error, reason) from reason
    return next((int(entry["version"]) for entry in entries if entry.get(NAME) == name), None)


def _unknown_outcome(delta: Snapshot, error: Exception, reason: Exception) -> EltError:
    """Return the error for a commit that failed, and that could not be looked up for a reason."""
    fault = translate(reason)
    kind = TransientError if fault is None else type(fault)
    reason_text = "" if fault is None else f": {fault.message}"
    unknown = kind(
        f"it is unknown whether a commit to the table {delta.table_uri} took effect, since the table cannot "
        f"be read after an error{reason_text}",
        guidance="its files stay, and the next run continues from the commit if it took effect; maintenance "
        "removes the files if it did not"
        + ("" if fault is None or fault.guidance is None else f"; {fault.guidance}"),
        detail=f"{first_line(error)}\n{first_line(reason)}",
    )
    unknown.is_machine_fault = fault is not None
    return unknown
