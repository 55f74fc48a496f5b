"""Check that a lake can be written, by writing to it: a part of `elt-destination check`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import TableChange, TableStorage
from elt_assets.lake.delta.table import Table
from elt_assets.storage.location import Location


def probe(spark: SparkSession, root: Location) -> None:
    """Write a row to a new table below a folder, read it, and remove the table.

    Nothing is left behind, even after a failure.

    Raises:
        SystemFailure: the rows read are not the row that Spark wrote.
        Exception: any error of the storage or of Spark that prevents the write.
    """
    name = f"_elt_probe_{uuid.uuid4().hex}"
    location = root.child(name)
    with _remove_afterwards(TableStorage(location)):
        rows = spark.range(1).select(f.lit(name).alias("probe"))
        table = Table(location, name)
        table.prepare(rows.schema)
        files = table.write_files(rows)
        table.commit(TableChange(files), CommitMetadata(1, 1, None), 1)
        values = [row.probe for row in Table(location, name).dataframe(spark).collect()]
        if values != [name]:
            raise SystemFailure(
                f"a row that Spark wrote to {root} cannot be read there",
                guidance="make sure that Spark and this process see the same storage under this path",
            )


@contextlib.contextmanager
def _remove_afterwards(storage: TableStorage) -> Iterator[None]:
    is_local = isinstance(storage.system, pafs.LocalFileSystem)
    above = Path(storage.root).parents if is_local else ()
    created = [folder for folder in above if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            storage.system.delete_dir(storage.root)
        for folder in created:
            with contextlib.suppress(OSError):  # it may be in use by now
                folder.rmdir()
