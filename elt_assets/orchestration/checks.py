"""Asset checks of a stream, based on the metadata of its last sync and on its table.

`build`, `materialize` and `status` take their specs, and `step` runs them after each sync; `table_jobs`
reports those of `health` after maintenance too.

A check reads the metadata of the last materialisation or the log of the table. Only the check of the primary
key reads data: the key columns of the files that the sync wrote, or of all files if the check runs alone.
The rules that people write (`pipeline.rules`) read data too.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import dagster as dg

from elt_assets.connection.checks import CONTRACT, Check, Share
from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.merge.partition_files import count_repeated_keys
from elt_assets.lake.read.row_tests import TestedRows
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import differences, key_of
from elt_assets.orchestration import health
from elt_assets.orchestration.metadata import (
    ICEBERG_LAG,
    IGNORED,
    NOT_PUBLISHED,
    SOURCE_RECORDS,
    STATUS,
    UNMENTIONED,
    cluster_columns_of,
    dead_letter_metadata,
    figures_of,
    truncate,
    unwrap,
)
from elt_assets.orchestration.streams import StreamAsset, output_name
from elt_assets.pipeline.contracts import find_table_violations
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.pipeline.publication import CatalogLook, find_entry_problem, is_published
from elt_assets.pipeline.rules import evaluate_rules, list_rules
from elt_assets.pipeline.stream_plan import source_state
from elt_assets.protocol.catalog import APPEND, INCREMENTAL
from elt_assets.protocol.messages import COMPLETE
from elt_assets.settings import settings
from elt_assets.sync.events import QUIET

DESCRIPTIONS = {
    "counts": "The number of records read matches the source, and all records were committed or rejected.",
    "completed": "The source sent messages about the stream; its last stream status, if any, is COMPLETE.",
    "primary_key": "No two rows have the same primary key.",
    "changed": "Few records had a value that could not be cast and became null.",
    "rejected": "Few records were rejected to the dead letter table.",
    "columns": "The columns of the table match the catalog.",
    "cursor": "The acknowledged cursor did not decrease.",
    "published": "What is published of the table is its newest version.",
    **health.DESCRIPTIONS,
}


@dataclass(frozen=True)
class Evidence:
    """The input of the checks."""

    asset: StreamAsset
    # The metadata of the materialisation, one entry for each partition.
    syncs: Sequence[Mapping[str, Any]]
    tables: StreamTables  # the tables in their current version
    files: Sequence[DataFile]  # the files with the rows to check
    spark: SparkProvider
    # The partitions of the run; None for a stream without partitions, or without a sync.
    partitions: Collection[str] | None = None
    # Whether `syncs` are of this run; else the table may have been published since.
    is_of_run: bool = True

    @property
    def figures(self) -> SyncFigures:
        return sum(map(figures_of, self.syncs), SyncFigures())


Outcome = tuple[bool, str, Mapping[str, Any]]


class CheckSpec(dg.AssetCheckSpec):
    """Check spec with a valid output name. Dagster uses the asset key, which may be an invalid name."""

    @cached_property
    def key(self) -> dg.AssetCheckKey:  # Dagster asks for it fourteen times
        return dg.AssetCheckKey(self.asset_key, self.name)

    def get_python_identifier(self) -> str:
        return f"{output_name(self.asset_key)}_{self.name}"


def check_specs(asset: StreamAsset) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks that are enabled for a stream, and of its rules.

    With `fail_run`, all of them are blocking: Dagster then fails the step that has committed the stream, and
    does not retry it.
    """
    checks = [(name, DESCRIPTIONS[name], False) for name in _select_checks(asset)]
    checks += [(r.check_name, r.description, r.blocking) for r in list_rules(asset)]
    if asset.settings.contract is not None and asset.connection.destination is None:
        checks.append((CONTRACT, "The columns of the table are those of the contract.", False))
    return [
        CheckSpec(
            name,
            asset=asset.key,
            description=text,
            blocking=is_blocking or asset.checks.fail_run,
        )
        for name, text, is_blocking in checks
    ]


def _select_checks(asset: StreamAsset) -> list[str]:
    configured, stream = asset.checks, asset.stream
    has_unique_key = bool(stream.key) and stream.destination_sync_mode != APPEND
    # Each partition has its own cursor, and a partition with a window always starts from the beginning.
    has_cursor = stream.sync_mode == INCREMENTAL and asset.settings.partitions is None
    is_in_lake = asset.connection.destination is None
    applies = {
        "primary_key": has_unique_key and is_in_lake,
        "cursor": has_cursor,
        "changed": is_in_lake,
        "columns": is_in_lake,
        "published": is_in_lake and (is_published(asset) or settings().entry_catalog is not None),
        **dict.fromkeys(health.DESCRIPTIONS, is_in_lake),
    }
    applies["unsorted"] = is_in_lake and bool(cluster_columns_of(asset.spec.metadata))
    return [
        name
        for name in DESCRIPTIONS
        if getattr(configured, name).enabled and applies.get(name, True)
    ]


def results(evidence: Evidence, names: Iterable[str]) -> Iterator[dg.AssetCheckResult]:
    """Run checks and yield their results."""
    selected = set(names)
    yield from _rule_results(evidence, selected)
    if CONTRACT in selected:
        yield _contract_result(evidence)
    configured = evidence.asset.checks
    for name in DESCRIPTIONS:
        if name not in selected:
            continue
        check: Check = getattr(configured, name)
        outcome = _CHECKS[name](evidence, check)
        is_warning = check.severity == "warn" or outcome[2].get("unmentioned") == QUIET
        yield _make_result(evidence.asset, name, outcome, is_warning=is_warning)


def report_health(
    asset: StreamAsset, tables: StreamTables, spark: SparkProvider, instance: dg.DagsterInstance
) -> None:
    """Report the health of a stream's tables outside of its syncs, by the checks that are enabled."""
    names = health.DESCRIPTIONS.keys() & set(_select_checks(asset))
    for result in results(Evidence(asset, [], tables, [], spark), names):
        evaluation = dg.AssetCheckEvaluation(
            asset_key=asset.key,
            check_name=str(result.check_name),
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
        )
        instance.report_runless_asset_event(evaluation)


def _make_result(
    asset: StreamAsset, name: str, outcome: Outcome, *, is_warning: bool
) -> dg.AssetCheckResult:
    passed, text, metadata = outcome
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=asset.key,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN if is_warning else dg.AssetCheckSeverity.ERROR,
        description=text,
        metadata=dict(metadata),
    )


def _rule_results(evidence: Evidence, names: Collection[str]) -> Iterator[dg.AssetCheckResult]:
    """Evaluate the rules that people wrote and yield their results."""
    asset, table = evidence.asset, evidence.tables.main
    rules = [rule for rule in list_rules(asset) if rule.check_name in names]
    rows = TestedRows(table, evidence.files, evidence.partitions, evidence.spark)
    for rule, outcome in evaluate_rules(asset, rules, rows):
        metadata: dict[str, Any] = {"rows": outcome.rows, "failed": outcome.failed}
        if outcome.examples:
            metadata["examples"] = dg.MetadataValue.json(list(outcome.examples))
        parts = (outcome.passed, outcome.text, metadata)
        yield _make_result(asset, rule.check_name, parts, is_warning=rule.severity == "warn")


def _contract_result(evidence: Evidence) -> dg.AssetCheckResult:
    """Compare the table with the contract of the stream."""
    contract, table = evidence.asset.settings.contract, evidence.tables.main
    assert contract is not None
    violations = truncate(find_table_violations(contract, table)) if table.exists else []
    text = "; ".join(violations) or "the columns of the table are those of the contract"
    outcome = (not violations, text, {"violations": dg.MetadataValue.json(violations)})
    is_warning = contract.on_violation == "warn"
    return _make_result(evidence.asset, CONTRACT, outcome, is_warning=is_warning)


def _counts(evidence: Evidence, _: Check) -> Outcome:
    figures = evidence.figures
    counts = [unwrap(sync.get(SOURCE_RECORDS)) for sync in evidence.syncs]
    source = None if None in counts or not counts else sum(map(int, counts))
    metadata = {"read": figures.read, "committed": figures.committed, "rejected": figures.rejected}
    metadata |= {"filtered": figures.filtered} if figures.filtered else {}
    if figures.read != figures.committed + figures.rejected + figures.filtered:
        text = (
            "the number of records read is not the sum of committed, rejected and filtered records"
        )
        return False, text, metadata
    if source is None:
        return True, "the source does not report how many records it sent", metadata
    metadata["source"] = source
    is_same = source == figures.read
    return is_same, f"the source reports {source:,} records; {figures.read:,} were read", metadata


def _completion(evidence: Evidence, _: Check) -> Outcome:
    statuses = {str(unwrap(sync.get(STATUS)) or "none") for sync in evidence.syncs}
    metadata: dict[str, Any] = {"status": ", ".join(sorted(statuses)) or "none"}
    reasons = {unwrap(sync[UNMENTIONED]) for sync in evidence.syncs if UNMENTIONED in sync}
    if reasons:
        ignored = sum(int(unwrap(sync.get(IGNORED)) or 0) for sync in evidence.syncs)
        metadata |= {
            "unmentioned": max(reasons, key=lambda reason: reason != QUIET),
            "ignored": ignored,
        }
        text = f"{metadata['unmentioned']}; check that the source still has the stream"
        return False, text, metadata
    if statuses <= {"none"}:
        return True, "the source reports no status; it ended without an error", metadata
    text = f"last status from the source: {metadata['status']}"
    return statuses <= {COMPLETE, "none"}, text, metadata


def _primary_key(evidence: Evidence, _: Check) -> Outcome:
    table, stream = evidence.tables.main, evidence.asset.stream
    key = key_of(stream, table)
    if evidence.asset.partitions is not None:
        key.append([PARTITION])
    metadata = {"files": len(evidence.files), "rows": sum(file.records for file in evidence.files)}
    if not key or not evidence.files:
        return True, "there are no rows to check", metadata
    repeated = count_repeated_keys(evidence.spark, table, evidence.files, key)
    text = f"{repeated:,} keys have more than one row"
    return not repeated, text, {**metadata, "repeated": repeated}


def _share(figure: Callable[[SyncFigures], int]) -> Callable[[Evidence, Check], Outcome]:
    def check_share(evidence: Evidence, check: Check) -> Outcome:
        assert isinstance(check, Share)
        figures = evidence.figures
        share = figure(figures) / figures.read if figures.read else 0.0
        # Dagster plots each number over runs. The limit is constant, so it is only in the text.
        metadata = {"records": figure(figures), "read": figures.read, "share": share}
        text = f"{share:.2%} of the records read; the limit is {check.max:.2%}"
        return share <= check.max, text, metadata

    return check_share


def _count_rejected(evidence: Evidence, check: Check) -> Outcome:
    passed, text, metadata = _share(lambda figures: figures.rejected)(evidence, check)
    return passed, text, {**metadata, **dead_letter_metadata(evidence.tables)}


def _columns(evidence: Evidence, _: Check) -> Outcome:
    if not evidence.tables.main.exists:
        return True, "the table does not exist yet", {}
    mismatches = truncate(differences(evidence.asset.make_stored_stream(), evidence.tables.main))
    text = "; ".join(mismatches) or "the columns of the table match the catalog"
    return not mismatches, text, {"differences": dg.MetadataValue.json(mismatches)}


def _compare_publication(evidence: Evidence, _: Check) -> Outcome:
    """Compare what is published with the table: as the sync has found it, or else as the catalog has it."""
    if evidence.is_of_run:
        last = evidence.syncs[-1] if evidence.syncs else {}
        return describe_publication(unwrap(last.get(ICEBERG_LAG)), unwrap(last.get(NOT_PUBLISHED)))
    if not evidence.tables.main.exists:
        return True, "there is no table yet", {}
    state = CatalogLook().look(evidence.asset, evidence.tables)
    problems = [None if state is None else state.problem]
    problems.append(find_entry_problem(evidence.asset, evidence.tables))
    reasons = [problem for problem in problems if problem is not None]
    return describe_publication(None if state is None else state.lag, reasons)


def describe_publication(lag: int | None, problems: Sequence[str] | None) -> Outcome:
    """Return the outcome of the check of what is published.

    Args:
        lag: how many versions of the table are newer; None if that is not known.
        problems: why they are not published.
    """
    metadata = {} if lag is None else {"lag": lag}
    if not problems and not lag:
        return True, "the newest version of the table is published", metadata
    behind = "by how many versions is not known" if lag is None else f"by {lag:,} versions"
    reason = "; ".join(problems or ["`elt publish` catches up"])
    return False, f"what is published is behind the table ({behind}): {reason}", metadata


def _cursor(evidence: Evidence, _: Check) -> Outcome:
    """Compare the cursor with that of the previous run, if the states contain the value of the cursor field.

    A source may keep its cursor in another form; then the check passes.
    """
    current, cursor = evidence.tables.metadata, evidence.asset.stream.cursor
    commits = (commit for _, _, commit in evidence.tables.main.past_commits())
    before = next((commit for commit in commits if commit.run_id != current.run_id), None)
    if before is None or before.generation != current.generation:
        return True, "there is no earlier cursor in this generation", {}
    values = [_cursor_of(commit.state, cursor) for commit in (before, current)]
    metadata = {"before": str(values[0]), "now": str(values[1])}
    if None in values or type(values[0]) is not type(values[1]):
        return True, "the state does not contain the value of the cursor field", metadata
    is_decreased = values[1] < values[0]  # type: ignore[operator]
    return not is_decreased, f"from {values[0]} to {values[1]}", metadata


def _cursor_of(state: str | None, cursor: Sequence[str]) -> dt.datetime | str | float | None:
    value: Any = json.loads(source_state(state) or "null")
    for name in cursor:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        if re.fullmatch(r"-?\d+(\.\d+)?", value):
            return float(value)
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            return value
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
    return float(value) if isinstance(value, int | float) else None


def _health(name: str, evidence: Evidence, check: Check) -> Outcome:
    return health.assess(name, evidence.asset, evidence.tables, check)


_CHECKS: Mapping[str, Callable[[Evidence, Any], Outcome]] = {
    "counts": _counts,
    "completed": _completion,
    "primary_key": _primary_key,
    "changed": _share(lambda figures: figures.changed),
    "rejected": _count_rejected,
    "columns": _columns,
    "cursor": _cursor,
    "published": _compare_publication,
    **{name: partial(_health, name) for name in health.DESCRIPTIONS},
}
