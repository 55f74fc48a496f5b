"""The removal of older versions from the log of a table, whose entries have values of rows that are gone.

Used by `table`, for an erasure (`lake.admin.erasure`).

The bounds of a file in the log are values of its rows, and an entry has the values of partition columns. So
after an erasure the older entries go, and with them all older versions and states. What stays begins with
the oldest commit that is the newest one of a writer: a checkpoint of its version, and the entries since. They
have the states that the next syncs start from, and nothing of the erased rows, since each writer has a commit
of the erasure or a later one. So each version that is left can be opened.

To a run that has opened a version which goes, the next one seems to be free, and what it commits there would
count for nobody. By the checkpoint, which is there before the first removal, the run knows that
(`outcome`). Test: `tests/lake/test_log_cut.py`

What a kill leaves, so that nothing is lost:

- CHECKPOINT_WRITTEN: one more checkpoint. The log is whole.
- Between two removals (FILE_UNNEEDED): the entries go from the oldest one, so those that are left follow one
  another up to the newest, as after a clean-up by any engine. The next run removes the others.

Test of both: `tests/lake/test_erasure.py::test_an_erasure_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.errors import SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta import log
from elt_assets.lake.delta.commit_metadata import newest_commit_by_writer
from elt_assets.lake.delta.snapshot import Snapshot, open_with_files
from elt_assets.lake.delta.storage import ALLOW_REMOVAL, UNFINISHED, DataFile, TableStorage

_PARTS = "_sidecars"
_VERSION = re.compile(r"(\d{20})\.")


def cut(delta: Snapshot, storage: TableStorage) -> int:
    """Write a checkpoint of the oldest version that is still needed, and remove all that the log has of
    versions before it.

    That version is the oldest one that is the newest of a writer. It can be opened, and so can all later
    ones.

    Returns:
        the number of files that were removed.

    Raises:
        SystemFailure: a file could not be removed.
    """
    newest = newest_commit_by_writer(delta, storage).values()
    first = min((int(entry["version"]) for entry in newest), default=delta.version())
    open_with_files(storage, first).create_checkpoint()
    _leave_out_removals(storage, first)
    reach(Failpoint.CHECKPOINT_WRITTEN)
    stale = sorted(_list_stale(storage, first))
    gone = storage.discard(DataFile(f"{log.FOLDER}/{name}", 0, 0) for name in stale)
    if gone < len(stale):
        raise SystemFailure(
            f"{len(stale) - gone} old entries of the log of the table {storage.uri} could not be removed",
            guidance=f"{ALLOW_REMOVAL}, and run the command again: it goes on",
        )
    return gone


def _leave_out_removals(storage: TableStorage, version: int) -> None:
    """Write a checkpoint again without the removed files of older versions, which no file has any more.

    A removed file is there with its partition values.
    """
    path = log.checkpoint_path_of(version)
    with storage.open_path(path) as source:
        rows = pq.ParquetFile(source).read()
    if "remove" not in rows.column_names or not pc.any(pc.is_valid(rows["remove"])).as_py():
        return
    rest = rows.filter(pc.is_null(rows["remove"]))
    sink = pa.BufferOutputStream()
    pq.write_table(rest, sink)
    content = sink.getvalue()
    storage.replace_file(path, content)
    hint = {"version": version, "size": rest.num_rows, "sizeInBytes": content.size}
    storage.write_text(log.HINT, json.dumps(hint))


def _list_stale(storage: TableStorage, first: int) -> list[str]:
    """Return the names of the files of a log that only versions before the first one need."""
    # Checkpoints of the second kind have parts in a folder; the one that stays has none.
    names = [f"{_PARTS}/{info.base_name}" for info in storage.list_folder(f"{log.FOLDER}/{_PARTS}")]
    for info in storage.list_folder(log.FOLDER):
        match = _VERSION.match(info.base_name)
        is_old = match is not None and int(match[1]) < first
        if is_old or info.base_name.endswith(UNFINISHED):
            names.append(info.base_name)
    return names
