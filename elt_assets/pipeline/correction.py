"""The correction of rows: those of some keys are read from the source again, others end, in one commit.

`orchestration.verifying` corrects what a comparison has found (`comparison`): `elt verify --repair`, `repair:
true`, and `deletes: {sweep: …}`.

A correction is a sync of its own that leaves the state and the cursor of the table as they are. Its records
are deletes, and the rows that the source has now. So fields are left out, hashed and renamed as always, and
table, history and dead letter follow by the same merge. By its rules (`lake.merge.key_order`):

- A row of the source replaces that of its key, because its cursor is at least as great; of equal cursors the
  one that arrives later wins. If a row of the table is newer by its cursor, which is damaged then, a delete
  without a cursor comes first: it ends all rows that arrived before, whatever their cursors.
- A key that the source does not have ends by such a delete. That of a log has the position of the comparison
  as well. So changes that come later win, and earlier ones that are still to come do not.
- A history closes the version that the table had, and begins one. It never changes what it said of a moment
  before the correction.

Nothing is committed before the source has ended, so a kill at any point leaves the table as it was, or
corrected; the same correction again finds the rows that it would bring.
Test: `tests/lake/test_crash_points.py::test_a_correction_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import base64
import datetime as dt
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.lake.read.row_hashes import KeyValues
from elt_assets.lake.write.companions import StreamTables
from elt_assets.pipeline.comparison import Findings, JudgedKey
from elt_assets.pipeline.connection_read import ConnectionRead, RunResources
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.judgement import Verdict, write_value
from elt_assets.pipeline.read import Messages
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.pipeline.stream_plan import StreamPlan, SyncRequest, plan_stream
from elt_assets.protocol.catalog import DELETED_AT, INCREMENTAL
from elt_assets.protocol.messages import KEYS, Message, RawRecord, State

_ENCODER = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class Correction:
    """What is corrected: keys by what is done with them."""

    fields: Sequence[str]  # of the key
    reread: Sequence[KeyValues]  # the source's rows replace those of the table
    ended: Sequence[KeyValues]  # no row stays
    reset: Sequence[KeyValues]  # keys among them of which a row is newer by its cursor
    cursor: str | None = None  # the field of the log's position
    position: Raw | None = None

    @property
    def size(self) -> int:
        return len(self.reread) + len(self.ended)


def make_correction(findings: Findings, keys: Sequence[JudgedKey]) -> Correction:
    """Return the correction of keys that a comparison has found."""
    comparison = findings.comparison
    has_log = comparison.position is not None
    return Correction(
        comparison.key,
        [key.key for key in keys if key.verdict is not Verdict.SURPLUS],
        [key.key for key in keys if key.verdict is Verdict.SURPLUS],
        [key.key for key in keys if key.wins or (not has_log and key.verdict is Verdict.SURPLUS)],
        comparison.cursor if has_log else None,
        comparison.position,
    )


def refuse_uncorrectable(asset: ConnectionStream) -> None:
    """Refuse to correct rows of a stream whose table merges none.

    Raises:
        ConfigError: each sync replaces the table.
    """
    if not asset.stream.deduplicates:
        raise ConfigError(
            f"rows of {asset.name} cannot be corrected: its table is replaced by each sync "
            f"(`destination_sync_mode: {asset.stream.destination_sync_mode}`)",
            guidance=f"run `elt sync {asset.connection.name} {asset.stream.id.name}`: it replaces all rows",
        )


def plan_correction(
    asset: ConnectionStream,
    tables: StreamTables,
    correction: Correction,
    resources: RunResources,
) -> CorrectionRead:
    """Return the read that corrects rows of a stream.

    Raises:
        ConfigError: as `plan_stream`, and `refuse_uncorrectable`.
    """
    refuse_uncorrectable(asset)
    plan = replace(plan_stream(asset, tables, SyncRequest(is_beside=True)), corrects=True)
    keys = [[write_value(value) for value in key] for key in correction.reread]
    plan.stream.extra = {**plan.stream.extra, KEYS: Raw(msgspec.json.encode(keys))}
    return CorrectionRead(plan, correction, resources)


class CorrectionRead(ConnectionRead):
    """A read of some rows of one stream, with deletes before them."""

    _program_module = None  # the few rows come as records

    def __init__(self, plan: StreamPlan, correction: Correction, resources: RunResources):
        self._correction = correction
        connector = make_source(
            plan.asset.connection, resources.staging.folder, on_log=resources.log
        )
        super().__init__([plan], [], connector, resources)
        state = plan.tables.metadata.state if plan.stream.sync_mode == INCREMENTAL else None
        # The read has no state of its own. Some sources number the changes of a log from that of the table.
        self._states = [] if state is None else [State.from_json(state)]

    def open_messages(self) -> Messages:
        deletes = self._make_deletes()
        if self._correction.reread:
            with closing(super().open_messages()) as messages:
                for message in messages:
                    if not isinstance(message, Message) or message.record is not None:
                        # Made only now, so that a history has no gap between them and the first rows.
                        yield from deletes
                    yield message
        yield from deletes

    def _make_deletes(self) -> Iterator[RawRecord]:
        """Yield deletes: first those that end all rows of their keys, then those at the log's position."""
        correction = self._correction
        time_of_deletes = dt.datetime.now(dt.timezone.utc)
        marker: dict[str, Any] = {DELETED_AT: time_of_deletes.isoformat()}
        for key in correction.reset:
            yield self._make_record(key, marker)
        if correction.cursor is not None and correction.position is not None:
            position = {correction.cursor: correction.position}
            for key in correction.ended:
                yield self._make_record(key, {**marker, **position})

    def _make_record(self, key: KeyValues, more: dict[str, Any]) -> RawRecord:
        (plan,) = self.streams.values()
        values = zip(self._correction.fields, map(_as_record_has_it, key), strict=True)
        data = _ENCODER.encode({**dict(values), **more})
        millis = time.time_ns() // 1_000_000
        return RawRecord(plan.id.name, Raw(data), millis, plan.id.namespace)


def _as_record_has_it(value: Any) -> Any:
    """Return the value of a key as records of the source have it."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
