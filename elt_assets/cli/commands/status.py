"""`elt status`: shows the last sync of each stream, its table and its state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from elt_assets.cli.assets import assets_of
from elt_assets.cli.options import connection_argument, subcommand
from elt_assets.cli.output import FAILED, OK, Document, Output
from elt_assets.connection import ConnectionPlace, find_place, list_places
from elt_assets.errors import ConfigError
from elt_assets.orchestration.instance import open_instance
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.status import StreamStatus, stream_statuses


@subcommand("status", "elt status", "elt status shop", "elt status --json")
@connection_argument(required=False)
def command(out: Output, connection: str | None) -> int:
    """Show the last sync of each stream, its table and its state, for one connection or all.

    The exit code is 1 if a connection cannot be loaded.
    """
    if connection is not None:
        out.document(_print_status(find_place(connection), out))
        return OK
    answers: list[Document] = []
    broken: list[ConfigError] = []
    for place in list_places():
        out.line(f"{place.name}:")
        try:
            answers.append(_print_status(place, out))
        except ConfigError as error:
            out.warn(str(error))
            broken.append(error)
    out.document({"connections": answers})
    return FAILED if broken else OK


def _print_status(place: ConnectionPlace, out: Output) -> Document:
    """Print the status of a connection's streams, and return it for machines."""
    assets = assets_of(place)
    with open_instance() as instance:
        statuses = stream_statuses(assets, project_lake(), instance)
    elsewhere = any(asset.connection.destination is not None for asset in assets)
    rows = "rows delivered" if elsewhere else "rows in table"
    names = ["stream", "policy", "read", "committed", "rejected", rows]
    out.table([*names, "acknowledged state", "path"], [_row(status) for status in statuses])
    return {"connection": place.name, "streams": [_document(status) for status in statuses]}


def _row(status: StreamStatus) -> Sequence[object]:
    figures = status.figures
    moved = (figures.read, figures.committed, figures.rejected) if figures else ("-",) * 3
    return (status.stream, status.policy, *moved, status.rows, status.state or "-", status.path)


def _document(status: StreamStatus) -> Document:
    state = None if status.state is None else json.loads(status.state)
    return {**asdict(status), "state": state}
