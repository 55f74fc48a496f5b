"""The definitions of a connection that cannot be loaded, when `on_broken_connection` is `skip`.

The other connections load. The broken one is an asset with a failed check, whose description is the error. A
sensor reports the check when the error changes, so nobody needs to run it.
"""

from __future__ import annotations

import hashlib
import re

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.settings import settings

CHECK = "loads"
"""Name of the check of a connection that cannot be loaded."""


def skips_broken() -> bool:
    """Return whether a connection that cannot be loaded leaves the others as they are."""
    return settings().on_broken_connection == "skip"


def broken_definitions(name: str, error: ConfigError) -> dg.Definitions:
    """Return an asset for a connection that cannot be loaded, with a check that fails with the error."""
    valid_name = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    key = dg.AssetKey([valid_name])
    text = f"the connection {name!r} cannot be loaded: {error}"

    @dg.asset_check(
        asset=key,
        name=CHECK,
        description="Whether the connection can be loaded.",
        op_tags=STEP_TAGS,
    )
    def loads() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, description=text)

    @dg.sensor(
        name=f"{valid_name}__{CHECK}",
        description=f"Reports why the connection {name} cannot be loaded.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def report(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        stamp = hashlib.sha256(text.encode()).hexdigest()
        if context.cursor == stamp:
            return dg.SkipReason("this error is reported already")
        failure = dg.AssetCheckEvaluation(
            asset_key=key, check_name=CHECK, passed=False, metadata={}, description=text
        )
        return dg.SensorResult(asset_events=[failure], cursor=stamp)

    asset = dg.AssetSpec(key, description=text, group_name=valid_name, kinds={"airbyte"})
    return dg.Definitions(assets=[asset], asset_checks=[loads], sensors=[report])
