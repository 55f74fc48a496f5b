"""The check `source` of streams, and sweeps of rows that the source no longer has; their jobs and schedules.

`component` adds them to the definitions of a connection, for the streams that ask for them.

The check is no part of a sync: it reads the whole table and asks the source. Dagster selects the checks of an
asset together with it, so in a run that syncs the stream too the check only repeats its last result.
"""

# No `from __future__ import annotations`: Dagster inspects the annotations of the op.
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from elt_assets.errors import ConfigError, Problems
from elt_assets.orchestration.checks import CheckSpec
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.report import connector_lines
from elt_assets.orchestration.resources import LAKE_KEY, SPARK_KEY
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_jobs import make_job
from elt_assets.orchestration.verifying import Verification, Verified, Verifier, make_check_metadata
from elt_assets.pipeline.compared_columns import refuse_incomparable
from elt_assets.pipeline.comparison import ComparisonOptions
from elt_assets.pipeline.correction import refuse_uncorrectable

_WITH_RESULT = frozenset(
    {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
)
SOURCE = "source"
"""Name of the check."""
_DESCRIPTION = "The table has what the source has, range by range of the key (docs/trust.md)."


def source_definitions(assets: Sequence[StreamAsset]) -> dg.Definitions:
    """Return the checks, jobs and schedules of the streams of a connection that ask for them.

    Raises:
        ConfigError: a stream cannot be compared with its source, or a schedule is not valid.
    """
    checked = [asset for asset in assets if asset.checks.source.is_configured]
    swept = [asset for asset in assets if asset.sweep is not None]
    problems = Problems()
    for asset in checked:
        problems.of(partial(_refuse, asset, corrects=asset.checks.source.repair))
    for asset in swept:
        problems.of(partial(_refuse, asset, corrects=True))
    schedules = [
        *(problems.of(partial(_make_check_schedule, asset)) for asset in checked),
        *(problems.of(partial(_make_sweep_schedule, asset, assets)) for asset in swept),
    ]
    problems.raise_all()
    return dg.Definitions(
        asset_checks=[_make_check(asset, assets) for asset in checked],
        schedules=[schedule for schedule in schedules if schedule is not None],
    )


def _refuse(asset: StreamAsset, *, corrects: bool) -> None:
    refuse_incomparable(asset)
    if corrects:
        refuse_uncorrectable(asset)


def _pool(asset: StreamAsset) -> str:
    """Return the pool of a stream's syncs, so that none runs at the same time."""
    return asset.controls.pool or asset.step_name


def _verify(
    context: dg.OpExecutionContext,
    group: Sequence[StreamAsset],
    asset: StreamAsset,
    verification: Verification,
) -> Verified:
    resources = context.resources
    with as_dagster_failure(), connector_lines(context.log) as on_log:
        verifier = Verifier(
            group, resources.elt_lake, resources.elt_spark, context.instance, on_log
        )
        verified = verifier.verify(asset, verification)
    context.log.info(f"{asset.name}: {verified.describe()}")
    return verified


def _make_check(asset: StreamAsset, group: Sequence[StreamAsset]) -> dg.AssetChecksDefinition:
    settings = asset.checks.source
    settled = settings.settled.total_seconds()
    options = ComparisonOptions(settings.columns, settled, settings.sample)
    verification = Verification(options, repairs=settings.repair)
    severity = (
        dg.AssetCheckSeverity.WARN if settings.severity == "warn" else dg.AssetCheckSeverity.ERROR
    )

    @dg.multi_asset_check(
        name=f"{asset.op_name}_{SOURCE}",
        specs=[CheckSpec(SOURCE, asset=asset.key, description=_DESCRIPTION)],
        can_subset=True,  # so that it may have no result
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        op_tags={**asset.controls.op_tags, **STEP_TAGS},
        pool=_pool(asset),
    )
    def check(context):  # type: ignore[no-untyped-def]
        if asset.key in context.job_def.asset_layer.selected_asset_keys:
            yield from _repeat_last_result(context.instance, asset)
            return
        verified = _verify(context, group, asset, verification)
        yield dg.AssetCheckResult(
            check_name=SOURCE,
            asset_key=asset.key,
            passed=verified.passed,
            severity=severity,
            description=verified.describe(),
            metadata=make_check_metadata(verified),
        )

    return check


def _repeat_last_result(
    instance: dg.DagsterInstance, asset: StreamAsset
) -> Iterator[dg.AssetCheckResult]:
    key = dg.AssetCheckKey(asset.key, SOURCE)
    # The latest record is that of this run, which has no result yet.
    history = instance.event_log_storage.get_asset_check_execution_history(
        key, limit=1, status=_WITH_RESULT
    )
    for record in history:
        last = None if record.event is None else record.event.asset_check_evaluation
        if last is not None:
            yield dg.AssetCheckResult(
                check_name=SOURCE,
                asset_key=asset.key,
                passed=last.passed,
                severity=last.severity,
                description=last.description,
                metadata=last.metadata,
            )


def _make_check_schedule(asset: StreamAsset) -> dg.ScheduleDefinition | None:
    cron = asset.checks.source.cron
    if cron is None or not asset.controls.enabled:
        return None
    key = dg.AssetCheckKey(asset.key, SOURCE)
    return _make_schedule(
        asset,
        "checks: source: cron",
        cron,
        lambda: dg.ScheduleDefinition(
            name=f"{asset.op_name}_{SOURCE}_schedule",
            target=dg.AssetSelection.checks(key),
            cron_schedule=cron,
            execution_timezone=asset.controls.timezone,
            tags=dict(asset.controls.run_tags),
        ),
    )


def _make_sweep_schedule(
    asset: StreamAsset, group: Sequence[StreamAsset]
) -> dg.ScheduleDefinition | None:
    """Return the schedule of the job that sweeps a stream."""
    settings = asset.sweep
    assert settings is not None and settings.sweep is not None
    cron, verification = settings.sweep, Verification.make_sweep(settings.at_most)

    @dg.op(
        name=f"{asset.op_name}_sweep_rows",
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        tags={**asset.controls.op_tags, **STEP_TAGS},
        pool=_pool(asset),
    )
    def sweep_rows(context: dg.OpExecutionContext) -> None:
        _verify(context, group, asset, verification)

    job = make_job(
        f"{asset.op_name}_sweep",
        sweep_rows,
        f"Removes rows of {asset.name} whose keys the source no longer has.",
        asset.controls.run_tags,
    )
    return _make_schedule(
        asset,
        "deletes: sweep",
        cron,
        lambda: dg.ScheduleDefinition(
            name=f"{asset.op_name}_sweep_schedule",
            job=job,
            cron_schedule=cron,
            execution_timezone=asset.controls.timezone,
        ),
    )


def _make_schedule(
    asset: StreamAsset, key: str, cron: str, make: Callable[[], dg.ScheduleDefinition]
) -> dg.ScheduleDefinition:
    try:
        return make()
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(
            f"stream {str(asset.stream.id)!r}: {key}: {cron!r} is not a valid cron expression",
            guidance='write five fields, for example "0 4 * * *"',
        ) from error
