"""Settings of a connection for automation, freshness, new data, retries and drift."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.config_model import ConfigModel

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(value: Any) -> Any:
    """Convert a text such as `90m` to a time span. Return any other type unchanged."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)
    if found is None or not float(found[1]):
        raise ValueError("write a duration as `30m`, `6h` or `1d`")
    return dt.timedelta(**{_UNITS[found[2]]: float(found[1])})


Duration = Annotated[
    dt.timedelta, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["6h"]})
]


class OnCron(ConfigModel):
    """A sync at each tick of a cron schedule, as soon as the upstream assets are up to date."""

    on_cron: str
    timezone: str = "UTC"


def _automation(value: Any) -> Any:
    """Convert the text `on_cron "0 6 * * *"` to a mapping. Return other valid values unchanged."""
    if isinstance(value, str) and value.startswith("on_cron"):
        return {"on_cron": value.removeprefix("on_cron").strip().strip("\"'")}
    if value is None or value == "eager" or isinstance(value, OnCron | Mapping):
        return value
    raise ValueError('write `eager` or `on_cron "0 6 * * *"`, or leave the key out')


Automation = Annotated[
    Literal["eager"] | OnCron | None,
    BeforeValidator(_automation),
    WithJsonSchema({"type": ["string", "null"], "examples": ["eager", 'on_cron "0 6 * * *"']}),
]


class Freshness(ConfigModel):
    """Limits on the age of a stream, by age or by deadline.

    By age: `fail_after`, optionally with an earlier `warn_after`. By deadline: the stream must be synced in
    the time `within` before each tick of `cron`.
    """

    fail_after: Duration | None = None
    warn_after: Duration | None = None
    cron: str | None = None
    within: Duration | None = None
    timezone: str = "UTC"

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
    """A check for new data in the source, made once in `every`. Streams with new data are synced."""

    every: Duration = Field(default=dt.timedelta(minutes=5))


class Retry(ConfigModel):
    """Retries of a sync that failed with a transient error. Other failures are not retried.

    `attempts`: number of retries. `delay`: time before the first retry; it doubles with each retry.
    """

    attempts: int = Field(default=2, ge=0, le=20)
    delay: Duration = dt.timedelta(seconds=10)


class Drift(ConfigModel):
    """A comparison of the source with `catalog.json`, made once in `every`.

    `tell` records each changed stream as an event and logs a warning. `update` also rewrites `catalog.json`.
    """

    policy: Literal["tell", "update"] = "tell"
    every: Duration = Field(default=dt.timedelta(hours=24))
