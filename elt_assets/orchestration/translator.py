"""The translator: it creates the specs of the assets of a connection's streams.

`build` and `component` ask for the specs; `materialize`, `read_events` and `elt dbt-sources` take the specs
or keys of companion tables.

Every Dagster integration has a translator. Override `get_asset_spec` to change the keys, groups, tags or
owners of streams. Partitions and table paths stay the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import dagster as dg

from elt_assets.connection import Connection, as_landed
from elt_assets.connection.automation import Automation, Freshness, OnCron
from elt_assets.connection.connector import Destination, Source
from elt_assets.connection.stream import Stream
from elt_assets.errors import ConfigError
from elt_assets.lake.write.companions import DEAD_LETTER, SUFFIXES
from elt_assets.lake.write.companions import HISTORY as HISTORY_KIND
from elt_assets.lake.write.sync_columns import make_declared_schema
from elt_assets.orchestration.metadata import (
    CLUSTER_BY,
    COMPANION_OF,
    CONNECTION,
    DESTINATION,
    HISTORY,
    ICEBERG,
    OTHER_TABLE_PATH,
    PARTITION_BY,
    PRIMARY_KEY,
    TABLE_PATH,
    column_schema,
)
from elt_assets.orchestration.streams import StreamAsset, default_asset_key, partitions_definition
from elt_assets.pipeline.publication import show_name
from elt_assets.pipeline.stream import cluster_columns, partition_columns, table_path
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream, StreamId
from elt_assets.runner.kinds import KINDS


class ConnectionTranslator:
    """The default translator of a connection's assets."""

    def get_asset_spec(self, connection: Connection, stream: ConfiguredStream) -> dg.AssetSpec:
        """Return the spec of one stream's asset."""
        settings = connection.settings_of(stream.id)
        path = table_path(connection, stream.id)
        landed = as_landed(connection, stream)
        deletes = settings.deletes or connection.deletes
        schema = make_declared_schema(
            landed,
            partitioned=settings.partitions is not None,
            keeps_deleted=deletes is not None and deletes.rows == "keep",
        )
        partitioning = partition_columns(connection, settings, landed)
        source, destination = self.get_source_spec(connection), connection.destination
        iceberg = connection.iceberg if settings.iceberg is None else settings.iceberg
        name = show_name(path.levels, connection.name, iceberg)
        table = {"dagster/table_name": name, "dagster/storage_kind": "delta"}
        return dg.AssetSpec(
            default_asset_key(connection, stream),
            deps=[source],
            group_name=connection.group or connection.name,
            description=_description(settings, stream, landed),
            kinds={"spark", "delta"} if destination is None else {"airbyte"},
            owners=settings.owners if settings.owners is not None else connection.owners,
            tags={**connection.tags, **settings.tags},
            partitions_def=partitions_definition(connection, stream),
            automation_condition=_automation(connection, settings, source.key),
            freshness_policy=_freshness(connection, settings),
            metadata={
                TABLE_PATH: "/".join(path.levels),
                OTHER_TABLE_PATH: "/".join(path.other),
                HISTORY: settings.history,
                CONNECTION: connection.name,
                "elt/policy": stream.destination_sync_mode,
                "elt/sync_mode": stream.sync_mode,
                "dagster/column_schema": column_schema(schema, landed),
                **({PRIMARY_KEY: landed.key} if landed.deduplicates else {}),
                **(
                    table
                    if destination is None
                    else {DESTINATION: _describe_connector(destination)}
                ),
                **({} if iceberg is None else {ICEBERG: iceberg}),
                **({PARTITION_BY: partitioning} if partitioning else {}),
                **({CLUSTER_BY: cluster_columns(settings, landed)} if settings.cluster_by else {}),
                **({} if connection.controls_of(stream.id).enabled else {"elt/enabled": False}),
            },
        )

    def get_source_spec(self, connection: Connection) -> dg.AssetSpec:
        """Return the spec of the source system, which is upstream of all streams of the connection."""
        source, reader = connection.source, _describe_connector(connection.source)
        return dg.AssetSpec(
            [connection.name],
            group_name=connection.group or connection.name,
            description=f"The source system of connection {connection.name}, read by {reader}.",
            kinds={KINDS[source.kind].label},
            owners=connection.owners,
            tags=connection.tags,
            metadata={CONNECTION: connection.name, "elt/source": reader},
        )


def companion_specs(asset: StreamAsset) -> list[dg.AssetSpec]:
    """Return the specs of a stream's companion tables: the history, and the dead letter, if they are enabled.

    The materialisation of the stream writes these tables. Without an asset of its own, the dead letter is
    named in the stream's events and by its check `rejected`.
    """
    if asset.connection.destination is not None:
        return []
    spec, companions = asset.spec, dict[str, str]()
    connection, own = asset.connection, asset.settings.iceberg
    iceberg = connection.iceberg if own is None else own
    if asset.has_dead_letter_asset:
        companions[DEAD_LETTER] = "Rejected records of {}."
    if asset.settings.history:
        companions[HISTORY_KIND] = "All versions of the rows of {} (SCD type 2)."
    return [
        dg.AssetSpec(
            companion_key(asset, suffix),
            deps=[spec.key],
            group_name=spec.group_name,
            description=text.format(spec.key.to_user_string()),
            kinds={"spark", "delta"},
            owners=spec.owners,
            tags={
                name: text for name, text in spec.tags.items() if not name.startswith("dagster/")
            },
            metadata={
                TABLE_PATH: "/".join(asset.table_path.levels) + suffix,
                OTHER_TABLE_PATH: "/".join(asset.table_path.other) + suffix,
                COMPANION_OF: spec.key.to_user_string(),
                "dagster/table_name": show_name(
                    [*asset.table_path.levels[:-1], asset.table_path.levels[-1] + suffix],
                    connection.name,
                    iceberg,
                    kind,
                ),
                "dagster/storage_kind": "delta",
            },
        )
        for kind, text in companions.items()
        for suffix in [SUFFIXES[kind]]
    ]


def companion_key(asset: StreamAsset, suffix: str) -> dg.AssetKey:
    """Return the asset key of a stream's companion table.

    It is the stream's key with the suffix at its end, and with a hash if another stream has that name.
    """
    *above, name = asset.key.path
    rival = StreamId(asset.stream.id.name + suffix, asset.stream.id.namespace)
    if rival in asset.connection.settings_by_stream:
        suffix += f"_{hashlib.sha256(rival.quoted.encode()).hexdigest()[:8]}"
    return dg.AssetKey([*above, name + suffix])


def _describe_connector(connector: Source | Destination) -> str:
    """Return the kind and name of a connector; never its config, which may contain secrets."""
    return f"{connector.kind} {KINDS[connector.kind].display(connector.value)}"


def _description(settings: Stream, stream: ConfiguredStream, landed: ConfiguredStream) -> str:
    """Return the description in the connection, or else in the source's schema, and the sync settings.

    Args:
        landed: the stream with the names of its columns.
    """
    schema: Mapping[str, Any] = stream.stream.json_schema
    candidates = (settings.description, schema.get("description"), schema.get("title"))
    texts = [text for text in candidates if isinstance(text, str)][:1]
    key = ", ".join(".".join(path) for path in landed.key)
    summary = f"Stream `{stream.id}`: {stream.sync_mode}, {stream.destination_sync_mode}"
    summary += f"; key {key}" if key and stream.deduplicates else ""
    if stream.sync_mode == INCREMENTAL and stream.cursor:
        summary += f"; cursor {'.'.join(landed.cursor)}"
    return "\n\n".join([*texts, f"{summary}."])


def find_automation(connection: Connection, settings: Stream) -> Automation:
    """Return the `automation` of a stream: its own, which may be none, or else that of its connection."""
    if settings.automation is None and "automation" not in settings.model_fields_set:
        return connection.automation
    return settings.automation


def _automation(
    connection: Connection, settings: Stream, source: dg.AssetKey
) -> dg.AutomationCondition[Any] | None:
    """Return the automation condition of a stream.

    A stream does not wait for an event of its source asset. With `eager`, such an event starts a sync.
    """
    automation, controls = (
        find_automation(connection, settings),
        connection.controls_of(settings.id),
    )
    if automation is None or not controls.enabled:
        return None
    ignored = dg.AssetSelection.assets(source)
    if not isinstance(automation, OnCron):
        missing = dg.AutomationCondition.any_deps_missing()
        return dg.AutomationCondition.eager().replace(missing, missing.ignore(ignored))
    try:
        timezone = automation.timezone or controls.timezone or "UTC"
        return dg.AutomationCondition.on_cron(automation.on_cron, timezone).ignore(ignored)
    except Exception as error:  # Dagster validates the expression
        raise ConfigError(
            f"stream {str(settings.id)!r}: automation: {automation.on_cron!r} is not a valid cron expression",
            guidance='write five fields, for example on_cron "0 6 * * *"',
        ) from error


def _freshness(connection: Connection, settings: Stream) -> dg.FreshnessPolicy | None:
    """Return the freshness policy of a stream; None for a disabled one, which nothing keeps up to date."""
    freshness: Freshness | None = settings.freshness or connection.freshness
    controls = connection.controls_of(settings.id)
    if freshness is None or not controls.enabled:
        return None
    if freshness.fail_after is not None:
        return dg.FreshnessPolicy.time_window(freshness.fail_after, freshness.warn_after)
    assert freshness.cron is not None and freshness.within is not None
    try:
        timezone = freshness.timezone or controls.timezone or "UTC"
        return dg.FreshnessPolicy.cron(freshness.cron, freshness.within, timezone)
    except Exception as error:  # Dagster validates the expression and the time
        raise ConfigError(
            f"stream {str(settings.id)!r}: freshness: {error}",
            guidance='correct it, for example {cron: "0 6 * * *", within: 1h, timezone: Europe/Berlin}',
        ) from error
