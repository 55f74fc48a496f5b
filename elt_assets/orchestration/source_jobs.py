"""Dagster jobs for the source of a connection: check the access, and compare its catalog with the file.

`component` adds them to the definitions of a connection.
"""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.
import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets import paths
from elt_assets.connection import Connection, ConnectionPlace, load_catalog, save_catalog
from elt_assets.connection.catalog_diff import Change, changes
from elt_assets.errors import ConfigError
from elt_assets.orchestration.build import build_connection_assets
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.metadata import truncate
from elt_assets.orchestration.report import connector_lines
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_jobs import make_job
from elt_assets.pipeline.connectors import make_source
from elt_assets.protocol.catalog import Catalog

DRIFT = "elt/drift"
"""Metadata key of an observation: differences between the source and the catalog, a list of sentences."""


@dataclass(frozen=True)
class Source:
    """A connection, where it is defined, and its streams."""

    connection: Connection
    place: ConnectionPlace
    assets: Sequence[StreamAsset]


def report_drift(source: Source, context: dg.OpExecutionContext, *, update: bool) -> list[Change]:
    """Discover the source and report what changed.

    A changed stream that is configured gets an observation and a warning; other streams get a log line.

    Args:
        update: whether to write the new catalog too.

    Raises:
        EltError: the catalog of the source could not be discovered.
        ConfigError: the new catalog is not written, because the connection cannot be loaded with it.
    """
    stored_catalog = load_catalog(source.place)
    with connector_lines(context.log) as on_log:
        current = make_source(source.connection, paths.staging(), on_log=on_log).discover()
    schema_changes = changes(stored_catalog, current)
    for asset in source.assets:
        sentences = truncate(
            [change.description for change in schema_changes if change.stream == asset.stream.id]
        )
        if sentences:
            context.log.warning(f"{asset.key.to_user_string()} has changed: {'; '.join(sentences)}")
            metadata = {DRIFT: dg.MetadataValue.json(sentences)}
            context.log_event(dg.AssetObservation(asset.key, metadata=metadata))
    configured = {asset.stream.id for asset in source.assets}
    for change in schema_changes:
        if change.stream not in configured:
            context.log.info(
                f"stream {str(change.stream)!r} (not configured): {change.description}"
            )
    if not schema_changes:
        context.log.info(f"the source matches {source.place.catalog.name}")
    if update and json.loads(current.to_json()) != json.loads(stored_catalog.to_json()):
        context.log.info(_update(source, current))
    return schema_changes


def _update(source: Source, current: Catalog) -> str:
    """Write the current catalog and return a line for the log."""
    try:
        build_connection_assets(source.connection, catalog=current)
    except ConfigError as error:
        raise ConfigError(
            f"{source.place.catalog.name} was not updated: "
            f"the connection cannot be loaded with the new catalog\n{error.message}",
            guidance=error.guidance or "correct defs.yaml, then discover again",
        ) from error
    path = save_catalog(source.place, current)
    return f"wrote {path}; it takes effect when the definitions are loaded again"


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
            connector = make_source(connection, paths.staging(), on_log=on_log)
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
