"""A stream's sink: segments become files of its table, checkpoints become commits."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake import policies, types
from elt_assets.lake.conform import Stamp, conform, rejected
from elt_assets.lake.head import Head
from elt_assets.lake.names import clean
from elt_assets.lake.spark import SparkProvider
from elt_assets.lake.table import DataFile, Table, discarding
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment

DEAD_LETTER_SUFFIX = "_dead_letter"
_DEAD_LETTER = t.StructType(
    [
        t.StructField("record", t.StringType()),
        t.StructField("reason", t.StringType()),
        t.StructField("stream", t.StringType()),
        t.StructField("rejected_at", t.TimestampType()),
        t.StructField("run_id", t.StringType()),
    ]
)


@dataclass(frozen=True)
class Generations:
    """spec: ConfiguredAirbyteStream as of 0.9. An overwrite begins a new generation."""

    generation_id: int
    minimum_generation_id: int


def generations(stream: ConfiguredStream, head: Head) -> Generations:
    """The generation that a sync of this stream writes."""
    if stream.overwrites:
        return Generations(head.generation + 1, head.generation + 1)
    return Generations(max(head.generation, 1), 0)


@dataclass
class _Pending:
    """What was written since the last commit."""

    files: list[DataFile]
    dead: list[DataFile]
    records: int = 0
    rejected: int = 0
    changed: int = 0


class TableWriter:
    """Writes one sync of one stream to its table; the session's `Sink`.

    Args:
        spark: the session; waited for when the first segment comes.
        table: the stream's table, at the snapshot that its state was taken from.
        stream: which policy, key, cursor and generation apply.
        run_id: of the Dagster run, kept with each commit.
    """

    def __init__(self, spark: SparkProvider, table: Table, stream: ConfiguredStream, run_id: str):
        assert stream.generation_id is not None and stream.sync_id is not None
        self._provider = spark
        self._table = table
        self._stream = stream
        self._run_id = run_id
        self._columns = types.columns(stream.stream.json_schema)
        self._schema = types.table_schema(self._columns)
        self._stamp = Stamp(str(uuid.uuid4())[:24], stream.generation_id, stream.sync_id)
        self._dead_letter = Table(f"{table.uri}{DEAD_LETTER_SUFFIX}", f"{table.app_id}|dead_letter")
        key = stream.key if stream.deduplicates else []
        self._by = policies.Ordering([_cleaned(p) for p in key], _cleaned(stream.cursor))
        self._pending = _Pending([], [])

    def write(self, segment: Segment) -> None:
        """Type a segment's records and write them as files that nobody sees yet.

        Raises:
            SystemFailure: the rows written and the rows rejected are not the rows staged.
            ConfigError: the table's columns are of other types.
        """
        spark, paths = self._provider.get(), [str(segment.path)]
        self._table.prepare(self._schema)
        rows = conform(spark, paths, self._columns, self._stamp, self._by.key)
        files, changed = self._write_observed(rows)
        written = sum(file.records for file in files)
        dead = segment.records - written
        self._pending.files += files
        self._pending.records += written
        self._pending.changed += changed
        if dead:
            self._write_dead_letter(spark, paths, dead)

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Apply the policy and publish, state included; a no-op where nothing is new."""
        pending, state = self._pending, self._state(checkpoint)
        if self._is_news(pending, state, checkpoint):
            self._table.prepare(self._schema)
            self._publish_dead_letter(pending)
            self._publish(pending, state)
        self._pending = _Pending([], [])
        return self._committed(pending)

    def close(self) -> None:
        """Remove what was written and never committed; not what may have been."""
        pending, self._pending = self._pending, _Pending([], [])
        self._table.discard_files(pending.files)
        self._dead_letter.discard_files(pending.dead)

    def _publish_dead_letter(self, pending: _Pending) -> None:
        """Before the table's commit: rejected records are rather told twice than not at all."""
        if pending.dead:
            dead, pending.dead = pending.dead, []
            head = self._dead_letter.head
            after = Head(head.sequence + 1, 1, None, self._run_id)
            with discarding(self._dead_letter, dead):
                self._dead_letter.commit(dead, [], after, pending.rejected)

    def _publish(self, pending: _Pending, state: str | None) -> None:
        change = self._change(pending.files)
        head = Head(
            sequence=self._table.head.sequence + 1,
            generation=self._stamp.generation_id,
            state=state,
            run_id=self._run_id,
        )
        written, pending.files = pending.files, []
        with discarding(self._table, [*written, *change.add]):
            self._table.commit(change.add, change.remove, head, pending.records)
        # A merge leaves the batch's own files behind.
        published = {file.path for file in change.add}
        self._table.discard_files(file for file in written if file.path not in published)

    def _write_observed(self, rows: DataFrame) -> tuple[list[DataFile], int]:
        seen = Observation()
        changes = f.size(f.col(types.META).getField("changes"))
        observed = rows.observe(seen, f.count_if(changes > 0).alias("changed"))
        files = self._table.write_files(observed)
        return files, int(seen.get["changed"])

    def _write_dead_letter(self, spark: SparkSession, paths: Sequence[str], expected: int) -> None:
        self._dead_letter.prepare(_DEAD_LETTER)
        rows = rejected(spark, paths, self._columns, self._stamp, self._by.key).select(
            "record",
            "reason",
            f.lit(str(self._stream.id)).alias("stream"),
            f.current_timestamp().alias("rejected_at"),
            f.lit(self._run_id).alias("run_id"),
        )
        files = self._dead_letter.write_files(rows)
        self._pending.dead += files
        self._pending.rejected += expected
        found = sum(file.records for file in files)
        if found != expected:
            raise SystemFailure(
                f"stream {str(self._stream.id)!r}: {expected} records were neither written nor "
                f"rejected as known ({found} were)",
                guidance="nothing was committed; please report this",
            )

    def _change(self, batch: list[DataFile]) -> policies.Change:
        if not self._stream.deduplicates:
            if self._stream.overwrites:
                return policies.overwrite(self._table, batch)
            return policies.append(batch)
        spark = self._provider.get()
        if self._stream.overwrites:
            own = policies.deduplicate(spark, self._table, batch, self._by)
            return policies.overwrite(self._table, own.add)
        return policies.merge(spark, self._table, batch, self._by)

    def _state(self, checkpoint: Checkpoint) -> str | None:
        """The state from here on: the checkpoint's, or the one before it where it brought none."""
        if checkpoint.states:
            return checkpoint.states[-1].to_json().decode()
        return None if self._stream.overwrites else self._table.head.state

    def _is_news(self, pending: _Pending, state: str | None, checkpoint: Checkpoint) -> bool:
        if checkpoint.silent and self._table.exists:
            return False
        if pending.files or pending.dead or state != self._table.head.state:
            return True
        return checkpoint.final and (self._stream.overwrites or not self._table.exists)

    def _committed(self, pending: _Pending) -> Committed:
        return Committed(
            sequence=self._table.head.sequence,
            generation=self._table.head.generation,
            version=self._table.version,
            records=pending.records,
            rejected=pending.rejected,
            changed=pending.changed,
            state=self._table.head.state,
        )


def _cleaned(names: Sequence[str]) -> list[str]:
    return [clean(name) for name in names]
