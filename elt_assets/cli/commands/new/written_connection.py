"""The files of a new connection: `defs.yaml`, with comments, `catalog.json`, and those of its source."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from elt_assets import paths
from elt_assets.cli.commands.new.chosen_source import ChosenSource
from elt_assets.connection import (
    DEFINITION_FILE,
    Connection,
    check_plain_name,
    list_places,
    parse_connection,
    save_catalog,
)
from elt_assets.connection.default_attributes import document
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import build_connection_assets
from elt_assets.protocol.catalog import Catalog
from elt_assets.protocol.specification import Place

Json = dict[str, Any]
_CONFIG = "config: null"
"""The line that is replaced by the config and its comments."""


def new_folder(name: str) -> Path:
    """Return the folder of a new connection.

    Raises:
        ConfigError: the name is not valid, a connection has it, or the folder exists.
    """
    try:
        check_plain_name(name)
    except ValueError as error:
        raise ConfigError(
            f"{name!r} is not a valid name of a connection", guidance=str(error)
        ) from None
    other = next((place for place in list_places() if place.name == name), None)
    if other is not None:
        raise ConfigError(
            f"the connection {name!r} already exists: {other.file}",
            guidance="choose a different name, or remove it",
        )
    folder = paths.connections() / name
    if folder.exists():
        raise ConfigError(
            f"{folder} already exists", guidance="choose a different name, or remove it"
        )
    return folder


def write_connection(
    folder: Path,
    source: ChosenSource,
    config: Json,
    notes: Mapping[Place, str],
    streams: Sequence[Json],
    catalog: Catalog,
) -> None:
    """Write the files of a connection, or none of them.

    Args:
        notes: the comment above each field of the config, by its path.

    Raises:
        ConfigError: the files cannot be written, or the connection cannot be loaded; nothing is written.
    """
    name, path = folder.name, folder / DEFINITION_FILE
    current = {**source.attributes, source.kind: source.current, "config": config}
    literal = document(name, current, streams)["attributes"]
    connection = parse_connection(literal, path, Connection)
    build_connection_assets(connection, catalog=catalog)
    text = _text(document(name, {**source.attributes, "config": None}, streams), config, notes)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be created: {error.strerror}",
            guidance="make its parent folder writable, or set ELT_DEFS to a different folder",
        ) from error
    try:
        if source.folder is not None:
            shutil.copytree(source.folder, folder, dirs_exist_ok=True)
        path.write_text(text, encoding="utf-8")
        save_catalog(folder, catalog)
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, OSError):
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}",
                guidance="make room on the disk and check the permissions, then run `elt new` again; "
                "no file of the connection was kept",
            ) from error
        raise


def _text(document: Json, config: Json, notes: Mapping[Place, str]) -> str:
    """Return the YAML of a connection, whose config is still null, with its config and the comments."""
    before, _, after = _dump(document).partition(_CONFIG)
    indent = before[before.rfind("\n") + 1 :]
    lines = textwrap.indent("\n".join(config_lines(config, notes)), f"{indent}  ")
    block = f"config:\n{lines}" if config else "config: {}"
    return f"{before}{block}{after}"


def config_lines(
    config: Mapping[str, Any], notes: Mapping[Place, str], place: Place = ()
) -> Iterator[str]:
    """Yield the lines of a config as YAML.

    Args:
        notes: the comment above each field, by its path.
        place: the path of the config.
    """
    for name, value in config.items():
        inner = (*place, name)
        if notes.get(inner):
            yield f"# {notes[inner]}"
        if isinstance(value, Mapping) and any(path[:-1][: len(inner)] == inner for path in notes):
            yield _dump({name: None}).partition(" null")[0]
            yield from (f"  {line}" for line in config_lines(value, notes, inner))
        else:
            yield from _dump({name: value}).splitlines()


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
