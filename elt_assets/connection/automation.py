"""Settings for what starts a run of a stream, when and how: schedules, conditions, retries, freshness, tags.

`orchestration` makes Dagster's schedules, sensors, automation conditions and retries of them, and
`pipeline.stream` has the `RunControls` of a stream.

First the types of durations and zones, then a model for each key (`automation`, `freshness`, `new_data`,
`follow`, `retry`, `drift`), and at the end `RunControls`, which a connection has for all its streams, and a
stream for itself.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.config_model import ConfigModel, OtherForm

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


MAX_DURATION = dt.timedelta(days=10_000)
"""Longest duration: with a longer one, the time at which something is due may be no date, and Dagster's
interface cannot show the interval of a sensor, whose seconds it takes as an integer of 32 bits."""


def _duration(value: Any) -> Any:
    """Convert a text such as `90m` to a time span. Return a value that is not text unchanged, for pydantic.

    Raises:
        ValueError: the text is not a number with a unit.
    """
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)
    if match is None:
        raise ValueError("write a duration as `30m`, `6h` or `1d`")
    try:
        return dt.timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        return dt.timedelta.max


def _check_length(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta() <= value <= MAX_DURATION:
        raise ValueError(
            f"write a duration of up to {MAX_DURATION.days:,} days, as `30m`, `6h` or `1d`"
        )
    return value


def _check_positive(value: dt.timedelta) -> dt.timedelta:
    if not value:
        raise ValueError("write a duration above 0, as `30m`, `6h` or `1d`")
    return value


Pause = Annotated[
    dt.timedelta,
    BeforeValidator(_duration),
    AfterValidator(_check_length),
    WithJsonSchema({"type": "string", "examples": ["6h"]}),
]
"""A duration that may be 0."""

Duration = Annotated[Pause, AfterValidator(_check_positive)]


_timezones = cache(available_timezones)
"""Returns the names of all time zones. Without the cache, each partitioned stream searches the folders of the
database once more, which takes longer than all other checks of its partitions."""


def _check_timezone(value: str) -> str:
    if value not in _timezones():
        raise ValueError(f"{value!r} is not a time zone; write a name such as 'Europe/Berlin'")
    return value


TimeZone = Annotated[str, AfterValidator(_check_timezone)]
"""The name of a time zone in the database of IANA."""


class OnCron(ConfigModel):
    """A sync after each tick of a cron schedule, when every upstream asset was updated since that tick.

    The asset of the source does not count: a stream without other upstream assets is synced at the tick.
    """

    on_cron: str
    """Cron schedule, as `0 6 * * *`."""
    timezone: TimeZone | None = None
    """Time zone of the schedule; default: `timezone` of the stream."""


def _automation(value: Any) -> Any:
    """Convert the text `on_cron "0 6 * * *"` to a mapping. Return `eager`, None and mappings unchanged.

    Raises:
        ValueError: the value is none of these.
    """
    if isinstance(value, str) and value.startswith("on_cron"):
        return {"on_cron": value.removeprefix("on_cron").strip().strip("\"'")}
    if value is None or value == "eager" or isinstance(value, OnCron | Mapping):
        return value
    raise ValueError('write `eager` or `on_cron "0 6 * * *"`, or leave the key out')


Automation = Annotated[
    Literal["eager"] | OnCron | None,
    BeforeValidator(_automation),
    OtherForm(type="string", pattern="^on_cron", examples=['on_cron "0 6 * * *"']),
]
"""The automation condition of a stream; None if there is none.

`eager` is Dagster's condition of that name: a sync each time that an upstream asset is updated, the source's
asset included, or when the newest partition has no data yet.
"""


class Freshness(ConfigModel):
    """The limit after which a stream counts as out of date: a maximum age, or deadlines.

    Maximum age: the last sync is at most `fail_after` ago; optionally, `warn_after` gives an earlier warning.
    Deadlines: each tick of `cron` is a deadline; there must be a sync in the period of length `within` that
    ends at the tick.
    """

    fail_after: Duration | None = None
    """Age of the last sync after which the stream is out of date."""
    warn_after: Duration | None = None
    """Age of the last sync after which there is a warning."""
    cron: str | None = None
    """Cron schedule of deadlines; goes with `within`."""
    within: Duration | None = None
    """Length of the period before a deadline in which a sync must end."""
    timezone: TimeZone | None = None
    """Time zone of `cron`; default: `timezone` of the stream."""

    @model_validator(mode="after")
    def _check_one_limit(self) -> Freshness:
        by_age, by_cron = self.fail_after is not None, self.cron is not None
        if (
            by_age == by_cron
            or (self.within is not None) != by_cron
            or (self.warn_after and by_cron)
        ):
            raise ValueError(
                "write either `fail_after: 24h`, optionally with `warn_after`, or both `cron` and `within`"
            )
        return self


class NewData(ConfigModel):
    """A check for new data in the source, and a sync of the streams that have new data."""

    every: Duration = dt.timedelta(minutes=5)
    """Time between two checks."""
    read: bool = False
    """Read the start of a stream whose source cannot be asked for new data."""


MAX_FOLLOW = dt.timedelta(days=1)
"""Longest time that one run follows a log: Dagster keeps the events of a run together."""


class Follow(ConfigModel):
    """Runs that follow the log of a database: one run commits what changes, again and again."""

    for_: Duration = Field(
        default=dt.timedelta(minutes=55),
        alias="for",
        description="Time that a run follows the log, up to a day.",
    )
    every: Duration = dt.timedelta(seconds=5)
    """Time between two looks at the log; what has changed is one commit of each table."""
    report: Duration = dt.timedelta(minutes=1)
    """Least time between two materialisations of a stream; between them, commits are observations."""

    @model_validator(mode="after")
    def _check_times(self) -> Follow:
        if self.for_ > MAX_FOLLOW:
            raise ValueError(
                "`for` is longer than a day; write up to `24h`, and let a `schedule` start the next run"
            )
        if self.every > self.for_:
            raise ValueError(
                "`every` is longer than `for`, so the log would be read once; write a longer `for`, or leave "
                "out `follow` and write a `schedule`"
            )
        return self


class Retry(ConfigModel):
    """Retries of a sync that failed with a transient error. Other failures are not retried.

    Retry n waits (2^n - 1) times `delay`. Each wait is varied at random by up to one `delay`.
    """

    attempts: int = Field(default=2, ge=0, le=20)
    """Number of retries after the first attempt; 0 is none."""
    delay: Pause = dt.timedelta(seconds=10)
    """Time before the first retry; it doubles with each further one."""


class Drift(ConfigModel):
    """A comparison of the source with `catalog.json`.

    The policy `tell` informs the users of Dagster: each changed stream gets an event of its asset, and a
    warning in the log of the run. `update` does the same, and rewrites `catalog.json` too.
    """

    policy: Literal["tell", "update"] = "tell"
    """Report the changes, or also rewrite `catalog.json`."""
    every: Duration = dt.timedelta(hours=24)
    """Time between two comparisons."""


_TAG = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
"""Pattern of a key of Dagster's tags."""
_SYSTEM_TAG = "dagster/"
_RUN_SETTINGS = frozenset(
    f"{_SYSTEM_TAG}{name}"
    for name in (
        "isolation",
        "max_retries",
        "max_runtime",
        "priority",
        "retry_on_asset_or_op_failure",
        "retry_strategy",
    )
)
"""Tags of Dagster's own that a user may give to a run. Dagster sets the others of its namespace itself."""
_CONCURRENCY_KEY = "dagster/concurrency_key"


def _check_pool(name: str) -> str:
    if not name or any(map(str.isspace, name)):
        raise ValueError(f"{name!r} is not the name of a pool: write a text without spaces")
    return name


def _check_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check that Dagster can store tags: their keys, and values that are JSON."""
    for key, value in tags.items():
        if not _TAG.fullmatch(key):
            raise ValueError(
                f"{key!r} is not a valid key of a tag: write up to 63 letters, digits, `_`, `-` and `.`, "
                "optionally with a namespace and `/` before them"
            )
        try:
            is_json = value is not None and json.loads(json.dumps(value)) == value
        except TypeError:
            is_json = False
        if not is_json:
            raise ValueError(f"the value of {key!r} is not JSON; write a text, in quotes")
    return tags


def _check_op_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    if _CONCURRENCY_KEY in tags:
        raise ValueError(f"write `pool: NAME` in place of the tag {_CONCURRENCY_KEY!r}")
    return _check_tags(tags)


def _check_run_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in tags:
        if key.startswith(_SYSTEM_TAG) and key not in _RUN_SETTINGS:
            raise ValueError(
                f"Dagster sets the tag {key!r} itself; of its namespace you can set "
                + ", ".join(sorted(_RUN_SETTINGS))
            )
    return _check_tags(tags)


Pool = Annotated[str, AfterValidator(_check_pool)]
OpTags = Annotated[dict[str, Any], AfterValidator(_check_op_tags)]
RunTags = Annotated[dict[str, Any], AfterValidator(_check_run_tags)]


class FullRefresh(ConfigModel):
    """A refresh on a schedule: the stream is read from the beginning, beside its other syncs.

    `truncate` replaces the rows of the table at the end of the refresh, `retain` keeps them.
    """

    cron: str
    """Cron schedule, as `0 3 * * 0`."""
    refresh: Literal["truncate", "retain"] = "truncate"
    """`truncate` replaces the rows of the table at the end, `retain` keeps them."""


class RunControls(ConfigModel):
    """Settings that a connection has for all its streams, and a stream for itself."""

    enabled: bool = True
    """`false`: no schedule, sensor or automation condition starts a sync; runs by hand work."""
    timezone: TimeZone | None = None
    """Time zone of `schedule` and `full_refresh`, and of cron schedules in `automation` and `freshness`
    that name no other; default: UTC."""
    pool: Pool | None = None
    """Dagster's concurrency pool of the operation, in place of the stream's own."""
    op_tags: OpTags = Field(default_factory=dict)
    """Tags of the operation, for example `dagster-k8s/config` for its pod."""
    run_tags: RunTags = Field(default_factory=dict)
    """Tags of the runs that schedules and sensors request, and of the jobs of the connection."""
    full_refresh: Annotated[
        FullRefresh | None,
        BeforeValidator(lambda value: {"cron": value} if isinstance(value, str) else value),
        OtherForm(type="string"),
    ] = None
    """Cron schedule of refreshes, which read the stream from the beginning."""

    def over(self, general: RunControls) -> RunControls:
        """Return these controls; a value that they do not set comes from `general`.

        Tags are added to those of `general`. What `general` disables stays disabled.
        """
        own = self.model_fields_set
        return RunControls.model_construct(
            enabled=self.enabled and general.enabled,
            timezone=(self if "timezone" in own else general).timezone,
            pool=(self if "pool" in own else general).pool,
            op_tags={**general.op_tags, **self.op_tags},
            run_tags={**general.run_tags, **self.run_tags},
            full_refresh=(self if "full_refresh" in own else general).full_refresh,
        )
