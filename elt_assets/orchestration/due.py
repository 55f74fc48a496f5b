"""When a stream is stale: by the freshness or the schedule that its connection has for it, by nothing else.

`status` asks it for each stream; the alerts take what `status` says.

A person has said how fresh a stream is to be, in one of these ways, of which the first that is there decides:

1. `freshness` (Dagster's policy of the asset): the largest age of the last complete sync, or deadlines.
2. `schedule`, or `automation: on_cron`: the times of syncs. A tick counts as missed when no complete sync has
   ended since then, though there was time for one: `PATIENCE`, or twice the longest sync of late. While a
   sync is in progress, the tick before the last one decides.

A stream without any of them, or one that is not enabled, is never stale: nobody has said when it is to be
synced. Test: `tests/orchestration/test_due.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

# What Dagster makes of `dg.FreshnessPolicy`, and by what its schedules tick; they have no public names.
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._utils.schedules import reverse_cron_string_iterator

from elt_assets.connection.automation import OnCron
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.translator import find_automation

PATIENCE = dt.timedelta(minutes=15)
"""Time that a sync has at the least, from the tick of its schedule until the stream is stale."""


@dataclass(frozen=True)
class DueRule:
    """When a stream is to be synced. One of `limit` and `cron` is set.

    `text`: as the connection says it. `within`: of deadlines, the time before each in which a sync must end.
    """

    text: str
    limit: dt.timedelta | None = None
    cron: str | None = None
    timezone: str = "UTC"
    within: dt.timedelta | None = None

    def find_deadline(
        self, time: dt.datetime, *, seconds: float = 0.0, is_running: bool = False
    ) -> dt.datetime:
        """Return the time after which the last complete sync of a stream must have ended, to be fresh.

        Args:
            time: the present.
            seconds: how long the stream's longest sync of late took.
            is_running: whether a sync is in progress.
        """
        if self.limit is not None:
            return time - self.limit
        if self.within is not None:
            return next(self.list_ticks(time)) - self.within
        patience = max(PATIENCE, 2 * dt.timedelta(seconds=seconds))
        ticks = self.list_ticks(time - patience)
        last = next(ticks)
        return next(ticks) if is_running else last

    def list_ticks(self, time: dt.datetime) -> Iterator[dt.datetime]:
        """Yield the ticks up to a time, the newest first."""
        assert self.cron is not None
        for tick in reverse_cron_string_iterator(time.timestamp(), self.cron, self.timezone):
            yield tick.astimezone(dt.timezone.utc)


def find_rule(asset: StreamAsset) -> DueRule | None:
    """Return when a stream is to be synced; None if its connection does not say it, or it is not enabled."""
    if not asset.controls.enabled:
        return None
    return _find_policy(asset) or _find_schedule(asset)


def _find_policy(asset: StreamAsset) -> DueRule | None:
    policy = asset.spec.freshness_policy
    if isinstance(policy, TimeWindowFreshnessPolicy):
        limit = policy.fail_window.to_timedelta()
        return DueRule(f"freshness: at most {_describe(limit)} old", limit=limit)
    if isinstance(policy, CronFreshnessPolicy):
        within = policy.serializable_lower_bound_delta.to_timedelta()
        text = f'freshness: {_describe(within)} before "{policy.deadline_cron}" ({policy.timezone})'
        return DueRule(text, cron=policy.deadline_cron, timezone=policy.timezone, within=within)
    return None


def _find_schedule(asset: StreamAsset) -> DueRule | None:
    connection, own, timezone = asset.connection, asset.settings.schedule, asset.controls.timezone
    cron = connection.schedule if own is None else own
    if cron is not None:
        zone = (connection.timezone if own is None else timezone) or "UTC"
        return DueRule(f'schedule: "{cron}" ({zone})', cron=cron, timezone=zone)
    automation = find_automation(connection, asset.settings)
    if isinstance(automation, OnCron):
        zone = automation.timezone or timezone or "UTC"
        text = f'automation: on_cron "{automation.on_cron}" ({zone})'
        return DueRule(text, cron=automation.on_cron, timezone=zone)
    return None


def _describe(time: dt.timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:g} h" if hours >= 1 else f"{hours * 60:g} min"
