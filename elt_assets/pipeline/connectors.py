"""The connectors of a connection: its source, and where its records go if that is not the lake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.connection import Connection
from elt_assets.connection.models import Destination, Source
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import Hear, ignore
from elt_assets.runner.kinds.registry import open_connector, to_install


def connect(
    connection: Connection,
    workdir: Path,
    config: Mapping[str, Any] | None = None,
    *,
    hear: Hear = ignore,
) -> Connector:
    """The connection's source; nothing runs yet.

    Args:
        config: in place of the connection's.
        hear: takes what the connector says in other verbs than `read`.
    """
    source = connection.source
    config = source.config if config is None else config
    return _open(connection, source, config, workdir, f"{connection.name}.json", hear)


def connect_destination(
    connection: Connection, workdir: Path, *, hear: Hear = ignore
) -> Connector | None:
    """The connector that the connection's records go to, if that is not the lake; nothing runs yet."""
    written = connection.destination
    if written is None:
        return None
    store = f"{connection.name}.destination.json"
    return _open(connection, written, written.config, workdir, store, hear)


def package_to_install(connection: Connection) -> str | None:
    """The package that must be installed before the connection's connectors can run; None if none must."""
    for end in filter(None, (connection.source, connection.destination)):
        found = to_install(end.kind, end.value, paths.packages(), end.install)
        if found is not None:
            return found
    return None


def _open(
    connection: Connection,
    written: Source | Destination,
    config: Mapping[str, Any],
    workdir: Path,
    store: str,
    hear: Hear,
) -> Connector:
    """Args:
    store: the name of the file that keeps what the connector changes in its config.
    """
    return open_connector(
        written.kind,
        written.value,
        config,
        workdir,
        paths.packages(),
        heartbeat=connection.heartbeat.total_seconds(),
        store=paths.config_store() / store,
        environment=written.environment,
        installation=written.install,
        container=written.container,
        user=written.user,
        hear=hear,
        deadlines=connection.deadlines.seconds(),
    )
