"""`elt remove`: removes a connection or one of its streams, and what it has elsewhere as far as it is wanted.

First goes what Dagster would start, then what is on the server of the source, which needs the credentials,
then the tables. The definition goes last, since all the others are found by it. So a removal that was killed
is finished by the same command.
Test: `tests/cli/test_remove.py::test_a_removal_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from elt_assets import paths
from elt_assets.cli.assets import select_streams
from elt_assets.cli.output import OK, Document, Output, connection_argument, subcommand
from elt_assets.cli.removal import Part, Removal, describe_files
from elt_assets.connection import (
    CATALOG_FILE,
    ConnectionPlace,
    definition_file,
    find_place,
    list_places,
)
from elt_assets.connection.cutting import FileChange, plan_without_connection, plan_without_stream
from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.removal import refuse_needed
from elt_assets.orchestration.renaming import refuse_running
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.streams import StreamAsset

_ORDER = ("schedules", "slot", "data", "environment", "credentials", "definition")
"""The names of the parts, in the order in which they go."""
_F = TypeVar("_F", bound=Callable[..., Any])


def _choice(name: str, text: str) -> Callable[[_F], _F]:
    return click.option(f"--{name}/--keep-{name}", default=None, help=text)


@subcommand(
    "remove",
    "elt remove shop",
    "elt remove shop users --yes",
    "elt remove shop --data --yes",
)
@connection_argument()
@click.argument("stream", required=False)
@_choice("data", "The tables, histories, dead letters, documents and states. Default: they stay.")
@_choice(
    "slot", "What the source keeps on its server, such as a replication slot. Default: it goes."
)
@_choice("credentials", "Credentials that the connector has renewed. Default: they stay.")
@_choice("environment", "The package, if no other connection uses it. Default: it goes.")
@click.option("--force", is_flag=True, help="Remove tables that other assets read.")
@click.option(
    "--yes", is_flag=True, help="Remove without a question, what is not named by its default."
)
def command(
    out: Output, connection: str, stream: str | None, force: bool, yes: bool, **choices: bool | None
) -> int:
    """Remove a connection, or one of its streams, from the project.

    What there is elsewhere is listed with its size, and goes or stays by your answer. Without a terminal and
    without --yes, it is only listed. If the command is interrupted, run it again: it goes on.
    """
    if stream is None and (leftovers := _find_leftovers(connection)):
        _finish(connection, leftovers, out)
        return OK
    place = find_place(connection)
    component = ConnectionComponent.load_at(place)
    all_assets = component.stream_assets()
    names = [] if stream is None else [stream]
    assets = list(select_streams(place.name, all_assets, names).values())
    if stream is not None and len(assets) == len(all_assets):
        raise ConfigError(
            f"{stream} is the only stream of {place.name}",
            guidance=f"remove the connection: elt remove {place.name}",
        )
    changes = _plan_files(place, assets, all_assets, is_whole=stream is None)
    with open_instance() as instance:
        refuse_running(instance, all_assets[0])
        removal = Removal(place, component, assets, is_whole=stream is None, out=out)
        parts = [
            removal.schedules(instance),
            *(removal.source_parts() if stream is None else ()),
            removal.data(instance),
            describe_files(changes),
        ]
        parts = [part for part in parts if part is not None]
        for part in parts:
            choice = choices.get(part.name)
            part.goes = part.goes if choice is None else choice
        is_decided = yes or _ask(parts, choices, out)
        removal.refuse_readers(parts, force=force)
        _show(parts, out)
        if is_decided:
            for part in sorted(parts, key=lambda part: _ORDER.index(part.name)):
                if part.name == "definition":
                    removal.finish_data()
                if part.goes:
                    part.remove()
                    reach(Failpoint.PART_REMOVED)
            _remove_empty(place)
    _conclude(assets, parts, out, is_decided=is_decided)
    return OK


def _plan_files(
    place: ConnectionPlace,
    assets: Sequence[StreamAsset],
    all_assets: Sequence[StreamAsset],
    *,
    is_whole: bool,
) -> list[FileChange]:
    if is_whole:
        return plan_without_connection(place)
    (asset,) = assets
    refuse_needed(asset, all_assets)
    return plan_without_stream(place, asset.stream.id)


def _find_leftovers(connection: str) -> list[Path]:
    """Return the catalogs that a killed removal of a connection has left: those without a definition."""
    root = paths.connections()
    named = [root / connection / CATALOG_FILE] if definition_file(root / connection) is None else []
    catalogs_in_use = {place.catalog for place in list_places()}
    catalogs = [*named, *root.rglob(f"catalog.{connection}.json")]
    return [path for path in catalogs if path.is_file() and path not in catalogs_in_use]


def _finish(connection: str, leftovers: Sequence[Path], out: Output) -> None:
    for catalog in leftovers:
        catalog.unlink()
        with contextlib.suppress(OSError):  # there are other files
            catalog.parent.rmdir()
        out.line(f"removed {catalog}, which was left of {connection}")
    out.document({"streams": [], "parts": [], "removed": True})


def _remove_empty(place: ConnectionPlace) -> None:
    if not place.file.exists():
        with contextlib.suppress(OSError):  # there are other files
            place.folder.rmdir()


def _ask(parts: Sequence[Part], choices: Mapping[str, bool | None], out: Output) -> bool:
    """Ask what goes, if there is a terminal; return whether everything is decided."""
    if not (sys.stdin.isatty() and out.shows_progress):
        return False
    for part in parts:
        if part.is_asked and choices.get(part.name) is None:
            part.goes = click.confirm(f"remove {part.name}: {part.text}?", default=part.goes)
    names = ", ".join(part.name for part in parts if part.goes)
    return click.confirm(f"remove {names} now?", default=False)


def _show(parts: Sequence[Part], out: Output) -> None:
    rows = [
        (part.name, part.text, _format(part.size), "goes" if part.goes else "stays")
        for part in parts
    ]
    out.table(["what", "where", "size", ""], rows)


def _format(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def _conclude(
    assets: Sequence[StreamAsset], parts: Sequence[Part], out: Output, *, is_decided: bool
) -> None:
    keys = [asset.key.to_user_string() for asset in assets]
    if is_decided:
        out.line(f"removed {', '.join(keys)}; reload the code location of a running Dagster")
        out.line(
            "the events of these assets stay in Dagster; remove them with "
            f"`dagster asset wipe {' '.join(keys)}`"
        )
    else:
        out.line("nothing was changed; add --yes to remove what goes")
    document: list[Document] = [
        {"part": part.name, "where": part.text, "bytes": part.size, "goes": part.goes}
        for part in parts
    ]
    out.document({"streams": keys, "parts": document, "removed": is_decided})
