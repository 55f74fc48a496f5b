"""How Dagster shows errors of this project: of a step, and of a connection that cannot be loaded.

Ops, jobs, the IO manager and `table_reading` convert errors, and `sensors` and `new_data` shorten them;
`component` and `project` show connections that are broken.

First `as_dagster_failure`, then `broken_definitions`: with `on_broken_connection: skip` the other connections
load. The broken one is an asset with a failed check, whose description is the error. A sensor reports the
check when the error changes, so nobody needs to run it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator

import dagster as dg

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.machine_faults import translate
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.settings import settings


@contextlib.contextmanager
def as_dagster_failure() -> Iterator[None]:
    """Convert an error of this project, or a fault of the machine, to a `dagster.Failure`.

    Only a system failure keeps its cause with the stack trace, for maintainers. For other errors the stack
    trace is omitted, so the message is at the end of the output, where users look for it.

    An interruption is not retried. Dagster applies the retry policy of an op to it, so that Ctrl-C would
    start the sync again; an error of Dagster's own is exempt from the policy.
    """
    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interruption:
        raise Interrupted("the run was interrupted") from interruption
    except Exception as error:
        project_error = translate(error)
        if project_error is None:
            raise
        raise _failure(project_error) from (None if is_explained(project_error) else project_error)


def is_explained(error: EltError) -> bool:
    """Return whether the message of an error suffices, so that its stack trace is omitted."""
    return error.is_machine_fault or not isinstance(error, SystemFailure)


class Interrupted(dg.DagsterError, dg.DagsterExecutionInterruptedError):
    """The end of a step by a signal: the run is cancelled, and the retry policy of the op does not apply."""


def one_line(error: Exception) -> str:
    """Return an error as one line, for the reason of a skipped tick."""
    if isinstance(error, EltError):
        return " ".join(filter(None, [error.message, error.guidance]))
    return f"{type(error).__name__}: {error}"


def _failure(error: EltError) -> dg.Failure:
    """Return the failure with the message for the UI; only a transient error allows retries."""
    metadata = {"failure_type": error.failure_type}
    if error.guidance:
        metadata["what to do"] = error.guidance
    return dg.Failure(
        description=str(error),
        metadata=metadata,
        allow_retries=isinstance(error, TransientError),
    )


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
