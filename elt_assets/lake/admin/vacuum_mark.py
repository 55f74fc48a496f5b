"""The mark that a vacuum leaves beside a table's log: up to which version it has removed what it could.

`admin.maintenance` leaves it, and `admin.health` reads it. A table without a mark was never vacuumed here.
The mark is only about what a vacuum would find: if it is lost or outdated, a measure of health is too large
until the next vacuum.

Other engines ignore the file: a name that begins with `_` is none of an entry or a checkpoint.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from elt_assets.lake.delta import log
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.delta.table import Table

RETENTION = dt.timedelta(days=7)
PATH = f"{log.FOLDER}/_elt_vacuum.json"
_PROBES = 16
"""Entries of the log that are read at the same time."""


@dataclass(frozen=True)
class VacuumMark:
    """What the last complete vacuum of a table did."""

    version: int = -1
    """The newest version for which no removed file is left; -1 if there is none."""
    retention: dt.timedelta = RETENTION

    @classmethod
    def read(cls, storage: TableStorage) -> VacuumMark:
        """Return the mark of a table, or that of none if it is lost or damaged."""
        with contextlib.suppress(ValueError, TypeError, LookupError, OSError):
            values = json.loads(storage.read_text(PATH) or "{}")
            if values:
                seconds = float(values["retention_seconds"])
                return cls(int(values["version"]), dt.timedelta(seconds=seconds))
        return cls()

    @classmethod
    def record(cls, table: Table, retention: dt.timedelta) -> None:
        """Leave the mark of a vacuum that has removed all that it could."""
        before = cls.read(table.storage)
        version = before.find_due_version(table, retention)
        mark = cls(version, retention)
        if mark != before:
            values = {"version": version, "retention_seconds": retention.total_seconds()}
            table.storage.write_text(PATH, json.dumps(values))

    def find_due_version(self, table: Table, retention: dt.timedelta | None = None) -> int:
        """Return the newest version whose removed files are past the retention; at least that of the mark.

        The times of the entries grow with the versions. An entry that the log does not contain any more is
        older than all others.
        """
        oldest = dt.datetime.now(dt.timezone.utc) - (
            self.retention if retention is None else retention
        )
        limit = oldest.timestamp() * 1000
        low, high = min(self.version, table.version), table.version + 1
        with ThreadPoolExecutor(_PROBES) as pool:
            while high - low > 1:
                step = -(-(high - low) // (_PROBES + 1))
                versions = range(low + step, high, step)
                infos = pool.map(partial(log.read_info, table.storage), versions)
                for version, info in zip(versions, infos, strict=True):
                    if info is not None and int(info["timestamp"]) > limit:
                        high = version
                        break
                    low = version
        return low
