"""Comparison of the current catalog of a source with `catalog.json`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets import paths
from elt_assets.connection import Connection, ConnectionPlace, load_catalog, save_catalog
from elt_assets.connection.catalog_diff import Change, changes
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import build_connection_assets
from elt_assets.orchestration.events.connector_log import connector_lines
from elt_assets.orchestration.events.metadata import truncate
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import connect
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
        current = connect(source.connection, paths.staging(), on_log=on_log).discover()
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
