"""A schedule of streams by a cron expression, of syncs or of refreshes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.orchestration.streams import StreamAsset

Requests = Callable[[dg.ScheduleEvaluationContext], Iterator[dg.RunRequest]]
"""Yields the run requests of a tick."""


@dataclass(frozen=True)
class Cron:
    """A cron expression in `defs.yaml`.

    Attributes:
        key: the setting that has it: `schedule` or `full_refresh`.
        example: a valid expression, for the error.
    """

    key: str
    expression: str
    timezone: str | None
    example: str


def make_schedule(
    name: str,
    cron: Cron,
    targets: Sequence[StreamAsset],
    make_requests: Callable[[Sequence[StreamAsset]], Requests],
) -> dg.ScheduleDefinition | None:
    """Return a schedule for the enabled streams among the targets; None if there are none.

    Raises:
        ConfigError: the cron expression is not valid, also if no stream is enabled.
    """
    assets = [asset for asset in targets if asset.controls.enabled]
    try:
        schedule = dg.ScheduleDefinition(
            name=name,
            target=dg.AssetSelection.assets(*(asset.key for asset in assets)),
            cron_schedule=cron.expression,
            execution_timezone=cron.timezone,
            execution_fn=make_requests(assets),
        )
    except dg.DagsterInvalidDefinitionError as error:
        own = [asset for asset in targets if getattr(asset.settings, cron.key) is not None]
        where = f"stream {str(own[0].stream.id)!r}: " if own else ""
        raise ConfigError(
            f"{where}{cron.key}: {cron.expression!r} is not a valid cron expression",
            guidance=f'write five fields, for example "{cron.example}"',
        ) from error
    return schedule if assets else None
