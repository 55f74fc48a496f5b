"""The connections that use the environment of a package, which `elt upgrade` and `elt remove` may remove."""

from __future__ import annotations

from pathlib import Path

from elt_assets import paths
from elt_assets.connection import Connection, ConnectionPlace, list_places, load_connection
from elt_assets.errors import EltError
from elt_assets.runner.kinds import KINDS
from elt_assets.runner.packages import Installation, environment_folder


def list_other_users(place: ConnectionPlace, environment: Path) -> list[str]:
    """Return the names of the other connections that use an environment, or may use it because they cannot be
    loaded."""
    return [
        other.name
        for other in list_places()
        if other != place and ((folders := _list_folders(other)) is None or environment in folders)
    ]


def list_installations(connection: Connection) -> list[tuple[str, Installation]]:
    """Return the packages of a connection's connectors, each with the options of its environment."""
    installations = []
    for settings in filter(None, (connection.source, connection.destination)):
        package = KINDS[settings.kind].package(settings.value, settings.engine)
        if package:
            installations.append((package, settings.installation or Installation()))
    return installations


def _list_folders(place: ConnectionPlace) -> list[Path] | None:
    """Return the environments of a connection; None if it cannot be loaded."""
    try:
        installations = list_installations(load_connection(place))
    except EltError:
        return None
    return [environment_folder(name, paths.packages(), options) for name, options in installations]
