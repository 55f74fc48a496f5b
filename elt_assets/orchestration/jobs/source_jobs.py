"""Dagster jobs for the source of a connection: check the access, and discover the source's catalog."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import enum

import dagster as dg

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.orchestration.automation.drift import Source, report_drift
from elt_assets.orchestration.events.connector_log import connector_lines
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.jobs.each_stream import make_job
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.pipeline.connectors import connect


class DriftPolicy(enum.Enum):
    """Policy for changes in the source: `tell` reports them, `update` also writes `catalog.json`."""

    tell = "tell"
    update = "update"


class DiscoverConfig(dg.Config):
    """Config of the job."""

    # By default the policy in the connection's `drift`; if the connection has no `drift`, `tell`.
    policy: DriftPolicy | None = None


def check_job(source: Source) -> dg.JobDefinition:
    """Return the job `<connection>_check`. It fails if the connector cannot access the source."""
    connection = source.connection

    @dg.op(name=f"{connection.name}_check_source", tags=STEP_TAGS)
    def check(context: dg.OpExecutionContext) -> None:
        with as_dagster_failure(), connector_lines(context.log) as on_log:
            connector = connect(connection, paths.staging(), on_log=on_log)
            status = connector.check()
            message = status.message or ""
            if not status.succeeded:
                raise ConfigError(
                    f"the check of connection {connection.name} failed: {message}",
                    guidance="correct `source` in the YAML or the access to it, then run this job again",
                )
            context.log.info(f"the check succeeded {message}".strip())

    text = f"Checks that the source of {connection.name} can be accessed with its config."
    return make_job(f"{connection.name}_check", check, text, connection.run_tags)


def discover_job(source: Source) -> dg.JobDefinition:
    """Return the job `<connection>_discover`.

    It reports how the source's catalog differs from `catalog.json`. With the policy `update` it also writes
    the source's catalog to `catalog.json`.
    """
    connection = source.connection
    default = connection.drift.policy if connection.drift is not None else "tell"

    @dg.op(name=f"{connection.name}_discover_source", tags=STEP_TAGS)
    def discover(context: dg.OpExecutionContext, config: DiscoverConfig) -> None:
        policy = config.policy or DriftPolicy(default)
        with as_dagster_failure():
            report_drift(source, context, update=policy is DriftPolicy.update)

    text = f"Reports what changed in the source of {connection.name} (policy: {default})."
    return make_job(f"{connection.name}_discover", discover, text, connection.run_tags)
