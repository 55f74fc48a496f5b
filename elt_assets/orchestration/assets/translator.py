"""How a connection's streams look in Dagster: the specs of their assets.

Dagster's integrations have a translator each; this is ours. Override `get_asset_spec` to give streams
other keys, groups, tags, owners …; what is not about looks (partitions, tables) stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from elt_assets.connection import Connection, as_landed
from elt_assets.connection.automation import Freshness, OnCron
from elt_assets.connection.models import Destination, Source, Stream
from elt_assets.errors import ConfigError
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.write.stream_tables import DEAD_LETTER_SUFFIX
from elt_assets.lake.write.write_spec import declared_schema
from elt_assets.orchestration.events.columns import column_schema
from elt_assets.orchestration.events.metadata import DESTINATION, HISTORY, TABLE_PATH
from elt_assets.orchestration.streams import (
    StreamAsset,
    default_asset_key,
    partitions_definition,
)
from elt_assets.pipeline.connection_stream import table_path
from elt_assets.protocol.airbyte.catalog import INCREMENTAL, ConfiguredStream
from elt_assets.runner.kinds.registry import KINDS

COMPANION_OF = "elt/companion_of"
"""On the definition: the stream whose history or dead letter it is."""


class ConnectionTranslator:
    """The default looks of a connection's assets."""

    def get_asset_spec(self, connection: Connection, stream: ConfiguredStream) -> dg.AssetSpec:
        """The spec of one stream's asset."""
        written = connection.wanted(stream.id)
        path = table_path(connection, stream)
        landed = as_landed(connection, stream)
        schema = declared_schema(landed, partitioned=written.partitions is not None)
        source, lands = self.get_source_spec(connection), connection.destination is None
        table = {"dagster/table_name": ".".join(path), "dagster/storage_kind": "delta"}
        return dg.AssetSpec(
            default_asset_key(connection, stream),
            deps=[source],
            group_name=connection.group or connection.name,
            description=_description(written, stream),
            kinds={"spark", "delta"} if lands else {"airbyte"},
            owners=written.owners if written.owners is not None else connection.owners,
            tags={**connection.tags, **written.tags},
            partitions_def=partitions_definition(connection, stream),
            automation_condition=_automation(connection, written, source.key),
            freshness_policy=_freshness(written.freshness or connection.freshness),
            metadata={
                TABLE_PATH: "/".join(path),
                HISTORY: written.history,
                "elt/connection": connection.name,
                "elt/policy": stream.destination_sync_mode,
                "elt/sync_mode": stream.sync_mode,
                "dagster/column_schema": column_schema(schema, landed),
                **(table if lands else {DESTINATION: _writer(connection)}),
            },
        )

    def get_source_spec(self, connection: Connection) -> dg.AssetSpec:
        """The spec of the system that the connection reads from, upstream of all its streams."""
        source = connection.source
        return dg.AssetSpec(
            [connection.name],
            group_name=connection.group or connection.name,
            description=f"the system that connection {connection.name} reads from, by {_reader(connection)}",
            kinds={KINDS[source.kind].label},
            owners=connection.owners,
            tags=connection.tags,
            metadata={"elt/connection": connection.name, "elt/source": _reader(connection)},
        )


def companion_specs(asset: StreamAsset) -> list[dg.AssetSpec]:
    """The specs of a stream's history, if it keeps one, and of its dead letter: tables that its own
    materialisation writes."""
    if asset.connection.destination is not None:
        return []
    spec, companions = asset.spec, {DEAD_LETTER_SUFFIX: "the records of {} that were not accepted"}
    if asset.wanted.history:
        companions[HISTORY_SUFFIX] = "every version of the rows of {} (SCD type 2)"
    return [
        dg.AssetSpec(
            companion_key(spec.key, suffix),
            deps=[spec.key],
            group_name=spec.group_name,
            description=text.format(spec.key.to_user_string()),
            kinds={"spark", "delta"},
            owners=spec.owners,
            tags={
                name: text for name, text in spec.tags.items() if not name.startswith("dagster/")
            },
            metadata={
                TABLE_PATH: "/".join(asset.table_path) + suffix,
                COMPANION_OF: spec.key.to_user_string(),
                "dagster/table_name": asset.table_name + suffix,
                "dagster/storage_kind": "delta",
            },
        )
        for suffix, text in companions.items()
    ]


def companion_key(key: dg.AssetKey, suffix: str) -> dg.AssetKey:
    """The key of a stream's history or dead letter."""
    return dg.AssetKey([*key.path[:-1], key.path[-1] + suffix])


def _reader(connection: Connection) -> str:
    """What reads the source, as the YAML names it; no config, which may hold secrets."""
    return _named(connection.source)


def _writer(connection: Connection) -> str:
    """What writes to another destination than the lake."""
    return "" if connection.destination is None else _named(connection.destination)


def _named(connector: Source | Destination) -> str:
    value = connector.value
    return f"{connector.kind} {value if isinstance(value, str) else value[0]}"


def _description(written: Stream, stream: ConfiguredStream) -> str:
    """As the connection says it, or else the source's schema, and how it is synced."""
    schema: Mapping[str, Any] = stream.stream.json_schema
    found = (written.description, schema.get("description"), schema.get("title"))
    texts = [text for text in found if isinstance(text, str)][:1]
    key = ", ".join(".".join(path) for path in stream.key)
    told = f"Stream `{stream.id}`: {stream.sync_mode}, {stream.destination_sync_mode}"
    told += f"; key {key}" if key and stream.deduplicates else ""
    if stream.sync_mode == INCREMENTAL and stream.cursor:
        told += f"; cursor {'.'.join(stream.cursor)}"
    return "\n\n".join([*texts, f"{told}."])


def _automation(
    connection: Connection, written: Stream, source: dg.AssetKey
) -> dg.AutomationCondition[Any] | None:
    """Nobody need tell Dagster of the source: a stream does not wait for it, but follows where it is told."""
    found = written.automation
    if found is None and "automation" not in written.model_fields_set:
        found = connection.automation
    if found is None:
        return None
    beside = dg.AssetSelection.assets(source)
    if not isinstance(found, OnCron):
        missing = dg.AutomationCondition.any_deps_missing()
        return dg.AutomationCondition.eager().replace(missing, missing.ignore(beside))
    try:
        return dg.AutomationCondition.on_cron(found.on_cron, found.timezone).ignore(beside)
    except Exception as error:  # of Dagster's own check of the expression
        raise ConfigError(
            f"automation: {found.on_cron!r} is no cron expression",
            guidance='write five fields, as in on_cron "0 6 * * *"',
        ) from error


def _freshness(written: Freshness | None) -> dg.FreshnessPolicy | None:
    if written is None:
        return None
    if written.fail_after is not None:
        return dg.FreshnessPolicy.time_window(written.fail_after, written.warn_after)
    assert written.cron is not None and written.within is not None
    try:
        return dg.FreshnessPolicy.cron(written.cron, written.within, written.timezone)
    except Exception as error:  # of Dagster's own check of the expression and the time
        raise ConfigError(f"freshness: {error}") from error
