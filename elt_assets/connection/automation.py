"""When streams are to be synced, as people write it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.config_model import ConfigModel

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(value: Any) -> Any:
    """`90m` as a time span."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)
    if found is None or not float(found[1]):
        raise ValueError("write a time as `30m`, `6h` or `1d`")
    return dt.timedelta(**{_UNITS[found[2]]: float(found[1])})


Duration = Annotated[
    dt.timedelta, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["6h"]})
]


class OnCron(ConfigModel):
    """Sync at each tick of a cron schedule, once what is upstream is up to date."""

    on_cron: str
    timezone: str = "UTC"


def _automation(value: Any) -> Any:
    """`on_cron "0 6 * * *"` in one line, or as a mapping."""
    if isinstance(value, str) and value.startswith("on_cron"):
        return {"on_cron": value.removeprefix("on_cron").strip().strip("\"'")}
    if value is None or value == "eager" or isinstance(value, OnCron | Mapping):
        return value
    raise ValueError('write `eager`, `on_cron "0 6 * * *"`, or leave it out')


Automation = Annotated[
    Literal["eager"] | OnCron | None,
    BeforeValidator(_automation),
    WithJsonSchema({"type": ["string", "null"], "examples": ["eager", 'on_cron "0 6 * * *"']}),
]


class Freshness(ConfigModel):
    """How old a stream may become: `fail_after`, and `warn_after` before that; or by when, of each `cron`
    tick, it must have been synced, `within` which time."""

    fail_after: Duration | None = None
    warn_after: Duration | None = None
    cron: str | None = None
    within: Duration | None = None
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _says_one_thing(self) -> Freshness:
        by_age, by_cron = self.fail_after is not None, self.cron is not None
        if (
            by_age == by_cron
            or (self.within is not None) != by_cron
            or (self.warn_after and by_cron)
        ):
            raise ValueError(
                "write `fail_after: 24h` (and `warn_after` if you like), or `cron` and `within`"
            )
        return self


class NewData(ConfigModel):
    """A look, now and then, whether the source has anything new; streams that have are synced."""

    every: Duration = Field(default=dt.timedelta(minutes=5))


class Retry(ConfigModel):
    """How often a sync that failed for something that passes is tried again, and how long after; each
    time twice as long. What only a person can mend is not tried again."""

    attempts: int = Field(default=2, ge=0, le=20)
    delay: Duration = dt.timedelta(seconds=10)


class Drift(ConfigModel):
    """A look at what the source has, now and then. `tell`: what changed is an event of the stream and a
    warning; `update`: `catalog.json` is written anew too."""

    policy: Literal["tell", "update"] = "tell"
    every: Duration = Field(default=dt.timedelta(hours=24))
