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
from elt_assets.connection import CATALOG_FILE, Connection, load_connection
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.catalog import Catalog
from elt_assets.runner.connector import Connector
from elt_assets.runner.sources import open_connector

OK, FAILED, REFUSED = 0, 1, 2

_out = Console(soft_wrap=True)
_err = Console(stderr=True, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except EltError as error:
        _err.print(f"[bold red]{error.failure_type}[/]: ", end="")
        _err.print(str(error), markup=False, highlight=False)
        return REFUSED if isinstance(error, ConfigError) else FAILED
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elt", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("check", check, "try whether the source can be reached with the connection's config"),
        ("discover", discover, f"ask the source for its streams, and write {CATALOG_FILE}"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("connection", help="its folder under the connections, or a path to it")
        command.set_defaults(run=run)
    return parser


def check(arguments: argparse.Namespace) -> int:
    connection, connector, _ = _open(arguments.connection)
    status = connector.check()
    message = connector.mask(status.message or "")
    if status.succeeded:
        _out.print(f"[bold green]succeeded[/] {connection.name}: {connector.name} {message}")
        return OK
    _out.print(f"[bold red]failed[/] {connection.name}: {connector.name}: {message}")
    return FAILED


def discover(arguments: argparse.Namespace) -> int:
    connection, connector, folder = _open(arguments.connection)
    catalog = connector.discover()
    path = folder / CATALOG_FILE
    path.write_text(json.dumps(json.loads(catalog.to_json()), indent=2, ensure_ascii=False) + "\n")
    _out.print(_streams(catalog, connection))
    _out.print(f"wrote {path}")
    return OK


def _open(name: str) -> tuple[Connection, Connector, Path]:
    given = Path(name)
    folder = given if "/" in name else home.connections() / name
    connection = load_connection(folder)
    source = connection.source
    connector = open_connector(
        source.kind,
        getattr(source, source.kind),
        source.config,
        home.staging(),
        home.packages(),
    )
    return connection, connector, folder


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
