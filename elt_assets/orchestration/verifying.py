"""Verification of a stream: its table is compared with the source, and corrected if that is wanted.

`elt verify` has a `Verifier`, and so have the check `source` and the sweeps of `deletes` (`source_checks`).

`pipeline.comparison` compares, and `pipeline.correction` corrects. Here both get what they need: a process of
the source, the tables at their newest version, and a sync of the stream where the table may be behind its
log. Such a sync is like any other, but for its event, which the next run reports. A correction is reported
as an observation with the table's state.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.write.companions import StreamTables
from elt_assets.orchestration.metadata import commit_metadata
from elt_assets.orchestration.resources import AnySparkResource, LakeResource, spark_provider
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.comparison import (
    MAX_KEYS,
    ComparisonOptions,
    Findings,
    JudgedKey,
    compare,
)
from elt_assets.pipeline.connection_read import (
    ConnectionRead,
    RunResources,
    plan_read,
    plan_shared_read,
)
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.correction import make_correction, plan_correction, refuse_uncorrectable
from elt_assets.pipeline.judgement import Verdict, write_value
from elt_assets.pipeline.read import mask_error, run_read
from elt_assets.pipeline.stream_plan import plan_stream
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import LogFunction
from elt_assets.storage.folders import make_private_lake
from elt_assets.sync.events import Acknowledged, Logged

VERIFIED_THROUGH = "elt/verified_through"
"""Metadata key: up to when, or up to which position or cursor value, the table has what the source has."""


@dataclass(frozen=True)
class Verification:
    """What is verified of a stream, and what is done about differences."""

    options: ComparisonOptions
    repairs: bool = False  # all differences are corrected
    # The largest share of the table's rows that may be removed because the source no longer has their keys;
    # None if this is no sweep. A sweep compares and corrects nothing else.
    sweeps: float | None = None
    syncs: bool = True  # the stream may be synced if its table is behind its log

    @classmethod
    def make_sweep(cls, at_most: float) -> Verification:
        """Return the verification that removes rows whose keys the source no longer has."""
        return cls(ComparisonOptions(columns=()), sweeps=at_most)


@dataclass
class Verified:
    """The outcome of a verification."""

    findings: Findings
    time: dt.datetime
    corrected: int = 0  # keys
    rejected: int = 0  # records of them

    @property
    def passed(self) -> bool:
        """Whether the table has what the source has, as far as it was decided."""
        left = len(self.findings.differences) - self.corrected
        return not (left or self.findings.undecided or self.rejected)

    @property
    def through(self) -> str:
        """Up to which position or cursor value, or up to when, the rows were compared."""
        comparison = self.findings.comparison
        for value in (comparison.position, comparison.until):
            if value is not None:
                return bytes(value).decode()
        return self.time.isoformat(timespec="seconds")

    def list_keys(self) -> list[dict[str, Any]]:
        """Return the first keys that differ, each with what differs."""
        return [
            {
                "key": [write_value(value) for value in difference.key],
                "is": _describe(difference),
                **({"columns": list(difference.columns)} if difference.columns else {}),
            }
            for difference in self.findings.differences[:MAX_KEYS]
        ]

    def document(self) -> dict[str, Any]:
        """Return the outcome for machines, and for the metadata of a check."""
        findings = self.findings
        return {
            "rows": findings.rows,
            "ranges": findings.ranges,
            "ranges_listed": findings.ranges_listed,
            **findings.counts,
            "excused": {verdict.value: count for verdict, count in findings.excused.items()},
            "undecided": findings.undecided,
            "corrected": self.corrected,
            "rejected": self.rejected,
            "keys": self.list_keys(),
            "columns": [column.name for column in findings.comparison.columns],
            "left_out": dict(findings.left_out),
            "version": findings.version,
            "verified_through": self.through,
        }

    def describe(self) -> str:
        """Return the outcome as a sentence."""
        findings = self.findings
        parts = [f"{count:,} {name}" for name, count in findings.counts.items() if count]
        text = ", ".join(parts) or "no difference"
        text += f" in {findings.rows:,} rows of the source"
        if self.corrected:
            text += f"; {self.corrected:,} keys corrected"
        if self.rejected:
            text += f"; {self.rejected:,} rows were rejected to the dead letter"
        if findings.excused:
            text += f"; {findings.excused.total():,} excused: changed since, or nulled in the table"
        if findings.undecided:
            text += f"; not decided: {findings.undecided:,} keys ({findings.why_undecided})"
        return text


def _describe(difference: JudgedKey) -> str:
    where = " in the history" if difference.is_in_history else ""
    return f"{difference.verdict.value}{where}"


class Verifier:
    """Verifies streams of one connection.

    Args:
        group: all streams of the connection, which are synced together if they are read together.
        log: receives the log lines of the connectors.
    """

    def __init__(
        self,
        group: Sequence[StreamAsset],
        lake: LakeResource,
        spark: AnySparkResource,
        instance: dg.DagsterInstance,
        log: LogFunction,
    ):
        self._group, self._lake, self._spark = group, lake, spark_provider(spark)
        self._instance, self._log = instance, log
        self._run_id = str(uuid.uuid4())

    def verify(self, asset: StreamAsset, verification: Verification) -> Verified:
        """Compare the table of a stream with its source, and correct it if that is wanted.

        Raises:
            ConfigError: the stream cannot be compared, or not corrected; or a sweep would remove too much.
            ConcurrentSync: a sync of the stream committed before the correction; nothing was corrected.
            EltError: the source cannot be read, or the table not written.
        """
        corrects = verification.repairs or verification.sweeps is not None
        if corrects:
            refuse_uncorrectable(asset)
            self._lake.check_writable()
        time = dt.datetime.now(dt.timezone.utc)
        source = make_source(asset.connection, self._lake.staging_path, on_log=self._log)
        with _mask_errors(source):
            findings = compare(
                asset,
                lambda: self._open_tables(asset),
                source,
                self._spark,
                replace(verification.options, names_columns=not corrects),
                self._make_sync(asset) if verification.syncs else None,
            )
        verified = Verified(findings, time)
        keys = findings.differences
        if verification.sweeps is not None:
            findings.keep_only(Verdict.SURPLUS)
            keys = findings.differences
            _refuse_sweep(asset, findings, verification.sweeps)
        if corrects and keys:
            self._correct(asset, verified, keys)
        return verified

    def _open_tables(self, asset: StreamAsset) -> StreamTables:
        tables = asset.tables(self._lake.location)
        asset.refuse_foreign(tables.main)
        return tables

    def _open_to_write(self, asset: StreamAsset) -> StreamTables:
        """Return the tables, after the uncommitted changes of a killed run are undone."""
        make_private_lake(self._lake.uri)
        tables = self._open_tables(asset)
        for warning in tables.roll_back_companions(self._run_id):
            self._log("WARN", warning)
        return tables

    def _resources(self) -> RunResources:
        return RunResources(self._run_id, self._spark, self._lake.sync_staging, self._log)

    def _make_sync(self, asset: StreamAsset) -> Any:
        """Return the function that syncs a stream, with those that are read together with it."""

        def sync() -> None:
            self._lake.check_writable()
            together = asset.connection.read_together
            plans = [
                plan_stream(member, self._open_to_write(member))
                for member in (self._group if together else [asset])
            ]
            resources = self._resources()
            read = (
                plan_shared_read(plans, resources, None)
                if together
                else plan_read(plans[0], resources)
            )
            self._log("INFO", f"{asset.name}: syncing, so that the table has what the log has")
            self._run(read)

        return sync

    def _run(self, read: ConnectionRead) -> list[Acknowledged]:
        """Run a read, and return its commits."""
        commits = []
        for event in run_read(read):
            if isinstance(event, Logged):
                self._log(event.level, event.message)
            elif isinstance(event, Acknowledged):
                commits.append(event)
        return commits

    def _correct(self, asset: StreamAsset, verified: Verified, keys: Sequence[JudgedKey]) -> None:
        """Correct keys, and report the new commit."""
        tables = self._open_to_write(asset)
        correction = make_correction(verified.findings, keys)
        commits = self._run(plan_correction(asset, tables, correction, self._resources()))
        if not commits:
            raise SystemFailure(
                f"{asset.name}: the correction committed nothing",
                guidance="run it again, and report it if that does not help",
            )
        verified.corrected = correction.size
        verified.rejected = sum(commit.commit.rejected for commit in commits)
        metadata = {**commit_metadata(tables.main), "elt/keys_corrected": correction.size}
        event = dg.AssetObservation(asset.key, metadata=metadata)
        self._instance.report_runless_asset_event(event)


@contextmanager
def _mask_errors(source: Connector) -> Iterator[None]:
    """Mask the secrets of a source in errors."""
    try:
        yield
    except Exception as error:
        masked = mask_error(error, source.mask)
        if masked is error:
            raise
        raise masked from None


def _refuse_sweep(asset: StreamAsset, findings: Findings, at_most: float) -> None:
    """Refuse to remove a larger share of the table's rows than is allowed.

    Raises:
        ConfigError: names the rows, and how to allow it.
    """
    surplus, rows = len(findings.differences), findings.stored_rows
    share = min(1.0, math.ceil(100 * surplus / max(rows, 1)) / 100)
    if surplus > at_most * rows:
        raise ConfigError(
            f"{asset.name}: {surplus:,} of the {rows:,} rows of the table are no longer in the source, which "
            f"is more than `at_most` ({at_most:.0%}); nothing was removed",
            guidance="look at the source; if it is right, remove them with a larger share: `elt verify "
            f"{asset.name} --sweep --at-most {share:.2f}`",
        )


def make_check_metadata(verified: Verified) -> dict[str, Any]:
    """Return the metadata of a check."""
    document = verified.document()
    through = document.pop("verified_through")
    metadata = {
        name: value if isinstance(value, int) else dg.MetadataValue.json(value)
        for name, value in document.items()
    }
    return {**metadata, VERIFIED_THROUGH: through} if verified.passed else metadata
