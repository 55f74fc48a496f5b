"""From the names that people write to connections and streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elt_assets import home
from elt_assets.connection import DEFINITION_FILE, load_connection
from elt_assets.errors import ConfigError
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.states import find
from elt_assets.orchestration.streams import StreamAsset


def folder_of(name: str) -> Path:
    """The folder of a connection, there or not."""
    return Path(name) if "/" in name else home.connections() / name


def assets_of(folder: Path) -> list[StreamAsset]:
    """The configured streams of a connection.

    Raises:
        ConfigError: it cannot be loaded.
    """
    return ConnectionComponent.of(load_connection(folder)).stream_assets(folder)


def find_asset(key: str) -> StreamAsset:
    """The stream of an asset key, whichever connection it is of.

    Raises:
        ConfigError: there is none; names those that are. Or the connection that the key begins with
            cannot be loaded.
    """
    first = key.partition("/")[0]
    folders = sorted(path.parent for path in home.connections().glob(f"*/{DEFINITION_FILE}"))
    known: list[StreamAsset] = []
    broken: dict[str, ConfigError] = {}
    # The one that the key begins with is most likely its own: then no other need be loaded.
    for folder in sorted(folders, key=lambda folder: folder.name != first):
        try:
            assets = assets_of(folder)
        except ConfigError as error:
            broken[folder.name] = error
            continue
        if any(one.key.to_user_string() == key for one in assets):
            return find(assets, key)
        known += assets
    if first in broken:
        raise broken[first]
    try:
        return find(known, key)
    except ConfigError as error:
        if broken:
            error.guidance = f"{error.guidance}; not loadable: {', '.join(sorted(broken))}"
        raise


def parsed(written: str, what: str) -> Any:
    """JSON, or that of a file, written `@FILE`.

    Raises:
        ConfigError: it is none; its text, which may hold a secret, is not quoted.
    """
    text = written
    if written.startswith("@"):
        try:
            text = Path(written[1:]).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise ConfigError(f"{what}: {written[1:]} cannot be read: {reason}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = (
            f"{error.msg} at line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else str(error)
        )
        raise ConfigError(
            f"{what} is no JSON: {where}",
            guidance=f'write {what} as \'{{"name": "value"}}\', or as @FILE to read it from a file',
        ) from None
