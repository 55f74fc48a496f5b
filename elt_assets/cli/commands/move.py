"""`elt move`: moves all tables of the lake to another root, and later removes the former ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import click

from elt_assets.cli.assets import assets_of
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.connection import list_places
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.admin.relocation import (
    LakeContents,
    find_target,
    list_contents,
    relocate,
    remove_former,
    reopen,
)
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.renaming import refuse_running
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.following import connection_of, drop_published, follow_now
from elt_assets.pipeline.publication import list_lake_tables
from elt_assets.storage.location import Location


@subcommand(
    "move",
    "elt move --to s3://bucket/lake",
    "elt move --cancel",
    "elt move --remove-former /srv/lake",
)
@click.option("--to", "target", metavar="URI", help="The new root: a path, or a URI of a store.")
@click.option(
    "--checksums", is_flag=True, help="Compare the contents of all files, not only sizes."
)
@click.option(
    "--cancel", is_flag=True, help="Let syncs write to the lake again that was to be moved."
)
@click.option(
    "--remove-former", "former", metavar="URI", help="Remove the tables of a former root."
)
def command(
    out: Output, target: str | None, checksums: bool, cancel: bool, former: str | None
) -> int:
    """Move all tables of the lake, with their states and histories, to another root.

    The tables are copied and compared; then no sync writes to the former ones any more. Set `lake` to the
    new root when the command has ended. The former tables stay until `--remove-former`. No run may be in
    progress. If the command is interrupted, run it again: it goes on.
    """
    if sum([target is not None, cancel, former is not None]) != 1:
        raise ConfigError(
            "elt move needs one of --to, --cancel and --remove-former",
            guidance="for example `elt move --to s3://bucket/lake`",
        )
    lake = project_lake()
    with open_instance() as instance:
        refuse_running(instance)
    if cancel:
        _cancel(out, lake)
    elif former is not None:
        _remove_former(out, lake, Location.parse(former.rstrip("/")))
    elif target is not None:
        _move(out, lake, Location.parse(target.rstrip("/")), checksums=checksums)
    return OK


def _move(out: Output, lake: Location, target: Location, *, checksums: bool) -> None:
    if f"{target.uri}/".startswith(f"{lake.uri}/") or f"{lake.uri}/".startswith(f"{target.uri}/"):
        raise ConfigError(
            f"{target} is {'the lake itself' if target.uri == lake.uri else 'within the lake, or around it'}",
            guidance="choose a place beside it; if `lake` names the new root already, the move has ended",
        )
    command = f"elt move --to {target}"
    contents = relocate(lake, target, command, checksums=checksums, report=out.note)
    if contents.others:
        out.warn(
            f"{len(contents.others)} files below {lake} are of no table and were not copied, such as "
            f"{contents.others[0]}"
        )
    problems: list[str] = []
    dropped = _drop_entries(lake, target, contents, problems)
    problems += _renew_entries(target, dropped)
    for problem in problems:
        out.warn(problem)
    if problems:
        out.warn(
            f"catalogs do not name all tables at {target} yet: correct that, and run `{command}` again "
            f"with `lake` at {lake}"
        )
    out.line(f"{len(contents.tables)} tables are at {target}; those at {lake} are closed")
    out.line(f'next: set `lake = "{target}"` in pyproject.toml, or ELT_LAKE, for all processes')
    out.line(
        f"next: elt move --remove-former {lake} (when you do not need the former tables any more)"
    )
    out.document({"from": lake.uri, "to": target.uri, "tables": contents.order})


def _remove_former(out: Output, lake: Location, former: Location) -> None:
    if former.uri == lake.uri:
        raise ConfigError(
            f"{former} is the present lake",
            guidance="set `lake` to the new root first; nothing was removed",
        )
    others = remove_former(former, lake, report=out.note)
    for other in others:
        out.warn(f"{other} is of no table, and stays")
    out.line(f"the tables of {former} are removed")
    out.document({"former": former.uri, "left": others})


def _cancel(out: Output, lake: Location) -> None:
    problems: list[str] = []
    target, contents = find_target(lake), list_contents(lake)
    dropped = [] if target is None else _drop_entries(target, lake, contents, problems)
    count = reopen(lake, report=out.note)
    problems += _renew_entries(lake, dropped)
    for problem in problems:
        out.warn(problem)
    out.line(f"{count} tables of {lake} can be written to again")
    out.document({"lake": lake.uri, "tables": count})


def _drop_entries(
    former: Location, lake: Location, contents: LakeContents, problems: list[str]
) -> list[LakeTable]:
    """Remove the tables at a former root from all places in which they are published.

    Args:
        problems: gets what could not be done.

    Returns:
        those that were published and are of no stream, at their present root.
    """
    connections = {
        asset.tables(lake).main.uri.removeprefix(f"{lake.uri}/"): asset.connection.name
        for asset in _list_assets()
    }
    others: list[LakeTable] = []
    for name in contents.order:
        levels = tuple(name.split("/"))
        connection = connections.get(contents.main_of(name))
        table = LakeTable(former.child(*levels), connection or connection_of(levels), levels)
        try:
            dropped = drop_published([table])
        except EltError as error:
            problems.append(f"the entry of {table.location} was not removed: {error.message}")
            continue
        if dropped and connection is None:
            others.append(replace(table, location=lake.child(*levels)))
    return others


def _renew_entries(lake: Location, others: Sequence[LakeTable]) -> Iterator[str]:
    """Let catalogs name the tables of streams, and others, as they are; yield what could not be done."""
    yield from follow_now(others).problems
    for asset in _list_assets():
        yield from follow_now(list_lake_tables(asset, asset.tables(lake))).problems


def _list_assets() -> Iterator[StreamAsset]:
    """Yield the streams whose rows are in the lake, of all connections that can be loaded."""
    for place in list_places():
        try:
            assets = assets_of(place)
        except EltError:  # its tables are moved; a sync renews their entries when it can be loaded
            continue
        yield from (asset for asset in assets if asset.connection.destination is None)
