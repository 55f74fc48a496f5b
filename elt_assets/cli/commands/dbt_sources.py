"""`elt dbt-sources`: writes the streams' tables as sources of dbt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from elt_assets import paths
from elt_assets.cli.assets import assets_of
from elt_assets.cli.lookup import read_text
from elt_assets.cli.output import OK, Document, Output, complete_connection, subcommand
from elt_assets.connection import ConnectionPlace, find_place, list_places
from elt_assets.errors import ConfigError
from elt_assets.lake.merge.history import SUFFIX as HISTORY_SUFFIX
from elt_assets.lake.publish.entries import entry_name
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.names import find_kind, iceberg_identifier
from elt_assets.lake.publish.registration import EntryName
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.translator import companion_key
from elt_assets.pipeline.publication import is_published
from elt_assets.settings import UnitySettings, settings
from elt_assets.storage.folders import replace_text

HEADER = "# Written by `elt dbt-sources`: run it again instead of editing this file.\n"
DEFAULT_FILE = "sources.yml"
STDOUT = "-"
_COLUMN_SCHEMA = "dagster/column_schema"
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NOT_IN_NAME = re.compile(r"\W+", re.ASCII)
_TEMPLATE = re.compile(r"\{[{%#]")
"""Matches the beginning of a template, which dbt would replace in a description."""


@subcommand(
    "dbt-sources",
    "elt dbt-sources --output dbt/models/sources.yml",
    "elt dbt-sources shop crm",
    "elt dbt-sources --lake \"{{ env_var('SHOP_LAKE') }}\"",
)
@click.argument(
    "connections", nargs=-1, metavar="[CONNECTION]...", shell_complete=complete_connection
)
@click.option(
    "--output",
    default=DEFAULT_FILE,
    show_default=True,
    metavar="FILE",
    help="File to write; - prints it.",
)
@click.option(
    "--lake",
    metavar="TEXT",
    help="What stands for the lake's root, as a template of dbt; default: the root itself.",
)
@click.option("--force", is_flag=True, help="Replace a file that this command did not write.")
def command(
    out: Output, connections: tuple[str, ...], output: str, lake: str | None, force: bool
) -> int:
    """Write the tables of connections as sources of dbt, with their columns and asset keys.

    dagster-dbt then knows which stream each model depends on. Without CONNECTION, all are written.
    """
    named = [find_place(name) for name in connections]
    places = list(dict.fromkeys(named)) or list_places()
    root = project_lake().uri if lake is None else lake
    sources = [source for place in places for source in _sources(place, root.rstrip("/"), out)]
    if not sources:
        raise ConfigError(
            f"there is no table to write: {paths.connections()} has no connection with a stream in the lake",
            guidance="create one with `elt new`",
        )
    text = HEADER + dump(
        {"version": 2, "sources": sorted(sources, key=lambda source: str(source["name"]))}
    )
    if output == STDOUT:
        out.raw(text)
    else:
        _write(Path(output), text, force=force)
        out.line(f"wrote {output}: {len(sources)} sources")
    out.document({"file": None if output == STDOUT else output, "sources": sources})
    return OK


def dump(document: Document) -> str:
    """Return a document as YAML: the same text for the same document."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def _sources(place: ConnectionPlace, root: str, out: Output) -> Iterator[Document]:
    """Yield a source for each namespace of a connection."""
    assets = assets_of(place)
    if assets[0].connection.destination is not None:
        out.warn(f"{place.name} is left out: its rows are in another destination, not in the lake")
        return
    namespaces = sorted({asset.stream.id.namespace or "" for asset in assets})
    for namespace in namespaces:
        members = [asset for asset in assets if (asset.stream.id.namespace or "") == namespace]
        connection = members[0].connection
        name = _NOT_IN_NAME.sub("_", "__".join(filter(None, (connection.name, namespace))))
        below = f", namespace {namespace}" if namespace else ""
        tables = [table for asset in members for table in _tables(asset, root, out)]
        above = "_".join(members[0].table_path.levels[:-1])
        in_catalog = {"schema": _NOT_IN_NAME.sub("_", above), **_find_place(members[0], out)}
        yield {
            "name": name,
            "description": _escape(f"Streams of the connection {connection.name}{below}."),
            **in_catalog,
            "tables": sorted(tables, key=lambda table: str(table["name"])),
        }


def _find_place(asset: StreamAsset, out: Output) -> Document:
    """Return the schema in which a stream's table is registered, and the catalog above it if there is one."""
    name = _find_entry(asset, asset.table_path.levels, out)
    catalog = settings().entry_catalog
    database = {"database": catalog.catalog} if isinstance(catalog, UnitySettings) else {}
    return {} if name is None else {**database, "schema": name.database}


def _find_entry(asset: StreamAsset, levels: Sequence[str], out: Output) -> EntryName | None:
    """Return the name of a table in the catalog of the project; None if it has none there.

    If tables are registered in one and published in Iceberg in another, it is that of the first.
    """
    catalog, published, connection = settings().entry_catalog, settings().iceberg, asset.connection
    try:
        if catalog is not None:
            place = project_lake().child(*levels)
            return entry_name(catalog, LakeTable(place, connection.name, tuple(levels)))
        if published is None or not is_published(asset):
            return None
        kind, template = find_kind(published.catalog), published.namespace
        *above, name = iceberg_identifier(kind, template, connection.name, levels)
        return EntryName(".".join(above), name)
    except ConfigError as error:
        out.warn(f"{'.'.join(levels)} has no name in the catalog: {error.message}")
        return None


def _tables(asset: StreamAsset, root: str, out: Output) -> Iterator[Document]:
    """Yield the table of a stream, and that of its history."""
    path, spec = asset.table_path.levels, asset.spec
    columns = getattr(spec.metadata.get(_COLUMN_SCHEMA), "columns", ())
    table = _table(path, root, spec.key.path, spec.description or "", columns)
    yield _add_identifier(table, _find_entry(asset, path, out))
    if asset.settings.history:
        key = companion_key(asset, HISTORY_SUFFIX).path
        text = f"All versions of the rows of {spec.key.to_user_string()} (SCD type 2)."
        path = (*path[:-1], path[-1] + HISTORY_SUFFIX)
        yield _add_identifier(_table(path, root, key, text, ()), _find_entry(asset, path, out))


def _add_identifier(table: Document, name: EntryName | None) -> Document:
    """Return a table with its name in the catalog, if it has another one there."""
    if name is None or name.table == table["name"]:
        return table
    return {**table, "identifier": name.table}


def _table(
    path: Sequence[str],
    root: str,
    key: Sequence[str],
    description: str,
    columns: Sequence[Any],
) -> Document:
    meta = {
        "dagster": {"asset_key": list(key)},
        "plugin": "delta",
        "delta_table_path": "/".join((root, *path)),
    }
    table: dict[str, Any] = {"name": path[-1], "description": _escape(description)}
    table["config"] = {"meta": meta}
    if columns:
        table["columns"] = [_column(column) for column in columns]
    return table


def _column(column: Any) -> Document:
    """Return a column of Dagster's as dbt describes it."""
    document: dict[str, Any] = {"name": column.name, "data_type": column.type}
    if column.description:
        document["description"] = _escape(column.description)
    if not _PLAIN_NAME.fullmatch(column.name):
        document["quote"] = True
    return document


def _escape(text: str) -> str:
    """Return a text in a form in which dbt replaces no template in it."""
    if not _TEMPLATE.search(text):
        return text
    parts = _TEMPLATE.split(text)
    openings = [match.group() for match in _TEMPLATE.finditer(text)]
    quoted = [f'{{{{ "{opening}" }}}}' for opening in openings]
    return parts[0] + "".join(mark + part for mark, part in zip(quoted, parts[1:], strict=True))


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write the file atomically.

    Raises:
        ConfigError: there is a file that this command did not write, or it cannot be written.
    """
    hint = "write another --output, or replace the file with --force"
    if path.exists() and not force and not read_text(path, str(path), hint).startswith(HEADER):
        message = f"{path} exists, and `elt dbt-sources` did not write it"
        raise ConfigError(message, guidance=hint)
    replace_text(path, text)
