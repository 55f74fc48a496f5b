"""What can be asked of a connection's source from the UI."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import enum

import dagster as dg

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.orchestration.automation.drift import Source, tell_drift
from elt_assets.orchestration.events.connector_log import hearing
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.pipeline.connectors import connect


class DriftPolicy(enum.Enum):
    """`tell` what has changed; or `update` the catalog, too."""

    tell = "tell"
    update = "update"


class DiscoverConfig(dg.Config):
    """`policy`: default, the one of the connection's `drift`, or else `tell`."""

    policy: DriftPolicy | None = None


def check_job(source: Source) -> dg.JobDefinition:
    """`<connection>_check`: fails if the source cannot be reached with the connection's config."""
    connection = source.connection

    @dg.op(name=f"{connection.name}_check_source")
    def check(context: dg.OpExecutionContext) -> None:
        with as_dagster_failure():
            connector = connect(connection, paths.staging(), hear=hearing(context.log))
            status = connector.check()
            message = status.message or ""
            if not status.succeeded:
                raise ConfigError(f"the check of connection {connection.name} failed: {message}")
            context.log.info(f"the check succeeded {message}".strip())

    @dg.job(
        name=f"{connection.name}_check",
        description=f"Can the source of {connection.name} be reached with its config?",
    )
    def job() -> None:
        check()

    return job


def discover_job(source: Source) -> dg.JobDefinition:
    """`<connection>_discover`: tells how the source differs from the catalog; `update` writes that anew."""
    connection = source.connection
    written = connection.drift.policy if connection.drift is not None else "tell"

    @dg.op(name=f"{connection.name}_discover_source")
    def discover(context: dg.OpExecutionContext, config: DiscoverConfig) -> None:
        policy = config.policy or DriftPolicy(written)
        with as_dagster_failure():
            tell_drift(source, context, update=policy is DriftPolicy.update)

    @dg.job(
        name=f"{connection.name}_discover",
        description=f"What has changed in the source of {connection.name}? (policy: {written})",
    )
    def job() -> None:
        discover()

    return job
