"""A Delta table: Spark writes its files; delta-rs publishes files and the source's state in one commit.

Other packages know a table as a `Table`: `lake.write`, `lake.merge` and `lake.admin` write to it,
`lake.read`, `pipeline`, `orchestration` and `elt state` look up its state, columns and files.

A kill at FILES_WRITTEN leaves files that no log names; a vacuum removes them.
`tests/lake/test_crash_points.py::test_a_first_sync_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake import jobs
from elt_assets.lake.delta import commits, log, log_cut, opening, rules
from elt_assets.lake.delta.commit_metadata import (
    CommitMetadata,
    PastCommit,
    companions_of,
    content_commit,
    current_metadata,
    hidden_of,
    hidden_since,
    list_undone_writers,
    metadata_of,
    newest_commit_by_writer,
    newest_writer,
    past_commits,
)
from elt_assets.lake.delta.commits import Basis
from elt_assets.lake.delta.log import Entry
from elt_assets.lake.delta.outcome import NOTHING_PUBLISHED
from elt_assets.lake.delta.rollback import rollback, version_of
from elt_assets.lake.delta.rules import Move, find_move
from elt_assets.lake.delta.storage import (
    HIDDEN,
    MAX_BYTES,
    TARGET_ROWS,
    VISIBLE,
    DataFile,
    FooterStatistics,
    TableChange,
    TableStorage,
)
from elt_assets.lake.session import STRICT_READ, make_empty
from elt_assets.lake.worker.parquet import Output
from elt_assets.lake.worker.statistics import MAX_BOUND_CHARS
from elt_assets.storage.location import Location

_WRITTEN_BY_ENGINES = re.compile(r"(_change_data/)?([^/=]+=[^/]*/)*[^/]+\.parquet")
"""The paths at which engines of Delta write files of a table: in its root, or in folders of partitions."""
_FILES = pa.schema({"path": pa.string(), "size_bytes": pa.int64(), "num_records": pa.int64()})
Bounds = tuple[object, object]
"""The minimum and the maximum of a column in a file."""


class Table:
    """One stream's table at one snapshot. `commit` moves it to the next snapshot.

    Args:
        location: the table's root: a location, or a path or URI of one.
        app_id: the writer's id in transactions. A writer is one stream, or one partition of it.
        version: an older version, which can only be read.
        partition_by: the partition columns of the table if it does not exist yet.

    Attributes:
        metadata: the metadata of the writer's newest commit.
        hides_files: whether new files are written as hidden ones, which other engines' vacuum ignores. It is
            set if commits refer to files before readers see them, as in an unfinished refresh.

    Raises:
        ConfigError: there is something else than a table, or a table that this project cannot read or write.
    """

    def __init__(
        self,
        location: str | Location,
        app_id: str,
        version: int | None = None,
        partition_by: Sequence[str] = (),
    ):
        self.app_id = app_id
        self._wanted_partitioning = tuple(partition_by)
        self.storage = TableStorage(location)
        self.uri = self.storage.uri
        self._footers = FooterStatistics(self.storage)
        self.hides_files = False
        self._new_folders: list[str] | None = None
        self._open(version)

    def _open(self, version: int | None = None) -> None:
        self._delta = opening.open_table(self.storage.location, version)
        self.metadata = current_metadata(self._delta, self.storage, self.app_id)
        self._basis = Basis(self.version, self.schema)

    @property
    def exists(self) -> bool:
        return self._delta is not None

    @property
    def id(self) -> str | None:
        """Delta's id of the table, which is the same at each place that it is moved or copied to; None if the
        table does not exist."""
        return None if self._delta is None else self._delta.metadata().id

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns of the table: those that it has, or that it is to be created with."""
        if self._delta is None:
            return self._wanted_partitioning
        return tuple(self._delta.metadata().partition_columns)

    def refuse_repartitioned(self) -> None:
        """Refuse a table that was created with other partition columns than are wanted now.

        Raises:
            ConfigError: names both, and what to do.
        """
        if self.partition_by != self._wanted_partitioning:
            raise ConfigError(
                f"the table {self.uri} was created with {_describe_partitioning(self.partition_by)}, but now "
                f"has {_describe_partitioning(self._wanted_partitioning)} in the definition",
                guidance="restore the former `partition_by`; or move the table and its companions away: the "
                "next sync creates the table with the new columns and reads the stream from the beginning",
            )

    def refuse_unwritable(self) -> None:
        """Refuse to write to a table with a rule that commits of this project do not keep.

        Raises:
            ConfigError: another engine gave the table such a rule.
        """
        if self._delta is not None:
            rules.refuse_unwritable(self._delta)

    def refuse_lost(self, *, replaces: bool) -> None:
        """Refuse to write on top of a restored version of which vacuum has removed files.

        Other engines restore such a version, since they do not know its hidden files.

        Args:
            replaces: the sync is a refresh, which needs only the files that it has built before.

        Raises:
            SystemFailure: names the files.
        """
        if self.metadata.restored:
            refresh = self.metadata.refresh
            built = () if refresh is None else (*refresh.files, *refresh.tombstones)
            needed = built if replaces else (*self.files, *self.metadata.hidden)
            self.storage.refuse_lost([file.path for file in needed])

    @property
    def is_foreign(self) -> bool:
        """Return whether the table has rows or a state, but no commit of this `app_id`."""
        if self._delta is None or commits.sequence(self._delta, self.app_id):
            return False
        return self.newest_writer is not None or bool(self.file_count)

    @property
    def newest_writer(self) -> str | None:
        """The `app_id` of the newest commit of this project; None if there is none."""
        return None if self._delta is None else newest_writer(self._delta)

    def newest_by_run(self, limit: int) -> dict[str, str]:
        """Return the writer (`app_id`) of each run's last commit, by the id of the run, among the newest
        commits of the table."""
        writers: dict[str, str] = {}
        for entry in islice(
            () if self._delta is None else log.read_newest_first(self._delta), limit
        ):
            if entry.get("elt.app") and entry.get("elt.run_id"):
                writers.setdefault(entry["elt.run_id"], entry["elt.app"])
        return writers

    @property
    def content_commits(self) -> Mapping[str, str | None]:
        """The name of the commit whose contents the table has, for each writer, by its `app_id`; after a
        rollback it is an earlier one than the newest."""
        return {app: content_commit(entry) for app, entry in self._newest_commits().items()}

    @property
    def companions_by_writer(self) -> Mapping[str, Mapping[str, str | None] | None]:
        """The companion tables' commits that belong to each writer's newest commit, by its `app_id`.

        None if the newest commit does not record them.
        """
        return {app: companions_of(entry) for app, entry in self._newest_commits().items()}

    def dead_letter_files_of_refreshes(self) -> set[str]:
        """Return the paths, in the dead letter table, of files of unfinished refreshes of any writer."""
        entries = self._newest_commits().values()
        refreshes = (metadata_of(self.storage, entry).refresh for entry in entries)
        return {file.path for refresh in refreshes if refresh for file in refresh.dead}

    def _newest_commits(self) -> Mapping[str, Entry]:
        return {} if self._delta is None else newest_commit_by_writer(self._delta, self.storage)

    @property
    def version(self) -> int:
        """The version of the snapshot; -1 if the table does not exist."""
        return -1 if self._delta is None else int(self._delta.version())

    @property
    def schema(self) -> t.StructType:
        """The columns of the snapshot; none if the table does not exist."""
        return t.StructType() if self._delta is None else rules.spark_schema(self._delta)

    def arrow_schema(self, schema: t.StructType | None = None) -> pa.Schema:
        """Return columns in Arrow's types: those of `schema`, and the further ones of the snapshot."""
        fields = [] if schema is None else schema.fields
        names = {field.name for field in fields}
        more = [field for field in self.schema.fields if field.name not in names]
        return opening.arrow_columns(t.StructType([*fields, *more]))

    def schema_at(self, version: int) -> t.StructType:
        """Return the columns of an earlier version."""
        delta = opening.open_table(self.storage.location, version)
        return t.StructType() if delta is None else rules.spark_schema(delta)

    @property
    def files(self) -> list[DataFile]:
        """The files of the snapshot: one object for each. A commit that needs only some of them selects
        those by their statistics (`files_overlapping`)."""
        return commits.list_files(self._actions())

    def files_since(self, version: int) -> list[DataFile]:
        """Return the files of the snapshot that commits after a version added.

        Raises:
            SystemFailure: the log no longer contains one of these commits.
        """
        if version < 0:
            return self.files
        added: set[str] = set()
        for newer in range(version + 1, self.version + 1):
            added |= log.file_changes(self.storage, newer).added
        actions = self._actions()
        paths = actions.column("path")
        return commits.list_files(actions.filter(pc.is_in(paths, pa.array(added, paths.type))))

    @property
    def file_count(self) -> int:
        """The number of files of the snapshot."""
        return int(self._actions().num_rows)

    @property
    def file_sizes(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """The bytes and the rows of each file of the snapshot; null if the log has no count of its rows."""
        actions = self._actions()
        return actions.column("size_bytes"), actions.column("num_records")

    @property
    def records(self) -> int:
        """The number of rows of the snapshot, from the log."""
        return self.totals[0]

    @property
    def totals(self) -> tuple[int, int]:
        """The number of rows of the snapshot, and the bytes of its files, from the log."""
        actions = self._actions()
        rows, size = (
            pc.sum(actions.column(name)).as_py() for name in ("num_records", "size_bytes")
        )
        return int(rows or 0), int(size or 0)

    @property
    def log_length(self) -> int:
        """The number of entries of the log after its newest checkpoint."""
        return 0 if self._delta is None else self._delta.log_length

    def write_checkpoint(self) -> None:
        """Write a checkpoint of the snapshot, so that an opening reads no entry before it."""
        assert self._delta is not None
        self._delta.write_checkpoint()

    def _actions(self) -> pa.Table:
        """Return the files of the snapshot with their statistics; no files if the table does not exist."""
        return _FILES.empty_table() if self._delta is None else commits.add_actions(self._delta)

    def _statistic(
        self, actions: pa.Table, kind: str, column: Sequence[str], *, only_logged: bool = False
    ) -> pa.ChunkedArray:
        """Return a statistic of each file: from the log, or from the footer of a file that has none there.

        Null stands for none. Of a footer, only texts and integers are returned.

        Args:
            kind: `min`, `max` or `null_count`.
            only_logged: no footer is read.
        """
        name = ".".join(column)
        if f"{commits.PARTITION_PREFIX}{name}" in actions.schema.names:
            values = actions.column(f"{commits.PARTITION_PREFIX}{name}")
            if kind != "null_count":
                return values
            return pc.if_else(pc.is_valid(values), 0, actions.column("num_records"))
        logged = pa.chunked_array([pa.nulls(actions.num_rows)])
        if f"{kind}.{name}" in actions.schema.names:
            logged = actions.column(f"{kind}.{name}")
        if only_logged:
            return logged
        return self._footers.complete(actions, logged, kind, column)

    def bounds(self, column: Sequence[str], *, only_logged: bool = False) -> dict[str, Bounds]:
        """Return the bounds of a column in each file, by the file's path.

        Files without them, in the log and in their footers, are left out. Only bounds of strings and
        integers are returned: they are exact.

        Args:
            only_logged: no footer is read.
        """
        return self._bounds(self._actions(), column, only_logged=only_logged)

    def _bounds(
        self, actions: pa.Table, column: Sequence[str], *, only_logged: bool = False
    ) -> dict[str, Bounds]:
        least, most = (
            self._statistic(actions, side, column, only_logged=only_logged).to_pylist()
            for side in ("min", "max")
        )
        rows = zip(actions.column("path").to_pylist(), least, most, strict=True)
        return {path: (a, z) for path, a, z in rows if _exact(a) and _exact(z)}

    def files_overlapping(
        self, column: Sequence[str], least: str, most: str
    ) -> list[tuple[DataFile, Bounds | None]]:
        """Return the files that may have a value from `least` to `most` in a column of strings.

        Each comes with its bounds of the column; None if there are none.
        """
        actions = self._actions()
        low, high = (self._statistic(actions, side, column) for side in ("min", "max"))
        if pa.types.is_null(low.type) or pa.types.is_null(high.type):
            return [(file, None) for file in commits.list_files(actions)]
        is_outside = pc.or_(pc.less(high, least), pc.greater(low, most))
        actions = actions.filter(pc.invert(pc.fill_null(is_outside, False)))
        bounds = self._bounds(actions, column)
        return [(file, bounds.get(file.path)) for file in commits.list_files(actions)]

    def files_before(self, column: str, time: dt.datetime) -> list[DataFile]:
        """Return the files that may have a time before `time` in a column, by their statistics."""
        actions = self._actions()
        times = self._statistic(actions, "min", [column]).to_pylist()
        return [
            file
            for file, earliest in zip(commits.list_files(actions), times, strict=True)
            if earliest is None or earliest < time
        ]

    def paths_lacking_nulls(self, column: Sequence[str], *, only_logged: bool = False) -> set[str]:
        """Return the paths of the files whose statistics show that a column has no null.

        Args:
            only_logged: no footer is read.
        """
        actions = self._actions()
        nulls = self._statistic(actions, "null_count", column, only_logged=only_logged).to_pylist()
        paths = actions.column("path").to_pylist()
        return {path for path, count in zip(paths, nulls, strict=True) if count == 0}

    def has_values(self, column: str) -> bool:
        """Return whether a column has a value that is not null; it is read from footers where the log does
        not say it."""
        actions = self._actions()
        nulls = self._statistic(actions, "null_count", [column], only_logged=True).to_pylist()
        paths, rows = (actions.column(name).to_pylist() for name in ("path", "num_records"))
        unknown_paths = [path for path, count in zip(paths, nulls, strict=True) if count is None]
        if any(None not in (n, m) and n < m for n, m in zip(nulls, rows, strict=True)):
            return True
        return self.storage.have_values(unknown_paths, column)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the snapshot."""
        return self.read_files(spark, self.files)

    def read_files(
        self,
        spark: SparkSession,
        files: Iterable[DataFile],
        schema: t.StructType | None = None,
        path_column: str | None = None,
    ) -> DataFrame:
        """Return the rows of files in the table's columns. A column that a file lacks is null.

        Args:
            schema: the columns to read; default: those of the table.
            path_column: the name of a further column, with a path or URI of a row's file.
        """
        schema, files = schema or self.schema, list(files)
        if not files:
            more = [t.StructField(path_column, t.StringType())] if path_column else []
            return make_empty(spark, t.StructType([*schema.fields, *more]))
        if self._needs_tasks(spark):
            return self._read_in_tasks(spark, files, schema, path_column)
        foreign = [file for file in files if not file.is_own]
        own = [file for file in files if file.is_own]
        if not foreign:
            return self._read_in_jvm(spark, own, schema, path_column)
        rows = self._read_in_tasks(spark, foreign, schema, path_column)
        return rows.union(self._read_in_jvm(spark, own, schema, path_column)) if own else rows

    def _read_in_tasks(
        self,
        spark: SparkSession,
        files: Sequence[DataFile],
        schema: t.StructType,
        path_column: str | None,
    ) -> DataFrame:
        """Return the rows of files in any physical types: another engine may have written them."""
        located = [(self.storage.locate(file), file.size) for file in files]
        arrow_schema = opening.arrow_columns(schema)
        return jobs.read_parquet(
            spark, self.storage.system, located, schema, arrow_schema, path_column
        )

    def _read_in_jvm(
        self,
        spark: SparkSession,
        files: Sequence[DataFile],
        schema: t.StructType,
        path_column: str | None,
    ) -> DataFrame:
        paths = [self.storage.location.child(file.path).for_spark_reader for file in files]
        rows = spark.read.schema(schema).options(**STRICT_READ).parquet(*paths)
        if path_column is None:
            return rows
        return rows.select("*", f.col("_metadata.file_path").alias(path_column))

    def write_files(
        self, rows: DataFrame, kind: str = VISIBLE, *, in_tasks: bool = False
    ) -> list[DataFile]:
        """Write rows to new files under the root. They are invisible to readers until they are committed.

        Args:
            kind: the folder: `VISIBLE` (`data/`), or `HIDDEN` (`_elt/`, which other engines do not vacuum).
            in_tasks: whether Python tasks write the files in any case: the session of the rows may have
                settings with which Spark writes other files (`open_session`).
        """
        output = self.output(kind)
        folder = output.folder
        try:
            if output.partition_by or in_tasks or self._needs_tasks(rows.sparkSession):
                types = opening.arrow_columns(rows.schema) if in_tasks else None
                files = [DataFile(*file) for file in jobs.write_parquet(rows, output, types)]
                self.storage.keep_only(folder, {file.path for file in files})
            else:
                rows.write.mode("append").parquet(self.storage.location.child(folder).for_spark)
                files = self.storage.files_in_folder(folder)
        except BaseException:
            self.storage.discard_folder(folder)
            raise
        reach(Failpoint.FILES_WRITTEN)
        return files

    def _needs_tasks(self, spark: SparkSession) -> bool:
        """Return whether Python tasks read and write the files: the JVM has no file system for the store."""
        location = self.storage.location
        return location.is_object_store and not jobs.jvm_supports(spark, location.scheme)

    def output(self, kind: str = VISIBLE) -> Output:
        """Return a new folder under the root, for tasks that write files. Hidden ones have no partitions."""
        partition_by = () if kind == HIDDEN else self.partition_by
        root = self.storage.system, self.storage.root
        return Output(root, self.new_folder(kind), partition_by, TARGET_ROWS, MAX_BYTES)

    def new_folder(self, kind: str = VISIBLE) -> str:
        """Return the path of a new folder for one write, relative to the root."""
        folder = TableStorage.new_folder(HIDDEN if self.hides_files else kind)
        if self._new_folders is not None:
            self._new_folders.append(folder)
        return folder

    @contextlib.contextmanager
    def discard_new_folders_on_error(self) -> Iterator[None]:
        """Remove all that was written under the root since the beginning of the block, if it raises an error.

        The block must not commit.
        """
        folders = self._new_folders = []
        try:
            yield
        except BaseException:
            for folder in folders:
                self.storage.discard_folder(folder)
            raise
        finally:
            self._new_folders = None

    def prepare(self, schema: t.StructType, stream: str | None = None) -> None:
        """Create the table, or add the columns and nested fields that it lacks, without data.

        Args:
            schema: the columns of the files in the next commit.

        Raises:
            ConcurrentSync: a run with another catalog has added or changed a column first: its type differs.
        """
        if self._delta is None:
            self._delta = opening.create(self.storage.location, schema, stream, self.partition_by)
        opening.add_columns(self._delta, schema)
        opening.index_partitions(self._delta)
        commits.refuse_retyped(self._delta, schema)
        self._basis = replace(self._basis, schema=schema)

    def commit(
        self,
        change: TableChange,
        metadata: CommitMetadata,
        records: int,
        schema: t.StructType | None = None,
    ) -> None:
        """Publish files and state in one commit, and move to its snapshot.

        Args:
            metadata: the metadata of the commit; its sequence must be the present one plus one.
            records: the number of records from the source, for `elt.records` of the commit.
            schema: a schema that replaces the table's; `change` must then remove every file.

        Raises:
            ConcurrentSync: another run with this `app_id` has committed first, the table was restored, or its
                columns were changed; nothing was published.
            Superseded: files that the change removes no longer exist; nothing was published.
            Exception: as `publish_once`.
        """
        assert self._delta is not None and metadata.sequence == self.metadata.sequence + 1
        commit = commits.Commit(
            self.app_id, change, metadata, records, self._basis, self.metadata, schema
        )
        published = commits.publish(self._delta, self.storage, commit)
        self.metadata = published.metadata
        columns = schema or self._basis.schema
        self._basis = Basis(published.version, columns, published.last_restore)

    def take_over(self, former: Table, metadata: CommitMetadata) -> None:
        """Continue the commits of another writer, in a commit that changes no row; it can be made while the
        table is moved.

        Args:
            metadata: that of the former writer's newest commit, for this writer.
        """
        assert self._delta is not None
        sequence = max(self.metadata.sequence, metadata.sequence)
        self.metadata = replace(former.metadata, sequence=sequence)
        next_metadata = replace(
            metadata, sequence=sequence + 1, commit=None, same_as=former.metadata.stands_for or ""
        )
        commit = commits.Commit(
            self.app_id,
            TableChange(),
            next_metadata,
            0,
            self._basis,
            self.metadata,
            former=former.app_id,
        )
        self.metadata = commits.publish(self._delta, self.storage, commit).metadata

    @property
    def move(self) -> Move | None:
        """The move that the table is in; None if it is in none."""
        return None if self._delta is None else find_move(self._delta)

    def set_move(self, move: Move | None) -> None:
        """Record that the table is being moved, or that the move has ended (None)."""
        assert self._delta is not None
        opening.set_move(self._delta, move)

    @property
    def writers(self) -> list[str]:
        """The `app_id` of each writer of the table, without those that another one continues."""
        return list(self._newest_commits())

    @property
    def undone_writers(self) -> list[str]:
        """The `app_id` of each writer of which a restore has undone every commit."""
        return [] if self._delta is None else list_undone_writers(self._delta, self.storage)

    def reorganise(self, change: TableChange, backfilled: Sequence[str] = ()) -> None:
        """Publish a compaction, which moves rows to other files. It has no state and no transaction.

        Args:
            backfilled: columns that the moved rows have values in now, and had none before.

        Raises:
            Superseded: the files no longer exist, or every attempt failed; nothing was published.
            Exception: as `publish_once`.
        """
        assert self._delta is not None
        commits.reorganise(self._delta, self.storage, change, backfilled)

    def find_unreferenced(self, retention: dt.timedelta) -> list[str]:
        """Return the paths of visible files, older than the retention, that no version within it uses.

        Files that only older versions use are among them. Check the result with `find_needed`: a
        checkpoint of another engine omits removed files after `delta.deletedFileRetentionDuration`, so that
        files which are still needed may be among them too.

        Files of others are not among them, for example those of a table in a folder below this one: a file is
        of this table if it is in a folder of this project, if the log names it, or if it is where engines of
        Delta write files.
        """
        paths = self._list_unreferenced(retention, full=True)
        foreign = (path for path in paths if not DataFile(path, 0, 0).is_own)
        others = {path for path in foreign if not _WRITTEN_BY_ENGINES.fullmatch(path)}
        if others:
            others -= set(self._list_unreferenced(retention, full=False))
        return [path for path in paths if path not in others]

    def _list_unreferenced(self, retention: dt.timedelta, *, full: bool) -> list[str]:
        """`full`: also files that the log does not name."""
        assert self._delta is not None
        hours = math.ceil(retention.total_seconds() / 3600)
        return self._delta.delta_table.vacuum(
            retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=full
        )

    def find_needed(self, oldest: dt.datetime) -> set[str]:
        """Return the paths of files, also hidden ones, that the present version or any since a time needs."""
        assert self._delta is not None
        time = int(oldest.timestamp() * 1000)
        visible = set(self._actions().column("path").to_pylist())
        removed = log.find_removed_since(self._delta, time)
        return visible | removed | hidden_since(self._delta, self.storage, time)

    def find_needed_now(self) -> set[str]:
        """Return the paths of files, also hidden ones, that the present version needs, and no older one."""
        assert self._delta is not None
        visible = set(self._actions().column("path").to_pylist())
        newest = self._newest_commits().values()
        return visible.union(*(hidden_of(self.storage, entry) for entry in newest))

    def forget_versions(self) -> int:
        """Remove all older versions from the log: their entries and checkpoints; return how many files.

        The newest commit of each writer stays, with its state.

        Raises:
            SystemFailure: a file could not be removed.
        """
        assert self._delta is not None
        self.advance()
        return log_cut.cut(self._delta, self.storage)

    def version_of(self, commit: str | None) -> int:
        """Return the newest version with the contents of a commit of this `app_id`; None: of none yet.

        Raises:
            SystemFailure: the log no longer contains the commit.
        """
        assert self._delta is not None
        return version_of(self._delta, self.storage, self.app_id, commit)

    def past_commits(self) -> Iterable[PastCommit]:
        """Return this writer's effective commits, the newest first: without those that a restore undid."""
        return [] if self._delta is None else past_commits(self._delta, self.storage, self.app_id)

    def read_commits(self) -> Iterator[Entry]:
        """Yield the commits of all writers, the newest first. Older ones are read only when needed."""
        return iter(()) if self._delta is None else log.read_newest_first(self._delta)

    def commits_since(self, version: int) -> list[Entry]:
        """Return the commits of all writers after a version, the newest first."""
        return [] if self._delta is None else log.read_since(self._delta, version)

    def generation_of(self, app_id: str) -> int:
        """Return the generation of a writer's rows in the snapshot; 0 if it has not committed yet."""
        return current_metadata(self._delta, self.storage, app_id).generation

    def advance(self) -> None:
        """Move to the newest snapshot, with the commits of other writers. `metadata` does not change."""
        if self._delta is not None:
            self._delta.update_incremental()

    def reopen(self) -> None:
        """Move to the newest snapshot, and read `metadata` again."""
        self._open()

    def refuse_if_overtaken(self) -> None:
        """Refuse to continue if another run with this `app_id` has committed, or the table was restored.

        Raises:
            ConcurrentSync: one of the two has happened.
        """
        self.advance()
        if self._delta is not None:
            sequence = self.metadata.sequence + 1
            commits.refuse_overtaken(self._delta, self.app_id, sequence, self._basis)

    def roll_back(self, commit: str | None, run_id: str | None) -> None:
        """Undo this writer's commits after the named one (None: all its commits), in a new commit.

        Raises:
            SystemFailure: the log no longer contains them, or others have replaced the files since.
        """
        assert self._delta is not None
        undone = rollback(self._delta, self.storage, self.app_id, commit)
        metadata = replace(
            undone.before,
            sequence=self.metadata.sequence + 1,
            run_id=run_id,
            commit=None,
            same_as=commit or "",
        )
        self.commit(undone.change(self.storage), metadata, 0, undone.schema)


def _describe_partitioning(columns: Sequence[str]) -> str:
    return f"the partition columns {', '.join(columns)}" if columns else "no partition columns"


def _exact(value: object) -> bool:
    if isinstance(value, str):
        return len(value) < MAX_BOUND_CHARS  # a longer one is cut
    return isinstance(value, int) and not isinstance(value, bool)


@contextlib.contextmanager
def discard_if_unpublished(table: Table, files: Sequence[DataFile]) -> Iterator[None]:
    """Remove files if the block raises an error that proves that nothing was published.

    After any other error they stay: they may have been published.
    """
    try:
        yield
    except NOTHING_PUBLISHED:
        table.storage.discard(files)
        raise
