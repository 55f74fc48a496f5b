"""What looks at a connection: its source, its catalog, its tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from elt_assets import paths
from elt_assets.cli.finding import (
    assets_of,
    connection_folders,
    find_stream,
    folder_of,
    refuse_installed,
)
from elt_assets.cli.output import FAILED, OK, Document, Output
from elt_assets.connection import (
    CATALOG_FILE,
    Connection,
    load_catalog,
    load_connection,
    save_catalog,
)
from elt_assets.connection.catalog_diff import Change, changes
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import build_connection_assets
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.jobs.replay import replay_stream
from elt_assets.orchestration.resources import LakeResource, SparkResource
from elt_assets.orchestration.status import StreamStatus, open_instance, stream_statuses
from elt_assets.pipeline.connectors import connect, connect_destination, package_to_install
from elt_assets.protocol.airbyte.catalog import Catalog, stream_names
from elt_assets.protocol.specification import unknown_fields


def check(arguments: argparse.Namespace, out: Output) -> int:
    """`elt check`."""
    folder = folder_of(arguments.connection)
    connection = load_connection(folder)
    if (folder / CATALOG_FILE).exists():
        ConnectionComponent.of(connection).definitions(folder)
    else:
        out.note(f"the streams are not checked: `elt discover {folder.name}` has not been run yet")
    announce_installation(package_to_install(connection), out)
    connector = connect(connection, paths.staging(), hear=out.hear)
    out.note(f"starting {connector.name}")
    schema = connector.specification.connectionSpecification
    for warning in unknown_fields(connection.source.config, schema):
        out.warn(warning)
    answer = connector.check()
    destination = connect_destination(connection, paths.staging(), hear=out.hear)
    if answer.succeeded and destination is not None:
        out.note(f"starting the destination {destination.name}")
        connector, answer = destination, destination.check()
    message = answer.message or ""
    word = "succeeded" if answer.succeeded else "failed"
    told = f"{connection.name}: {connector.name}{f': {message}' if message else ''}"
    out.verdict(word, told, good=answer.succeeded)
    out.document(
        {
            "connection": connection.name,
            "connector": connector.name,
            "succeeded": answer.succeeded,
            "message": message or None,
        }
    )
    return OK if answer.succeeded else FAILED


def announce_installation(package: str | None, out: Output) -> None:
    """Say that a command takes its time at first, if it does."""
    if package is not None:
        out.note(f"installing {package}: once, it may take some minutes")


def discover(arguments: argparse.Namespace, out: Output) -> int:
    """`elt discover`."""
    dry: bool = arguments.dry_run
    if arguments.exit_code and not dry:
        raise ConfigError("--exit-code tells what --dry-run found", guidance="give both")
    folder = folder_of(arguments.connection)
    if not dry:
        refuse_installed(folder)
    connection = load_connection(folder)
    announce_installation(package_to_install(connection), out)
    connector = connect(connection, paths.staging(), hear=out.hear)
    out.note(f"starting {connector.name}")
    catalog = connector.discover()
    former = _former(folder, out)
    found = changes(former or Catalog(streams=[]), catalog)
    names = stream_names({one.id for one in (*catalog.streams, *(former or catalog).streams)})
    out.table(*streams_table(catalog, connection))
    if former is None:
        out.line(f"there was no {CATALOG_FILE} before")
    elif not found:
        out.line(f"nothing has changed since {CATALOG_FILE} was written")
    else:
        out.table(
            ["stream", "what changed", "field", "before", "after"],
            [(names[c.stream], c.kind, c.field, c.before, c.after) for c in found],
        )
    problem = _misfit(connection, catalog)
    if problem is not None:
        out.warn(f"with this catalog the connection cannot be loaded:\n{problem}")
    path = folder / CATALOG_FILE if dry else save_catalog(folder, catalog)
    out.line(f"{path} was left as it is" if dry else f"wrote {path}")
    out.document(
        {
            "connection": connection.name,
            "catalog": str(path),
            "written": not dry,
            "streams": _streams(catalog, connection),
            "changes": [_change(each, names[each.stream]) for each in found],
        }
    )
    return FAILED if arguments.exit_code and found else OK


def status(arguments: argparse.Namespace, out: Output) -> int:
    """`elt status`."""
    if arguments.connection is not None:
        out.document(_shown_status(folder_of(arguments.connection), arguments.connection, out))
        return OK
    answers: list[Document] = []
    broken: list[ConfigError] = []
    for folder in connection_folders():
        out.line(f"{folder.name}:")
        try:
            answers.append(_shown_status(folder, folder.name, out))
        except ConfigError as error:
            out.warn(str(error))
            broken.append(error)
    out.document({"connections": answers})
    return FAILED if broken else OK


def _shown_status(folder: Path, name: str, out: Output) -> Document:
    """Show where the streams of a connection stand, and return it for machines."""
    assets = assets_of(folder)
    with open_instance() as instance:
        found = stream_statuses(assets, paths.lake(), instance)
    elsewhere = any(one.connection.destination is not None for one in assets)
    rows = "rows delivered" if elsewhere else "rows in table"
    names = ["stream", "policy", "read", "committed", "rejected", rows]
    out.table([*names, "acknowledged state", "path"], [_standing(one) for one in found])
    return {"connection": name, "streams": [_status(one) for one in found]}


def replay(arguments: argparse.Namespace, out: Output) -> int:
    """`elt replay`."""
    assets = {one.stream.id: one for one in assets_of(folder_of(arguments.connection))}
    names = stream_names(assets)
    wanted = [find_stream(arguments.connection, assets, name) for name in arguments.stream]
    answers: list[Document] = []
    with open_instance() as instance:
        for stream in wanted or assets:
            done = replay_stream(assets[stream], LakeResource(), SparkResource(), instance)
            moved = (0, 0) if done is None else (done.records, done.rejected)
            told = "its dead letter is empty"
            if done is not None:
                told = "{} records replayed, {} rejected again".format(*moved)
            out.line(f"{names[stream]}: {told}")
            answers.append({"stream": names[stream], "replayed": moved[0], "rejected": moved[1]})
    out.document({"connection": arguments.connection, "streams": answers})
    return OK


def streams_table(
    catalog: Catalog, connection: Connection
) -> tuple[Sequence[str], list[Sequence[object]]]:
    """What a source has, for people: columns and rows."""
    names = ["stream", "sync modes", "primary key", "cursor", "fields", "configured"]
    rows: list[Sequence[object]] = [
        (
            one["stream"],
            ", ".join(one["sync_modes"]),
            ", ".join(map(".".join, one["primary_key"])),
            ".".join(one["cursor_field"]),
            one["fields"],
            "yes" if one["configured"] else "",
        )
        for one in _streams(catalog, connection)
    ]
    return names, rows


def _streams(catalog: Catalog, connection: Connection) -> list[Document]:
    wanted = {stream.id for stream in connection.streams}
    names = stream_names([stream.id for stream in catalog.streams])
    return [
        {
            "stream": names[stream.id],
            "sync_modes": stream.sync_modes,
            "primary_key": stream.source_defined_primary_key or [],
            "cursor_field": stream.default_cursor_field or [],
            "fields": len(stream.json_schema.get("properties") or {}),
            "configured": stream.id in wanted,
        }
        for stream in catalog.streams
    ]


def _former(folder: Path, out: Output) -> Catalog | None:
    """The catalog that is there; None if there is none, or none that can be read."""
    try:
        return load_catalog(folder)
    except ConfigError as error:
        if (folder / CATALOG_FILE).exists():
            out.warn(error.message)
        return None


def _misfit(connection: Connection, catalog: Catalog) -> ConfigError | None:
    """Why the connection does not go with a catalog."""
    try:
        build_connection_assets(connection, catalog=catalog)
    except ConfigError as error:
        return error
    return None


def _change(change: Change, stream: str) -> Document:
    return {**asdict(change), "stream": stream, "told": change.told}


def _standing(one: StreamStatus) -> Sequence[object]:
    figures = one.figures
    moved = (figures.read, figures.committed, figures.rejected) if figures else ("-",) * 3
    return (one.stream, one.policy, *moved, one.rows, one.state or "-", one.path)


def _status(one: StreamStatus) -> Document:
    state = None if one.state is None else json.loads(one.state)
    return {**asdict(one), "state": state}
