"""Rows of keys that were erased, and that a source sends again: they are left out, counted and named.

`writer` asks for it with each sync: a table without such keys costs one look for the folder of the list
(`erasures.SUPPRESSED`), which `elt erase --suppress` writes.

The rows of a segment are left out when it is parsed, before anything is merged with the table. A rejected
record is compared by the texts of its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import run_tasks
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.suppression import SuppressionJob, make_leave_out
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.erasures import SUPPRESSED, read_suppressed
from elt_assets.lake.write.sync_columns import WriteSpec, key_of


@dataclass(frozen=True)
class Suppression:
    """The keys of a stream of which no record is stored."""

    key: Sequence[Sequence[str]]  # columns
    fields: Sequence[Sequence[str]]  # the same in the source
    hashes: frozenset[str]
    salt: bytes

    def leave_out(
        self,
        spark: SparkProvider,
        table: Table,
        files: Sequence[DataFile],
        *,
        is_rejected: bool = False,
    ) -> tuple[int, dict[str, list[DataFile]]]:
        """Write those of some new files again that have suppressed keys, and remove these.

        Returns:
            the number of rows that were left out, and the files that replace others, by their paths.
        """
        if not files:
            return 0, {}
        job = SuppressionJob(
            [file.path for file in files],
            self.fields if is_rejected else self.key,
            self.hashes,
            self.salt,
            table.output(),
            is_rejected,
        )
        results = run_tasks(spark.get(), len(files), make_leave_out, job)
        replaced = {
            file.path: [DataFile(*new) for new in new_files]
            for file, (rows, new_files) in zip(files, results, strict=True)
            if rows
        }
        table.storage.discard(file for file in files if file.path in replaced)
        return sum(rows for rows, _ in results), replaced


def open_suppression(tables: StreamTables, spec: WriteSpec) -> Suppression | None:
    """Return the keys of which no record is stored; None if there are none.

    Raises:
        ConfigError: they cannot be compared with those of this sync.
    """
    main = tables.main
    if not main.exists or not main.storage.list_folder(SUPPRESSED):
        return None
    if spec.key_salt is None:
        raise ConfigError(
            f"the table {main.uri} has keys that must not be stored again (`elt erase --suppress`), and "
            "this writer cannot compare them",
            guidance=f"sync the stream with its connection; or remove {SUPPRESSED} from the table's folder",
        )
    salt, fingerprint = spec.key_salt()
    suppressed = read_suppressed(main.storage, fingerprint)
    if suppressed is None:
        return None
    key = key_of(spec.stream, main)
    if [list(part) for part in suppressed.key] != key:
        raise ConfigError(
            f"the table {main.uri} has keys that must not be stored again, by other columns than the key "
            "that the stream has now",
            guidance=f"restore the former key; or remove {SUPPRESSED} from the table's folder, and the "
            "records are stored",
        )
    return Suppression(key, spec.stream.key, suppressed.hashes, salt)
