"""What the source has now, beside what `catalog.json` says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from elt_assets import paths
from elt_assets.connection import CATALOG_FILE, Connection, load_catalog, save_catalog
from elt_assets.connection.catalog_diff import Change, changes
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import build_connection_assets
from elt_assets.orchestration.events.connector_log import hearing
from elt_assets.orchestration.events.metadata import few
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import connect
from elt_assets.protocol.airbyte.catalog import Catalog

DRIFT = "elt/drift"
"""On an observation: how the source's stream differs from the catalog, a list of sentences."""


@dataclass(frozen=True)
class Source:
    """A connection, the folder of its files, and its streams."""

    connection: Connection
    folder: Path
    assets: Sequence[StreamAsset]


def tell_drift(source: Source, context: dg.OpExecutionContext, *, update: bool) -> list[Change]:
    """Discover, and tell what has changed: of each configured stream by an observation and a warning, of
    the others in the log.

    Args:
        update: also write the catalog anew.

    Raises:
        EltError: the source could not be asked.
        ConfigError: the new catalog was not written, since the connection does not go with it.
    """
    known = load_catalog(source.folder)
    hear = hearing(context.log)
    present = connect(source.connection, paths.staging(), hear=hear).discover()
    found = changes(known, present)
    for asset in source.assets:
        told = [change.told for change in found if change.stream == asset.stream.id]
        if told:
            cut = few(told)
            context.log.warning(f"{asset.key.to_user_string()} has changed: {'; '.join(cut)}")
            metadata = {DRIFT: dg.MetadataValue.json(cut)}
            context.log_event(dg.AssetObservation(asset.key, metadata=metadata))
    configured = {asset.stream.id for asset in source.assets}
    for change in found:
        if change.stream not in configured:
            context.log.info(f"stream {str(change.stream)!r}, not configured: {change.told}")
    if not found:
        context.log.info(f"the source has what {CATALOG_FILE} says")
    if update and json.loads(present.to_json()) != json.loads(known.to_json()):
        context.log.info(_updated(source, present))
    return found


def _updated(source: Source, present: Catalog) -> str:
    try:
        build_connection_assets(source.connection, catalog=present)
    except ConfigError as error:
        raise ConfigError(
            f"{CATALOG_FILE} was not updated: the connection does not go with what the source has now\n"
            f"{error.message}",
            guidance=error.guidance or "correct defs.yaml, then discover again",
        ) from error
    path = save_catalog(source.folder, present)
    return f"wrote {path}; it takes effect when the definitions are loaded again"
