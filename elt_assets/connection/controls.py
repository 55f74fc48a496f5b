"""Run controls of a connection and of its streams: what starts a run, when, and with which tags and pool."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from elt_assets.connection.automation import TimeZone
from elt_assets.connection.config_model import ConfigModel, OtherForm

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
