"""Requests for runs, and for new partitions: in batches, and bounded in each tick.

A run costs a Spark session, so partitions share runs; a request costs Dagster a query, so a tick has limits,
and what is above them is left to the next tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets.connection.partitions import MultiPartitions, TimePartitions
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.streams import StreamAsset, group_by_run_tags

MAX_PER_RUN = 1_000
"""Maximum number of partitions in a run that a sensor or a schedule requests."""
MAX_RUNS = 100
"""Maximum number of runs that a tick of a sensor requests."""
MAX_ADDED = 10_000
"""Maximum number of partitions that a tick adds without a run."""
MAX_IN_REQUEST = 1_000
"""Maximum number of partitions in one request to add them: Dagster looks them up in one query, and SQLite
limits the number of values in a query."""
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
"""Tags of a run of several partitions, as Dagster's backfills set them: the first one and the last one."""


@dataclass(frozen=True)
class NewPartitions:
    """The new partitions of a tick. `more`: number of partitions that are left to the next tick."""

    keys: Sequence[str]
    more: int
    runs: Sequence[dg.RunRequest]
    additions: Sequence[dg.AddDynamicPartitionsRequest]

    @property
    def description(self) -> str:
        if not self.keys:
            return "there are no new partitions"
        more = f"; {self.more:,} more at the next tick" if self.more else ""
        return f"added {len(self.keys):,} partitions{more}"

    def result(self, cursor: str | None) -> dg.SensorResult:
        """Return the result of the tick."""
        return dg.SensorResult(
            run_requests=self.runs,
            skip_reason=None if self.runs else self.description,
            dynamic_partitions_requests=self.additions,
            cursor=cursor,
        )


def add_partitions(
    asset: StreamAsset,
    candidates: Iterable[str],
    context: dg.SensorEvaluationContext,
    *,
    materialize: bool,
) -> NewPartitions:
    """Return the first keys that Dagster lacks, as partitions to be added, and the requests of their runs.

    Args:
        candidates: the keys that the source has, in its order. A warning names those that cannot be keys.
    """
    definition = partitions.dynamic_definition(asset.partitions)
    assert definition.name is not None
    existing = set(context.instance.get_dynamic_partitions(definition.name))
    missing = [key for key in candidates if key not in existing]
    new = [key for key in missing if partitions.is_valid_key(key, asset.settings.partitions)]
    if len(new) < len(missing):
        invalid = sorted({*missing} - {*new})[:10]
        context.log.warning(f"values that cannot be partition keys: {invalid}")
    limit = min(MAX_PER_RUN, MAX_RUNS * _per_run(asset)) if materialize else MAX_ADDED
    keys = new[:limit]
    runs: list[dg.RunRequest] = []
    if materialize:
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            runs = list(run_requests(asset, select_newest_window(asset, keys)))
    additions = [definition.build_add_request(part) for part in _parts(keys, MAX_IN_REQUEST)]
    return NewPartitions(keys, len(new) - len(keys), runs, additions)


def select_newest_window(asset: StreamAsset, keys: Sequence[str]) -> Sequence[str]:
    """Return the partitions of some keys: the keys, or for a stream with windows too, their pairs.

    The pairs are those of the newest window that is over at the time of Dagster's partition loading context.
    """
    configured, definition = asset.settings.partitions, asset.partitions
    if not isinstance(configured, MultiPartitions):
        return keys
    assert isinstance(definition, dg.MultiPartitionsDefinition)
    windows = definition.get_partitions_def_for_dimension(partitions.WINDOW)
    window = newest_window(configured.window, windows)
    if window is None:
        return []
    return [
        str(dg.MultiPartitionKey({partitions.KEY: key, partitions.WINDOW: window})) for key in keys
    ]


def newest_window(configured: TimePartitions, windows: dg.PartitionsDefinition[Any]) -> str | None:
    """Return the newest window that is over; None if there is none, or if it would begin after the `end`.

    After the `end` of the partitions, their last window stays the newest of them for ever. It is old as soon
    as another window would be over.
    """
    endless = partitions.definition(configured.model_copy(update={"end": None}), "")
    newest = endless.get_last_partition_key()
    return newest if newest == windows.get_last_partition_key() else None


def run_requests(
    asset: StreamAsset, keys: Sequence[str], run_key: str | None = None
) -> Iterator[dg.RunRequest]:
    """Yield the requests of runs that together materialise some partitions of a stream.

    Each run has `partitions_per_run` partitions; by default, `MAX_PER_RUN`.

    Args:
        keys: partitions that follow each other in Dagster's list; with windows, all in one window.
        run_key: beginning of the run keys; None for requests without a run key.
    """
    for part in _parts(keys, _per_run(asset)):
        is_single = len(part) == 1
        ends = {} if is_single else dict(zip(_RANGE, (part[0], part[-1]), strict=True))
        yield dg.RunRequest(
            run_key=None if run_key is None else f"{run_key} {part[0]}",
            asset_selection=[asset.key],
            partition_key=part[0] if is_single else None,
            tags={**asset.controls.run_tags, **ends},
        )


def whole_requests(
    assets: Sequence[StreamAsset],
    run_key: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[dg.RunRequest]:
    """Yield the requests of runs of streams without partitions: one for all streams with the same run tags.

    Args:
        run_key: beginning of the run keys; None for requests without a run key.
        config: the run config of the op of each stream.
    """
    for number, group in enumerate(group_by_run_tags(assets)):
        further = f" {group[0].key.to_user_string()}" if number else ""
        ops = {asset.step_name: {"config": dict(config)} for asset in group} if config else {}
        yield dg.RunRequest(
            run_key=None if run_key is None else f"{run_key}{further}",
            asset_selection=[asset.key for asset in group],
            run_config={"ops": ops} if ops else {},
            tags=group[0].controls.run_tags,
        )


def _per_run(asset: StreamAsset) -> int:
    configured = asset.settings.partitions
    assert configured is not None
    inner = configured.key if isinstance(configured, MultiPartitions) else configured
    return inner.partitions_per_run or MAX_PER_RUN


def _parts(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))
