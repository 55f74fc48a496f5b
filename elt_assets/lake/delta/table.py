"""A Delta table: files written by Spark, published by delta-rs with the source's state in one commit."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync
from elt_assets.lake.delta import commits, log, opening, undoing
from elt_assets.lake.delta.commit_metadata import (
    CommitMetadata,
    companions_of,
    head_of,
    hidden_since,
    in_force_by_writer,
    newest_writer,
    past,
    read_head,
    stands_for,
)
from elt_assets.lake.delta.commits import Basis
from elt_assets.lake.delta.files import HIDDEN, VISIBLE, Change, DataFile, Files
from elt_assets.lake.spark.session import STRICT_READ

Bounds = tuple[object, object]
"""The least and the greatest value of a column in a file."""


class Table:
    """One stream's table at one snapshot; `commit` moves it to the next.

    Args:
        uri: the table's root, a local path or a URI that delta-rs, pyarrow and Spark all know.
        app_id: names the writer in transaction ids: one stream, or one partition of it.
        version: an older snapshot, to be read only.

    `hides_files`: files written from now on are named by commits before readers see them, as those of an
    unfinished refresh: they lie where other engines' vacuum does not look.

    Raises:
        ConfigError: what is there is no table, or one that this project cannot read or write.
    """

    def __init__(self, uri: str, app_id: str, version: int | None = None):
        self.uri = uri
        self.app_id = app_id
        self.storage = Files(uri)
        self.hides_files = False
        self._open(version)

    def _open(self, version: int | None = None) -> None:
        self._delta = opening.opened(self.uri, version)
        self.head = read_head(self._delta, self.storage, self.app_id)
        self._basis = Basis(self.version, self.schema)

    @property
    def exists(self) -> bool:
        return self._delta is not None

    @property
    def is_foreign(self) -> bool:
        """Whether the table has rows or a state, and none of its commits is of this `app_id`."""
        if self._delta is None or commits.sequence(self._delta, self.app_id):
            return False
        return self.newest_writer is not None or bool(self.files)

    @property
    def newest_writer(self) -> str | None:
        """The `app_id` of the newest commit that this project made; None if it made none."""
        return None if self._delta is None else newest_writer(self._delta)

    @property
    def standing(self) -> Mapping[str, str | None]:
        """The name of the commit whose contents the table has, of each writer, by its `app_id`."""
        if self._delta is None:
            return {}
        return {app: stands_for(entry) for app, entry in in_force_by_writer(self._delta).items()}

    @property
    def companions_by_writer(self) -> Mapping[str, Mapping[str, str | None] | None]:
        """Which commits of the companions belong to the newest commit of each writer, by its `app_id`; None
        where the commit does not say."""
        if self._delta is None:
            return {}
        entries = in_force_by_writer(self._delta).items()
        return {app: companions_of(entry) for app, entry in entries}

    def rejected_by_refreshes(self) -> set[str]:
        """Return the paths of the dead letter's files that unfinished refreshes of any writer name."""
        if self._delta is None:
            return set()
        entries = in_force_by_writer(self._delta).values()
        refreshes = (head_of(self.storage, entry).refresh for entry in entries)
        return {file.path for refresh in refreshes if refresh for file in refresh.dead}

    @property
    def version(self) -> int:
        """Of the snapshot; -1 while there is no table."""
        return -1 if self._delta is None else int(self._delta.version())

    @property
    def schema(self) -> t.StructType:
        """The columns; none while there is no table."""
        return t.StructType() if self._delta is None else opening.spark_schema(self._delta)

    def schema_at(self, version: int) -> t.StructType:
        """The columns of an earlier version."""
        delta = opening.opened(self.uri, version)
        return t.StructType() if delta is None else opening.spark_schema(delta)

    @property
    def files(self) -> list[DataFile]:
        """The files of the snapshot."""
        return [] if self._delta is None else commits.files_of(self._delta)

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    def bounds(self, column: Sequence[str]) -> dict[str, Bounds]:
        """Of a column in each file, by the file's path; files whose statistics do not tell are left out.

        Texts and numbers only: those bounds are exact.
        """
        if self._delta is None:
            return {}
        actions = self._delta.get_add_actions(flatten=True)
        names = [f"{side}.{'.'.join(column)}" for side in ("min", "max")]
        if not set(names) <= set(actions.schema.names):
            return {}
        paths, least, most = (actions.column(name).to_pylist() for name in ("path", *names))
        rows = zip(paths, least, most, strict=True)
        return {path: (a, z) for path, a, z in rows if _exact(a) and _exact(z)}

    def without_nulls(self, column: Sequence[str]) -> set[str]:
        """Paths of the files in which a column has no null, as far as their statistics tell."""
        if self._delta is None:
            return set()
        actions = self._delta.get_add_actions(flatten=True)
        name = f"null_count.{'.'.join(column)}"
        if name not in actions.schema.names:
            return set()
        nulls = actions.column(name).to_pylist()
        paths = actions.column("path").to_pylist()
        return {path for path, count in zip(paths, nulls, strict=True) if count == 0}

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The rows of the snapshot."""
        return self.read_files(spark, self.files)

    def read_files(
        self, spark: SparkSession, files: Iterable[DataFile], schema: t.StructType | None = None
    ) -> DataFrame:
        """The rows of some files in the table's columns; a column that a file lacks is null."""
        schema, paths = (
            schema or self.schema,
            [self.storage.place.child(file.path).for_spark_reader for file in files],
        )
        if not paths:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).options(**STRICT_READ).parquet(*paths)

    def write_files(self, rows: DataFrame, kind: str = VISIBLE) -> list[DataFile]:
        """Write rows as new files under the root; nobody sees them before they are committed."""
        folder = self.new_folder(kind)
        try:
            rows.write.mode("append").parquet(self.storage.place.child(folder).for_spark)
            return self.storage.in_folder(folder)
        except BaseException:
            self.storage.discard_folder(folder)
            raise

    def new_folder(self, kind: str = VISIBLE) -> str:
        """Return a folder for the files of one write, relative to the root."""
        return Files.new_folder(HIDDEN if self.hides_files else kind)

    def discard_files(self, files: Iterable[DataFile]) -> None:
        """Remove files that were written and will not be committed."""
        self.storage.discard(files)

    def prepare(self, schema: t.StructType, stream: str | None = None) -> None:
        """Create the table, or give it the columns and nested fields that it lacks; both without data.

        Args:
            schema: the columns in which the files of the next commit are written.

        Raises:
            ConcurrentSync: the table has one of them with another type: a run with another catalog was first.
        """
        if self._delta is None:
            self._delta = opening.create(self.uri, schema, stream)
        opening.add_columns(self._delta, schema)
        opening.index_partitions(self._delta)
        commits.refuse_retyped(self._delta, schema)
        self._basis = Basis(self._basis.version, schema)

    def commit(
        self, change: Change, head: CommitMetadata, records: int, schema: t.StructType | None = None
    ) -> None:
        """Publish files and state in one commit, and move to it.

        Args:
            head: what the table says from here on; its sequence must be the present one plus one.
            records: rows taken from the source, for the commit's `elt.records`.
            schema: replaces the table's; `change` must then remove every file.

        Raises:
            ConcurrentSync: another writer of this `app_id` was first, the table was restored, or its columns
                were changed; nothing was published.
            Superseded: files that the change removes are gone; nothing was published.
            SystemFailure: the commit failed.
        """
        assert self._delta is not None and head.sequence == self.head.sequence + 1
        commit = commits.Commit(self.app_id, change, head, records, self._basis, schema)
        done = commits.publish(self._delta, self.storage, commit)
        self._delta, self.head = done.delta, done.head
        self._basis = Basis(done.version, schema or self._basis.schema)

    def reorganise(self, change: Change) -> None:
        """Publish the same rows in other files: no state, no transaction.

        Raises:
            Superseded: the files are gone; nothing was published.
        """
        assert self._delta is not None
        self._delta = commits.reorganise(self._delta, change)

    def unreferenced(self, retention: dt.timedelta) -> list[str]:
        """Paths of visible files that no version within the retention names, and that are older.

        Another engine's checkpoint forgets removed files after `delta.deletedFileRetentionDuration`; the log
        itself does not.
        """
        assert self._delta is not None
        hours = math.ceil(retention.total_seconds() / 3600)
        return self._delta.vacuum(
            retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True
        )

    def needed_since(self, oldest: dt.datetime) -> set[str]:
        """Paths of files that the present version needs, or one since a time; hidden files included."""
        assert self._delta is not None
        time = int(oldest.timestamp() * 1000)
        visible = {file.path for file in self.files}
        removed = log.removed_since(self._delta, self.storage, time)
        return visible | removed | hidden_since(self._delta, self.storage, time)

    def version_of(self, commit: str) -> int:
        """The version that a commit of this `app_id` made.

        Raises:
            SystemFailure: the log does not tell.
        """
        assert self._delta is not None
        return undoing.version_of(self._delta, self.app_id, commit)

    def past(self) -> Iterable[tuple[dt.datetime, int, CommitMetadata]]:
        """This writer's commits that are in force, from the newest down: time, version, what each says."""
        return [] if self._delta is None else past(self._delta, self.storage, self.app_id)

    def advance(self) -> None:
        """Move to the newest snapshot, other writers' commits included; the head stays this writer's."""
        if self._delta is not None:
            self._delta.update_incremental()

    def reopen(self) -> None:
        """Move to the newest snapshot, and to what it says of this writer."""
        self._open()

    def refuse_if_overtaken(self) -> None:
        """Look whether another writer of this `app_id` was first, or the table was restored.

        Raises:
            ConcurrentSync: so it is.
        """
        self.advance()
        if self._delta is not None:
            sequence = self.head.sequence + 1
            commits.refuse_overtaken(self._delta, self.app_id, sequence, self._basis)

    def roll_back(self, commit: str | None, run_id: str | None) -> None:
        """Undo this writer's commits after the one named, or all, in one more commit.

        Raises:
            SystemFailure: the log no longer has what that needs.
        """
        assert self._delta is not None
        undo = undoing.undone(self._delta, self.storage, self.app_id, commit)
        head = replace(
            undo.before,
            sequence=self.head.sequence + 1,
            run_id=run_id,
            commit=None,
            same_as=commit or "",
        )
        self.commit(undo.change(self.storage), head, 0, undo.schema)


def _exact(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


@contextlib.contextmanager
def discarding(table: Table, files: Sequence[DataFile]) -> Iterator[None]:
    """Remove files if another run was first; after any other failure they may be published."""
    try:
        yield
    except ConcurrentSync:
        table.discard_files(files)
        raise
