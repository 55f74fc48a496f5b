"""The sink of a stream for `pipeline` and `destination`: segments become files, checkpoints become commits.

`pipeline.connection_read` and `destination.tables` make one for each stream, and the session calls it
(`sync.committer`); `lake.admin.replay` writes with one, too.

What a kill leaves, so that nothing is lost or doubled:

- SEGMENT_PARSED: files that no log names. The state of their records was not stored, so the next run reads
  them again; a vacuum removes the files.
  `tests/lake/test_crash_points.py::test_a_first_sync_survives_a_kill_at_any_point`
- COMMIT_BUILT: the same, with the files that a merge has rewritten. The files that they replace are still
  those of the table.
  `tests/lake/test_crash_points.py::test_a_vacuum_survives_a_kill_at_any_point`

A refresh is stored like any checkpoint: its files are in the metadata of the commits until the last one makes
them visible. A run after a kill goes on with it.
`tests/lake/test_crash_points.py::test_a_refresh_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, ConfigError, SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.columns.logical_types import Column, Unread
from elt_assets.lake.delta.commit_metadata import Refresh
from elt_assets.lake.delta.outcome import NOTHING_PUBLISHED, Superseded
from elt_assets.lake.delta.storage import HIDDEN, DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker import inference
from elt_assets.lake.worker.blocks import OTHER_CHANGES
from elt_assets.lake.worker.slices import SliceSource
from elt_assets.lake.write import dead_letter, rewrite, sync_columns
from elt_assets.lake.write.commit import CheckpointData, CommitBuilder, Publication
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.parsing import (
    OTHER_REASONS,
    ParsedSegment,
    Rejections,
    SegmentParser,
    find_misfits,
    limit_counts,
)
from elt_assets.lake.write.suppression import open_suppression
from elt_assets.lake.write.sync_columns import WriteSpec, stream_part
from elt_assets.machine_faults import translate, translated
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.storage import conditional_writes
from elt_assets.storage.staging import IN_PLACE, Staging
from elt_assets.sync.events import Checkpoint, Committed, SlicesRead
from elt_assets.sync.pending import SliceGroup
from elt_assets.sync.segments import Segment

MAX_ATTEMPTS = 5
"""Maximum number of attempts at a commit. It is built again if, for example, a compaction has replaced files
that it replaces."""
MAX_ADDED = 100
"""Maximum number of fields that become columns in one sync."""


@dataclass
class _Pending:
    """The data that was written since the last commit."""

    files: list[DataFile] = field(default_factory=list)
    rejected_files: list[DataFile] = field(default_factory=list)
    records: int = 0
    rejected: int = 0
    changed: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    dependent: dict[str, set[str]] = field(default_factory=dict)
    places: array[int] = field(default_factory=lambda: array("q"))
    undeclared: Counter[str] = field(default_factory=Counter)
    suppressed: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class _ColumnPlan:
    """The columns of a sync, for the columns that its table has now, and what writes them."""

    planned_for: t.StructType  # the columns that the table had
    differences: Sequence[str]  # those between the stream's schema and that of the table, as text
    schema: t.StructType  # all columns that the table is to have
    # The columns that records are parsed into; with delete markers that the table does not store.
    columns: Sequence[Column]
    parser: SegmentParser  # makes files of segments
    builder: CommitBuilder  # makes commits of files

    @property
    def written_schema(self) -> t.StructType:
        """The columns of the files that are written now. Columns that no field fills are left out."""
        unread = {column.name for column in self.columns if isinstance(column.kind, Unread)}
        stored = [field for field in self.schema.fields if field.name not in unread]
        names = {field.name for field in self.schema.fields}
        unstored = [column.field for column in self.columns if column.name not in names]
        return t.StructType([*stored, *unstored])

    @property
    def names(self) -> dict[str, str]:
        """The name of each column by its name in the source."""
        return {column.source: column.name for column in self.columns}


class TableWriter:
    """Writes one sync of one stream to its tables; the `Sink` of a session.

    Args:
        spark: provides the session. The first segment waits for it; a commit without rows does not start it.
        tables: the stream's tables, at the snapshot that its state was read from.
        spec: the policy, key, cursor and generation.
        staging: where tasks read the segments.
        is_replay: whether the records are of a dead letter, and have the ids of their arrival.
        locate: report the places of rejected records with each commit.
        slices: returns what tasks need to read slices of the stream; None if it has none.

    Raises:
        ConfigError: a change of the stream's schema is not accepted, the salt has changed, the store of
            the table ignores conditions, or another engine gave a table a rule that commits would break.
        SystemFailure: the table was restored to a version of which vacuum has removed files.
    """

    def __init__(
        self,
        spark: SparkProvider,
        tables: StreamTables,
        spec: WriteSpec,
        staging: Staging = IN_PLACE,
        *,
        is_replay: bool = False,
        locate: bool = False,
        slices: Callable[[], SliceSource] | None = None,
    ):
        conditional_writes.require(tables.main.storage.location)
        for table in (tables.main, *tables.companions.values()):
            table.refuse_unwritable()
        tables.main.refuse_lost(replaces=spec.truncates)
        tables.main.refuse_repartitioned()
        _refuse_other_salt(tables, spec)
        _refuse_forgotten(tables.main, spec)
        rewrite.check(tables, spec)
        self._provider = spark
        self._tables = tables
        self._spec = spec
        self._staging = staging
        self._replaces = sync_columns.replaces_schema(spec, tables.main)
        self._is_replay = is_replay
        self._sync_ids = spec.make_sync_ids()
        self._locates = locate
        self._slices = slices
        self._suppression = open_suppression(tables, spec)
        self._plan = self._plan_columns()
        self._schema_changes = self._plan.differences
        self._hide_unfinished()
        self._pending = _Pending()
        self._new_fields: dict[str, inference.Schema] = {}

    @property
    def tables(self) -> StreamTables:
        """The tables that are written."""
        return self._tables

    @property
    def schema_changes(self) -> Sequence[str]:
        """Return the differences between the stream's schema and that of its table, as text."""
        return self._schema_changes

    @property
    def added_fields(self) -> Sequence[str]:
        """The fields that have become columns in this sync, and that the catalog does not declare."""
        return list(self._new_fields)

    def write(self, segment: Segment) -> None:
        """Parse a segment's records and write them as files that are not visible yet.

        Raises:
            SystemFailure: the segment is damaged, or the written and the rejected rows are not those staged.
        """
        with translated(f"while the table {self._tables.main.uri} was written"):
            self._write_segment(segment)

    def _write_segment(self, segment: Segment) -> None:
        size = segment.path.stat().st_size if segment.path.exists() else 0
        if size != segment.size:
            raise SystemFailure(
                f"the staged segment {segment.path} has {size} bytes, but {segment.size} were written to it",
                guidance="nothing of it was committed; check that nothing else writes to the staging folder",
            )
        with self._staging.share(segment.path) as place:
            self._add(
                self._parse(lambda parser: parser.parse(self._provider.get(), segment, place))
            )

    def read(self, group: SliceGroup) -> SlicesRead:
        """Read slices in tasks, and write their rows as files that are not visible yet.

        Raises:
            EltError: the source of a slice fails, and no state is before it; its class names who must act.
        """
        assert self._slices is not None
        where = f"while the table {self._tables.main.uri} was written"
        with translated(where):
            source = self._slices()
            parsed = self._parse(
                lambda parser: parser.read(self._provider.get(), group, source, self._staging)
            )
        self._add(parsed)
        rows = sum(result.rows + result.rejected - result.markers for result in parsed.results)
        error = parsed.error and (translate(parsed.error, where) or parsed.error)
        return SlicesRead(len(parsed.results), rows, error)

    def _parse(self, parse: Callable[[SegmentParser], ParsedSegment]) -> ParsedSegment:
        """Parse records; if they have fields that become columns, parse them again with these columns.

        Raises:
            ConfigError: they have too many new fields, or the tables cannot take one.
        """
        parsed = parse(self._plan.parser)
        if not self._spec.adds_undeclared:
            return parsed
        while (new_fields := self._find_fields(parsed, parse)) != self._new_fields:
            self._discard(parsed)
            added = len(new_fields)
            if added > MAX_ADDED:
                raise _refuse_many(self._spec.stream, added)
            self._new_fields = new_fields
            self._change_spec(replace(self._spec, new_fields=inference.declare(new_fields)))
            parsed = parse(self._plan.parser)
        return parsed

    def _find_fields(
        self, parsed: ParsedSegment, parse: Callable[[SegmentParser], ParsedSegment]
    ) -> dict[str, inference.Schema]:
        """Return the fields that are added in this sync, with those of some records."""
        new_fields = inference.merge_fields(self._new_fields, *(r.inferred for r in parsed.results))
        paths = find_misfits(parsed.results, self._plan.columns)
        if paths:  # their columns need a wider type, which the values say
            again = parse(self._plan.parser.reopen(paths))
            self._discard(again)
            new_fields = inference.merge_fields(new_fields, *(r.inferred for r in again.results))
        return {name: schema for name, schema in new_fields.items() if inference.has_type(schema)}

    def _discard(self, parsed: ParsedSegment) -> None:
        self._tables.main.storage.discard(parsed.files)
        self._tables.dead_letter.storage.discard(parsed.rejected)

    def _add(self, parsed: ParsedSegment) -> None:
        """Add files to what the next commit publishes."""
        reach(Failpoint.SEGMENT_PARSED)
        pending = self._pending
        replaced = self._leave_out_suppressed(parsed)
        for file in parsed.files:
            pending.files += replaced.get(file.path, [file])
        for file in parsed.rejected:
            pending.rejected_files += replaced.get(file.path, [file])
        for result in parsed.results:
            pending.records += result.rows - result.markers
            pending.rejected += result.rejected
            pending.changed += result.changed
            pending.changes.update(result.changes)
            pending.reasons.update(result.reasons)
            for reason in result.dependent:
                paths = pending.dependent.setdefault(reason, set())
                for path, *_ in result.files:
                    is_replaced = path in replaced
                    paths.update([f.path for f in replaced[path]] if is_replaced else [path])
            pending.undeclared.update(result.undeclared)
            if self._locates:
                pending.places.extend(result.rejected_sequence)

    def _leave_out_suppressed(self, parsed: ParsedSegment) -> dict[str, list[DataFile]]:
        """Return the files that replace those with rows that must not be stored, by their paths."""
        suppression, replaced = self._suppression, dict[str, list[DataFile]]()
        if suppression is None:
            return replaced
        for table, files in (
            (self._tables.main, parsed.files),
            (self._tables.dead_letter, parsed.rejected),
        ):
            is_rejected = table is self._tables.dead_letter
            rows, new = suppression.leave_out(self._provider, table, files, is_rejected=is_rejected)
            self._pending.suppressed += rows
            replaced |= new
        return replaced

    def change_schema(self, stream: ConfiguredStream) -> None:
        """Use another schema or key of the stream from now on, also for what is not published yet.

        Args:
            stream: as its tables store it.

        Raises:
            ConfigError: the tables cannot take the schema; or the key has changed after rows of an unfinished
                refresh were committed by the former key.
            SystemFailure: rows were lost; nothing was committed.
        """
        resumed = self._plan.builder.resumed
        spec = self._spec.changed(stream, stream_part(self._plan.written_schema))
        if resumed is not None and resumed.truncates:
            _refuse_other_key(self._spec.stream, spec.stream)
        self._change_spec(spec)

    def _change_spec(self, spec: WriteSpec) -> None:
        """Use other columns from now on, also for what is not published yet."""
        before, resumed = self._plan.written_schema, self._plan.builder.resumed
        spec = replace(spec, written=stream_part(before))
        rewrite.check(self._tables, spec)
        self._spec = spec
        self._plan = self._plan_columns()
        self._schema_changes = self._plan.differences
        pending_files, self._pending.files = self._pending.files, []
        self._pending.files = list(self._convert(pending_files, before))
        kept_paths = {file.path for file in self._pending.files}
        if kept_paths != {file.path for file in pending_files}:  # the rows are in other files now
            self._pending.dependent = dict.fromkeys(self._pending.dependent, kept_paths)
        self._tables.main.storage.discard(
            file for file in pending_files if file.path not in kept_paths
        )
        if resumed is not None and resumed.truncates:
            self._continue_refresh(resumed, before)

    def _continue_refresh(self, refresh: Refresh, before: t.StructType) -> None:
        """Continue a truncating refresh with other columns; the next commit names its converted files.

        If the refresh does not replace the columns of the table, its files are converted with the table.
        """
        main = self._tables.main
        if self._replaces:
            files = tuple(self._convert(refresh.files, before, HIDDEN))
            ends = tuple(self._convert(refresh.tombstones, before, HIDDEN))
            refresh = replace(refresh, files=files, tombstones=ends)
        refresh = replace(refresh, written_as=self._plan.builder.written_as)
        main.metadata = replace(main.metadata, refresh=refresh)

    def _convert(
        self, files: Sequence[DataFile], before: t.StructType, *kind: str
    ) -> Sequence[DataFile]:
        return rewrite.convert_unpublished(
            self._provider, self._tables.main, files, before, self._spec, self._plan.schema, *kind
        )

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Apply the policy and publish the rows and the state; do nothing if nothing is new."""
        with translated(f"while a commit to the table {self._tables.main.uri} was made"):
            pending, state = self._pending, self._state(checkpoint)
            if self._has_changes(pending, state, checkpoint):
                self._publish(pending, state, final=checkpoint.final)
                self._hide_unfinished()
            self._pending = _Pending()
            return self._describe_commit(pending)

    def commit_replay(self, replayed: Sequence[DataFile]) -> Committed:
        """Publish the written rows, and remove the dead letter files that they replace; the state stays."""
        pending, self._pending = self._pending, _Pending()
        self._publish(pending, self._tables.metadata.state, final=False, replayed=replayed)
        return self._describe_commit(pending)

    def close(self) -> None:
        """Remove files that were written and not committed; files that may have been committed stay."""
        pending, self._pending = self._pending, _Pending()
        self._tables.main.storage.discard(pending.files)
        self._tables.dead_letter.storage.discard(pending.rejected_files)

    def _publish(
        self,
        pending: _Pending,
        state: str | None,
        *,
        final: bool,
        replayed: Sequence[DataFile] = (),
    ) -> None:
        """Publish a commit once; it is built again if a compaction replaced files of the merge.

        After an unknown failure of the commit, the files that were written stay: they may have been
        published.
        """
        batch = list(pending.files)
        data = CheckpointData(
            batch,
            list(pending.rejected_files),
            pending.rejected,
            state,
            final,
            replayed,
            dependent=pending.dependent,
        )
        for attempt in range(MAX_ATTEMPTS):
            try:
                built = self._build(data)
                pending.files, pending.rejected_files = [], []
                pending.unchanged = built.unchanged
                reach(Failpoint.COMMIT_BUILT)
                self._commit(built, pending.records, batch)
                break
            except Superseded:
                pending.files = (
                    batch  # nothing was published: `close` removes them if this run fails
                )
                # A replay must read the dead letter again.
                if attempt == MAX_ATTEMPTS - 1 or replayed:
                    raise
                self._tables.advance()
                self._tables.roll_back_companions(self._spec.run_id)
        kept_paths = {file.path for file in built.files}
        self._tables.main.storage.discard(file for file in batch if file.path not in kept_paths)

    def _hide_unfinished(self) -> None:
        """Hide the files of a refresh that can be resumed: it is committed before readers see it."""
        resumable = self._spec.stream.resumable
        self._tables.main.hides_files = resumable and self._plan.builder.is_building

    def _build(self, data: CheckpointData) -> Publication:
        rewrite.widen(self._provider, self._tables, self._spec)
        if not self._replaces:
            self._prepare()
        try:
            with ExitStack() as stack:
                for table in (self._tables.main, *self._tables.companions.values()):
                    stack.enter_context(table.discard_new_folders_on_error())
                return self._plan.builder.make(data)
        except (PySparkException, OSError):
            # An erasure that committed first has removed the files that the tasks read.
            self._tables.main.refuse_if_overtaken()
            raise

    def _prepare(self) -> None:
        """Give the table the columns of the stream, and take over those that another run has added to it.

        A merge writes rows of other partitions again, so it must know all columns of the table.

        Raises:
            ConcurrentSync: a column that another run has added has the name of one of this sync's columns.
        """
        main, name = self._tables.main, self._spec.stream.stream.name
        main.prepare(self._plan.schema, name)
        if main.schema == self._plan.planned_for:
            return
        former, self._plan = self._plan, self._plan_columns()
        main.prepare(self._plan.schema, name)
        names = self._plan.names
        if any(names.get(source) != column for source, column in former.names.items()):
            raise ConcurrentSync(
                f"another run has added a column to the table {main.uri} that has the name of a column of "
                "this sync",
                guidance="start the sync again; its columns get other names",
            )

    def _plan_columns(self) -> _ColumnPlan:
        """Plan the columns of the table as it is now, and how commits are built from them."""
        spec, tables, main = self._spec, self._tables, self._tables.main
        replaces, dead = self._replaces, tables.dead_letter
        plan = sync_columns.plan_columns(spec, main, replaces=replaces, history=tables.history)
        schema = sync_columns.full_schema(plan, spec, None if replaces else main.schema)
        order = sync_columns.ordering(spec, plan, is_replay=self._is_replay)
        unstored = sync_columns.list_unstored_markers(spec, plan, tables.metadata)
        columns = [*plan.columns, *unstored]
        parser = SegmentParser(
            main,
            Rejections(dead, dead_letter.schema(spec), dead_letter.same_values(spec)),
            columns,
            sync_columns.list_declared(spec, main),
            self._sync_ids,
            # No record contains its partition.
            [list(part) for part in order.key if part != [metadata_columns.PARTITION]],
            spec.partition,
            order.cursor,
            keeps_undeclared=spec.keeps_undeclared,
            infers=spec.adds_undeclared,
        )
        fields = [column.field for column in unstored]
        builder = CommitBuilder(
            self._provider, tables, spec, order, schema, replaces=replaces, unstored=fields
        )
        return _ColumnPlan(main.schema, plan.differences, schema, columns, parser, builder)

    def _commit(self, built: Publication, records: int, batch: Sequence[DataFile]) -> None:
        try:
            self._tables.commit(
                built.change, built.metadata, records, built.companions, built.schema
            )
        except NOTHING_PUBLISHED as error:
            kept_paths = {file.path for file in batch} if isinstance(error, Superseded) else set()
            self._tables.main.storage.discard(f for f in built.written if f.path not in kept_paths)
            raise

    def _state(self, checkpoint: Checkpoint) -> str | None:
        """Return the state after a checkpoint: the checkpoint's, or the present one if it has none."""
        if self._spec.keeps_state:
            return self._tables.metadata.state
        if checkpoint.states:
            return checkpoint.states[-1].text
        if self._plan.builder.resumed is not None:
            return self._plan.builder.resumed.state
        return None if self._plan.builder.is_building else self._tables.metadata.state

    def _has_changes(self, pending: _Pending, state: str | None, checkpoint: Checkpoint) -> bool:
        metadata, resumed = self._tables.metadata, self._plan.builder.resumed
        if checkpoint.silent and self._tables.main.exists:
            return False
        if (
            pending.files
            or pending.rejected_files
            or state != (resumed.state if resumed else metadata.state)
        ):
            return True
        is_unfinished = self._plan.builder.is_building or metadata.refresh is not None
        return checkpoint.final and (is_unfinished or not self._tables.main.exists)

    def _describe_commit(self, pending: _Pending) -> Committed:
        metadata = self._tables.metadata
        return Committed(
            sequence=metadata.sequence,
            generation=metadata.generation,
            version=self._tables.main.version,
            records=pending.records,
            rejected=pending.rejected,
            changed=pending.changed,
            state=metadata.refresh.state if metadata.refresh is not None else metadata.state,
            places=array("q", sorted(pending.places)),
            undeclared=limit_counts(pending.undeclared),
            changed_fields=limit_counts(pending.changes, others=OTHER_CHANGES.name),
            rejected_reasons=limit_counts(pending.reasons, others=OTHER_REASONS),
            suppressed=pending.suppressed,
            unchanged=pending.unchanged,
        )


def _refuse_many(stream: ConfiguredStream, count: int) -> ConfigError:
    return ConfigError(
        f"stream {str(stream.id)!r}: the records of this sync have {count} fields that the catalog does not "
        f"declare; `on_undeclared: add` adds up to {MAX_ADDED} columns in a sync: the names may be data",
        guidance="set `on_undeclared: keep`, which stores them in one column; or declare them in "
        "catalog.json (`elt discover --sample`)",
    )


def _refuse_other_key(before: ConfiguredStream, after: ConfiguredStream) -> None:
    if (before.destination_sync_mode, before.key) != (after.destination_sync_mode, after.key):
        raise ConfigError(
            f"the source changed the key of stream {str(after.id)!r} in the middle of a sync that replaces "
            "its rows, after some of them were committed by the former key",
            guidance="report it to the maintainer of the tap; the table is unchanged",
        )


def _refuse_forgotten(table: Table, spec: WriteSpec) -> None:
    """Refuse a table with deleted rows whose stream does not keep them any more.

    Raises:
        ConfigError: says what to do.
    """
    if spec.keeps_deleted or metadata_columns.find_deleted_at(table.schema) is None:
        return
    replaces_all = spec.truncates and spec.partition is None
    if replaces_all or not table.has_values(metadata_columns.ROW_DELETED_AT):
        return
    raise ConfigError(
        f"the table {table.uri} has rows that the source has deleted (column "
        f"{metadata_columns.ROW_DELETED_AT!r}), and `deletes: keep` is not set any more",
        guidance="set it again; or replace the rows by those that the source has now (`elt sync CONNECTION "
        "STREAM --refresh truncate`); of a stream with partitions, move the table away: each is then read "
        "from the beginning",
    )


def _refuse_other_salt(tables: StreamTables, spec: WriteSpec) -> None:
    salt = tables.metadata.salt
    if spec.salt is not None and salt is not None and spec.salt != salt:
        raise ConfigError(
            f"the hashes in the table {tables.main.uri} were made with another salt",
            guidance="restore the former salt (ELT_HASH_SALT, or the file hash_salt in DAGSTER_HOME, or in "
            "the vault), or move the table away to read the stream from the beginning",
        )
