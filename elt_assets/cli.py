"""`elt`: the command line beside Dagster's own.

Exit codes: 0 done; 1 a check failed, or something broke; 2 the user must change something.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from elt_assets import home
from elt_assets.connection import (
    CATALOG_FILE,
    Connection,
    load_connection,
)
from elt_assets.errors import ConfigError, EltError
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.resources import LakeResource, SparkResource
from elt_assets.orchestration.status import StreamStatus, open_instance, stream_statuses
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.syncing import connect
from elt_assets.orchestration.upkeep import replay_stream
from elt_assets.protocol.catalog import Catalog

OK, FAILED, REFUSED = 0, 1, 2

_WIDE = 180
"""Columns, where the output is no terminal and so has no width of its own."""


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


_out, _err = _console(), _console(stderr=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except EltError as error:
        _err.print(f"{error.failure_type}: ", end="", style="bold red")
        _err.print(str(error), markup=False, soft_wrap=True)
        return REFUSED if isinstance(error, ConfigError) else FAILED
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elt", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("check", check, "try whether the source can be reached with the connection's config"),
        ("discover", discover, f"ask the source for its streams, and write {CATALOG_FILE}"),
        ("status", status, "show what each stream last moved, its table and its state"),
        ("replay", replay, "try the records in the streams' dead letters again"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("connection", help="its folder under the connections, or a path to it")
        command.set_defaults(run=run)
        if run is replay:
            command.add_argument("stream", nargs="*", help="which streams; default all")
    return parser


def check(arguments: argparse.Namespace) -> int:
    connection = load_connection(_folder(arguments.connection))
    connector = connect(connection, home.staging())
    status = connector.check()
    message = connector.mask(status.message or "")
    if status.succeeded:
        _out.print("succeeded ", end="", style="bold green")
        _out.print(f"{connection.name}: {connector.name} {message}")
        return OK
    _out.print("failed ", end="", style="bold red")
    _out.print(f"{connection.name}: {connector.name}: {message}")
    return FAILED


def discover(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments.connection)
    connection = load_connection(folder)
    catalog = connect(connection, home.staging()).discover()
    path = folder / CATALOG_FILE
    path.write_text(json.dumps(json.loads(catalog.to_json()), indent=2, ensure_ascii=False) + "\n")
    _out.print(_streams(catalog, connection))
    _out.print(f"wrote {path}")
    return OK


def status(arguments: argparse.Namespace) -> int:
    assets = _assets(arguments.connection)
    with open_instance() as instance:
        _out.print(_standings(stream_statuses(assets, home.lake(), instance)))
    return OK


def replay(arguments: argparse.Namespace) -> int:
    assets = {str(asset.stream.id): asset for asset in _assets(arguments.connection)}
    unknown = sorted(set(arguments.stream) - set(assets))
    if unknown:
        raise ConfigError(
            f"{arguments.connection} has no stream {', '.join(map(repr, unknown))}",
            guidance=f"its streams: {', '.join(sorted(assets))}",
        )
    with open_instance() as instance:
        for name in arguments.stream or assets:
            done = replay_stream(assets[name], LakeResource(), SparkResource(), instance)
            told = (
                "its dead letter is empty"
                if done is None
                else f"{done.records} records replayed, {done.rejected} rejected again"
            )
            _out.print(f"{name}: {told}")
    return OK


def _assets(name: str) -> list[StreamAsset]:
    folder = _folder(name)
    return ConnectionComponent.of(load_connection(folder)).stream_assets(folder)


def _folder(name: str) -> Path:
    return Path(name) if "/" in name else home.connections() / name


def _standings(found: Sequence[StreamStatus]) -> Grid:
    grid = Grid("stream", "policy")
    for name in ("read", "committed", "rejected", "rows in table"):
        grid.add_column(name, justify="right")
    grid.add_column("acknowledged state", overflow="fold")
    grid.add_column("path", overflow="fold")
    for one in found:
        figures = one.figures
        moved = (figures.read, figures.committed, figures.rejected) if figures else ("-",) * 3
        grid.add_row(
            one.stream, one.policy, *map(str, moved), str(one.rows), one.state or "-", one.path
        )
    return grid


def _streams(catalog: Catalog, connection: Connection) -> Grid:
    grid = Grid("stream", "sync modes", "primary key", "cursor", "fields", "configured")
    wanted = {stream.id for stream in connection.streams}
    for stream in catalog.streams:
        key = [".".join(path) for path in stream.source_defined_primary_key or []]
        grid.add_row(
            str(stream.id),
            ", ".join(stream.sync_modes),
            ", ".join(key),
            ".".join(stream.default_cursor_field or []),
            str(len(stream.json_schema.get("properties") or {})),
            "yes" if stream.id in wanted else "",
        )
    return grid


if __name__ == "__main__":
    sys.exit(main())
