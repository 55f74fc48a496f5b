"""The connectors of a connection: its source, and its destination if the records do not go to the lake.

Used by `connection_read`, by `validation`, and by `elt` and `orchestration`, which ask a source something
without a sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.connection import Connection
from elt_assets.connection.connector import Destination, Source
from elt_assets.runner.config import LocalFile, VaultFile
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import LogFunction, ignore
from elt_assets.runner.kinds import KINDS, open_connector, to_install
from elt_assets.runner.source_kind import ConnectorSpec
from elt_assets.runner.vault import open_vault


def make_source(
    connection: Connection,
    workdir: Path,
    config: Mapping[str, Any] | None = None,
    *,
    on_log: LogFunction = ignore,
) -> Connector:
    """Return the connector of the connection's source, not started.

    Args:
        config: replaces the connection's config.
        on_log: receives the log lines of the connector, except those of `read`.
    """
    source = connection.source
    config = source.config if config is None else config
    return _open(connection, source, config, workdir, f"{connection.name}.json", on_log)


def make_destination(
    connection: Connection, workdir: Path, *, on_log: LogFunction = ignore
) -> Connector | None:
    """Return the connector of the connection's destination, not started; None if that is the lake."""
    destination = connection.destination
    if destination is None:
        return None
    store = f"{connection.name}.destination.json"
    return _open(connection, destination, destination.config, workdir, store, on_log)


def package_to_install(connection: Connection) -> str | None:
    """Return the package to install before the connection's connectors can run; None if none is missing."""
    for settings in filter(None, (connection.source, connection.destination)):
        package = to_install(
            settings.kind, settings.value, paths.packages(), settings.installation, settings.engine
        )
        if package is not None:
            return package
    return None


def list_update_files(connection: Connection) -> list[LocalFile | VaultFile]:
    """Return where the changes that the connectors of a connection make to their configs are stored.

    Raises:
        ConfigError: as `open_vault`.
    """
    files = map(_update_file, (f"{connection.name}.json", f"{connection.name}.destination.json"))
    return [LocalFile(file) if isinstance(file, Path) else file for file in files]


def _open(
    connection: Connection,
    settings: Source | Destination,
    config: Mapping[str, Any],
    workdir: Path,
    store: str,
    on_log: LogFunction,
) -> Connector:
    """Return a connector of the connection.

    Args:
        store: name of the file with the persisted config updates of the connector.
    """
    spec = ConnectorSpec(
        KINDS[settings.kind],
        settings.value,
        config,
        workdir,
        paths.packages(),
        heartbeat=connection.heartbeat.total_seconds(),
        store=_update_file(store),
        environment=settings.environment,
        installation=settings.installation,
        container=settings.container,
        connection=connection.name,
        on_log=on_log,
        deadlines=connection.deadlines.seconds(),
        trusted=settings.trust or (),
        engine=settings.engine,
    )
    return open_connector(spec)


def _update_file(name: str) -> Path | VaultFile:
    """Return the file of the config changes of a connector: in the vault of the project, if it has one.

    Raises:
        ConfigError: as `open_vault`.
    """
    local, vault = paths.config_store() / name, open_vault()
    return local if vault is None else VaultFile(vault.entry("config", name), local)
