"""From the names that people write to connections and streams."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.connection import load_connection
from elt_assets.errors import ConfigError
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.states import find
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.airbyte.catalog import StreamId, stream_names


def refuse_installed(folder: Path) -> None:
    """Refuse to write a connection into an installed package.

    Raises:
        ConfigError: names the variable that says where connections are.
    """
    package = Path(paths.__file__).parent
    if paths.project() is None and package in folder.absolute().parents:
        raise ConfigError(
            f"{folder} is inside the installed package elt_assets, where no connection of yours belongs",
            guidance="set ELT_DEFS to the folder of your project's connections: "
            'export ELT_DEFS="$PWD/connections"',
        )


def find_stream(connection: str, streams: Collection[StreamId], name: str) -> StreamId:
    """Return the stream that a name on the command line means.

    Raises:
        ConfigError: there is none, or there are several.
    """
    found = [each for each in streams if name == each.quoted]
    found = found or [each for each in streams if name == str(each)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"{connection} has {len(found)} streams {name!r}",
            guidance=f"write {' or '.join(repr(each.quoted) for each in found)}",
        )
    known = sorted(stream_names(streams).values())
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"its streams: {', '.join(known)}"
    raise ConfigError(f"{connection} has no stream {name!r}", guidance=meant)


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
    folders = paths.connection_folders()
    known: list[StreamAsset] = []
    broken: dict[str, ConfigError] = {}
    # The one that the key begins with is most likely its own: then no other need be loaded.
    for folder in sorted(folders, key=lambda folder: folder.name != first):
        try:
            assets = assets_of(folder)
        except ConfigError as error:
            broken[folder.name] = error
            continue
        keys = [one.key for one in assets]
        if any(key in (k.to_user_string(), k.to_escaped_user_string()) for k in keys):
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
