"""A Delta table: files written by Spark, published by delta-rs with the source's state in one commit.

The commit carries, as custom metadata, `elt.state`, `elt.sequence`, `elt.generation`, `elt.run_id` and
`elt.records`, and a transaction id `txn(app_id, sequence)`, by which a writer that was overtaken is
refused.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, ConfigError, SystemFailure
from elt_assets.lake.head import Head, read_head

CHECKPOINT_INTERVAL = "100"
_READABLE_FEATURES = {"timestampNtz"}


@dataclass(frozen=True)
class DataFile:
    """A Parquet file under the table's root: `path` relative to it, `size` in bytes."""

    path: str
    size: int
    records: int


class Table:
    """One stream's table at one snapshot; `commit` moves it to the next.

    Args:
        uri: the table's root, a local path or a URI that delta-rs and Spark both know.
        app_id: names the writer in transaction ids: one stream, or one partition of it.
    """

    def __init__(self, uri: str, app_id: str):
        self.uri = uri
        self.app_id = app_id
        self._delta = _open(uri)
        self.head = read_head(self._delta, app_id)

    @property
    def exists(self) -> bool:
        return self._delta is not None

    @property
    def is_foreign(self) -> bool:
        """Whether the table has commits, and none of them is of this `app_id`."""
        return self.version > 0 and self._own_version() is None

    @property
    def version(self) -> int:
        """Of the snapshot; -1 while there is no table."""
        return -1 if self._delta is None else int(self._delta.version())

    @property
    def schema(self) -> t.StructType:
        """The columns; none while there is no table."""
        if self._delta is None:
            return t.StructType()
        return t.StructType.fromJson(json.loads(self._delta.schema().to_json()))

    @property
    def files(self) -> list[DataFile]:
        """The files of the snapshot."""
        if self._delta is None:
            return []
        rows = self._delta.get_add_actions(flatten=True)
        names = ("path", "size_bytes", "num_records")
        values = [rows.column(name).to_pylist() for name in names]
        return [DataFile(*row) for row in zip(*values, strict=True)]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The rows of the snapshot."""
        return self.read_files(spark, self.files)

    def read_files(self, spark: SparkSession, files: Sequence[DataFile]) -> DataFrame:
        """The rows of some files in the table's columns; a column that a file lacks is null."""
        if not files:
            return spark.createDataFrame([], self.schema)
        paths = [f"{self.uri}/{file.path}" for file in files]
        return spark.read.schema(self.schema).parquet(*paths)

    def write_files(self, rows: DataFrame) -> list[DataFile]:
        """Write rows as new files under the root; nobody sees them before they are committed."""
        folder = f"data/{uuid.uuid4().hex}"
        try:
            rows.write.mode("append").parquet(f"{self.uri}/{folder}")
            return self._list(folder)
        except BaseException:
            self._discard_folder(folder)
            raise

    def discard_files(self, files: Iterable[DataFile]) -> None:
        """Remove files that were written and will not be committed."""
        for folder in {file.path.rpartition("/")[0] for file in files}:
            self._discard_folder(folder)

    def prepare(self, schema: t.StructType) -> None:
        """Create the table, or give it the columns that it lacks; both without data.

        Raises:
            ConfigError: a column has another type in the table.
        """
        if self._delta is None:
            self._delta = _create(self.uri, schema)
        present = {field.name: field.dataType for field in self.schema.fields}
        changed = [
            f"{field.name} is {present[field.name].simpleString()}, not {field.dataType.simpleString()}"
            for field in schema.fields
            if field.name in present and present[field.name] != field.dataType
        ]
        if changed:
            raise ConfigError(
                f"the table {self.uri} has columns of other types than the catalog: "
                + "; ".join(changed),
                guidance="correct the catalog, or move the table away and read the stream anew",
            )
        missing = [field for field in schema.fields if field.name not in present]
        if missing:
            self._delta.alter.add_columns(list(_delta_schema(t.StructType(missing)).fields))
            self._delta.update_incremental()

    def commit(
        self, add: Sequence[DataFile], remove: Sequence[DataFile], head: Head, records: int
    ) -> None:
        """Publish files and state in one commit, and move to it.

        Args:
            head: what the table says from here on; its sequence must be the present one plus one.
            records: rows taken from the source, for the commit's `elt.records`.

        Raises:
            ConcurrentSync: another writer of this `app_id` was first; nothing was published.
            SystemFailure: the commit failed.
        """
        assert self._delta is not None and head.sequence == self.head.sequence + 1
        self._refuse_if_overtaken()
        token = uuid.uuid4().hex
        metadata = {**head.metadata(), "elt.records": str(records), "elt.commit": token}
        properties = CommitProperties(
            custom_metadata=metadata,
            app_transactions=[Transaction(self.app_id, head.sequence)],
        )
        actions: list[AddAction | RemoveAction] = [*map(_add, add), *map(_remove, remove)]
        try:
            self._delta.create_write_transaction(
                actions, "append", self._delta.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            self._settle(token, head, error)
        self._delta.update_incremental()
        self.head = head

    def _own_version(self) -> int | None:
        assert self._delta is not None
        found: int | None = self._delta.transaction_version(self.app_id)
        return found

    def _refuse_if_overtaken(self) -> None:
        """Delta refuses a stale snapshot; but whatever refreshes ours (a new column does) would hide
        there that another run has committed since."""
        present = self._own_version() or 0
        if present > self.head.sequence:
            raise self._overtaken(present)

    def _overtaken(self, present: int) -> ConcurrentSync:
        return ConcurrentSync(
            f"another run committed to {self.uri} first (sequence {present})",
            guidance="this run changed nothing more; the other one's data and state stand",
        )

    def _settle(self, token: str, head: Head, error: CommitFailedError) -> None:
        """A commit that failed may have been published all the same: its transaction id tells."""
        fresh = DeltaTable(self.uri)
        present = fresh.transaction_version(self.app_id)
        if present is None or present < head.sequence:
            raise SystemFailure(f"committing to {self.uri} failed: {error}") from error
        if any(entry.get("elt.commit") == token for entry in fresh.history(100)):
            return
        raise self._overtaken(present) from error

    def _discard_folder(self, folder: str) -> None:
        system, root = pafs.FileSystem.from_uri(_absolute(self.uri))
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(f"{root}/{folder}")

    def _list(self, folder: str) -> list[DataFile]:
        system, root = pafs.FileSystem.from_uri(_absolute(self.uri))
        selector = pafs.FileSelector(f"{root}/{folder}", allow_not_found=True)
        found = []
        for info in system.get_file_info(selector):
            if info.base_name.endswith(".parquet"):
                records = pq.read_metadata(info.path, filesystem=system).num_rows
                found.append(DataFile(f"{folder}/{info.base_name}", info.size, records))
        return found


@contextlib.contextmanager
def discarding(table: Table, files: Sequence[DataFile]) -> Iterator[None]:
    """Remove files if another run was first; after any other failure they may be published."""
    try:
        yield
    except ConcurrentSync:
        table.discard_files(files)
        raise


def _open(uri: str) -> DeltaTable | None:
    try:
        delta = DeltaTable(uri)
    except TableNotFoundError:
        return None
    unknown = set(delta.protocol().reader_features or ()) - _READABLE_FEATURES
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        unknown.add("columnMapping")
    if unknown:
        raise ConfigError(
            f"the table {uri} uses Delta features that this project does not read: "
            + ", ".join(sorted(unknown)),
            guidance="turn them off with the engine that turned them on",
        )
    return delta


def _create(uri: str, schema: t.StructType) -> DeltaTable:
    """A new table, or the one that another run made just now."""
    try:
        return DeltaTable.create(
            uri,
            _delta_schema(schema),
            configuration={"delta.checkpointInterval": CHECKPOINT_INTERVAL},
        )
    except DeltaError:
        delta = _open(uri)
        if delta is None:
            raise
        return delta


def _absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).absolute())


def _delta_schema(schema: t.StructType) -> Schema:
    return Schema.from_json(schema.json())


def _add(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.records}),
    )


def _remove(file: DataFile) -> RemoveAction:
    return RemoveAction(file.path, True, int(time.time() * 1000), file.size, {})
