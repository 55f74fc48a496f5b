"""Checks of a stream, made of what its last sync told and of its table.

Each reads the metadata of the last materialisation, the table's log, or, for the primary key alone, the
key's columns: of the files that the sync wrote, or of all where a check is run by itself.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets.connection.checks import Check, Checks, Share
from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.merge.duplicate_keys import repeated_keys
from elt_assets.lake.schema.metadata_columns import PARTITION
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import differences, key_of
from elt_assets.orchestration.events.metadata import (
    COUNTED,
    IGNORED,
    STATUS,
    UNMENTIONED,
    few,
    figures_of,
    plain,
)
from elt_assets.orchestration.streams import StreamAsset, op_name
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.pipeline.given_state import blob
from elt_assets.protocol.airbyte.catalog import INCREMENTAL
from elt_assets.protocol.airbyte.messages import COMPLETE
from elt_assets.protocol.airbyte.sync_modes import APPEND
from elt_assets.sync.events import QUIET

DESCRIPTIONS = {
    "counts": "records read are those the source says it sent, and all were committed or rejected",
    "completed": "the source mentioned the stream, and said that it is complete if it reports statuses",
    "primary_key": "no two rows have the same primary key",
    "changed": "few records had a value that did not fit and was nulled",
    "rejected": "few records went to the dead letter",
    "columns": "the table's columns are those of the catalog",
    "cursor": "the acknowledged cursor did not go back",
}


@dataclass(frozen=True)
class Evidence:
    """What the checks look at.

    `syncs`: the metadata of what was materialised, for each partition; `tables`: as they stand; `files`:
    those that hold the rows to look at.
    """

    asset: StreamAsset
    syncs: Sequence[Mapping[str, Any]]
    tables: StreamTables
    files: Sequence[DataFile]
    spark: SparkProvider

    @property
    def figures(self) -> SyncFigures:
        found = SyncFigures()
        for each in map(figures_of, self.syncs):
            found.read += each.read
            found.committed += each.committed
            found.rejected += each.rejected
            found.changed += each.changed
        return found


Outcome = tuple[bool, str, Mapping[str, Any]]


class _Spec(dg.AssetCheckSpec):
    """Of a stream of any name: Dagster makes an output's name of the asset's key, which may be none."""

    def get_python_identifier(self) -> str:
        return f"{op_name(self.asset_key)}_{self.name}"


def check_specs(asset: StreamAsset) -> list[dg.AssetCheckSpec]:
    """The checks that are wanted of a stream."""
    return [_Spec(name, asset=asset.key, description=DESCRIPTIONS[name]) for name in _wanted(asset)]


def settings(asset: StreamAsset) -> Checks:
    return asset.wanted.checks.over(asset.connection.checks)


def _wanted(asset: StreamAsset) -> list[str]:
    written, stream = settings(asset), asset.stream
    keyed = bool(stream.key) and stream.destination_sync_mode != APPEND
    # Partitions have a cursor each, and those with windows begin anew each time.
    moves = stream.sync_mode == INCREMENTAL and asset.wanted.partitions is None
    lands = asset.connection.destination is None
    applies = {"primary_key": keyed and lands, "cursor": moves, "changed": lands, "columns": lands}
    return [
        name for name in DESCRIPTIONS if getattr(written, name).enabled and applies.get(name, True)
    ]


def results(evidence: Evidence, names: Iterable[str]) -> Iterator[dg.AssetCheckResult]:
    """Look, and say what was found."""
    written = settings(evidence.asset)
    for name in names:
        check: Check = getattr(written, name)
        passed, text, told = _LOOK[name](evidence, check)
        warns = check.severity == "warn" or told.get("unmentioned") == QUIET
        yield dg.AssetCheckResult(
            check_name=name,
            asset_key=evidence.asset.key,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
            description=text,
            metadata=dict(told),
        )


def _counts(evidence: Evidence, _: Check) -> Outcome:
    found = evidence.figures
    counts = [plain(sync.get(COUNTED)) for sync in evidence.syncs]
    source = None if None in counts or not counts else sum(map(int, counts))
    told = {"read": found.read, "committed": found.committed, "rejected": found.rejected}
    if found.read != found.committed + found.rejected:
        return False, "records read are not those committed and rejected", told
    if source is None:
        return True, "the source does not say how many records it sent", told
    told["source"] = source
    same = source == found.read
    return same, f"the source says {source:,} records, {found.read:,} were read", told


def _completed(evidence: Evidence, _: Check) -> Outcome:
    statuses = {str(plain(sync.get(STATUS)) or "none") for sync in evidence.syncs}
    told: dict[str, Any] = {"status": ", ".join(sorted(statuses)) or "none"}
    reasons = {plain(sync[UNMENTIONED]) for sync in evidence.syncs if UNMENTIONED in sync}
    if reasons:
        ignored = sum(int(plain(sync.get(IGNORED)) or 0) for sync in evidence.syncs)
        told |= {
            "unmentioned": max(reasons, key=lambda reason: reason != QUIET),
            "ignored": ignored,
        }
        return False, f"{told['unmentioned']}: does it still have the stream?", told
    if statuses <= {"none"}:
        return True, "the source tells no status; it ended well", told
    return statuses <= {COMPLETE, "none"}, f"the source's last status: {told['status']}", told


def _primary_key(evidence: Evidence, _: Check) -> Outcome:
    table, stream = evidence.tables.main, evidence.asset.stream
    key = key_of(stream, table)
    if evidence.asset.partitions is not None:
        key.append([PARTITION])
    told = {"files": len(evidence.files), "rows": sum(file.records for file in evidence.files)}
    if not key or not evidence.files:
        return True, "there is nothing to look at", told
    repeated = repeated_keys(evidence.spark, table, evidence.files, key)
    return not repeated, f"{repeated:,} keys have more than one row", {**told, "repeated": repeated}


def _share(figure: Callable[[SyncFigures], int]) -> Callable[[Evidence, Check], Outcome]:
    def look(evidence: Evidence, check: Check) -> Outcome:
        assert isinstance(check, Share)
        found = evidence.figures
        share = figure(found) / found.read if found.read else 0.0
        # Each number is plotted over runs: the limit, which is the same each time, is in the text alone.
        told = {"records": figure(found), "read": found.read, "share": share}
        return share <= check.max, f"{share:.2%} of the records read, at most {check.max:.2%}", told

    return look


def _columns(evidence: Evidence, _: Check) -> Outcome:
    if not evidence.tables.main.exists:
        return True, "there is no table yet", {}
    found = few(differences(evidence.asset.landed(), evidence.tables.main))
    text = "; ".join(found) or "the table has the catalog's columns"
    return not found, text, {"differences": dg.MetadataValue.json(found)}


def _cursor(evidence: Evidence, _: Check) -> Outcome:
    """Of the states that say the cursor field's value; a source may keep it in its own way."""
    head, cursor = evidence.tables.head, evidence.asset.stream.cursor
    heads = (one for _, _, one in evidence.tables.main.past())
    before = next((one for one in heads if one.run_id != head.run_id), None)
    if before is None or before.generation != head.generation:
        return True, "there is no earlier cursor of this generation", {}
    values = [_cursor_of(one.state, cursor) for one in (before, head)]
    told = {"before": str(values[0]), "now": str(values[1])}
    if None in values or type(values[0]) is not type(values[1]):
        return True, "the source's state does not say the cursor field's value", told
    went_back = values[1] < values[0]  # type: ignore[operator]
    return not went_back, f"from {values[0]} to {values[1]}", told


def _cursor_of(state: str | None, cursor: Sequence[str]) -> dt.datetime | str | float | None:
    found: Any = json.loads(blob(state) or "null")
    for name in cursor:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, str):
        if re.fullmatch(r"-?\d+(\.\d+)?", found):
            return float(found)
        try:
            moment = dt.datetime.fromisoformat(found)
        except ValueError:
            return found
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
    return float(found) if isinstance(found, int | float) else None


_LOOK: Mapping[str, Callable[[Evidence, Any], Outcome]] = {
    "counts": _counts,
    "completed": _completed,
    "primary_key": _primary_key,
    "changed": _share(lambda found: found.changed),
    "rejected": _share(lambda found: found.rejected),
    "columns": _columns,
    "cursor": _cursor,
}
