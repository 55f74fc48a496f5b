"""`elt reset`: makes streams of a connection start again, with or without their rows."""

from __future__ import annotations

import click

from elt_assets import paths
from elt_assets.cli.assets import assets_of, select_streams
from elt_assets.cli.output import OK, Document, Output, connection_argument, subcommand
from elt_assets.connection import find_place, load_connection
from elt_assets.connection.places import ConnectionPlace
from elt_assets.errors import ConfigError, EltError
from elt_assets.orchestration import states
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.resources import open_instance
from elt_assets.pipeline.connectors import make_source
from elt_assets.runner.kinds import KINDS

_RELEASE_SECONDS = 60


@subcommand(
    "reset", "elt reset shop", "elt reset shop users orders", "elt reset shop users --data --yes"
)
@connection_argument()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@click.option("--data", is_flag=True, help="Remove the rows of the tables as well.")
@click.option("--yes", is_flag=True, help="Remove the rows without a question; needed for --data.")
def command(out: Output, connection: str, streams: tuple[str, ...], data: bool, yes: bool) -> int:
    """Make the next sync of the streams, or of all, read from the beginning.

    The rows stay, unless --data is written. For one stream and one partition: `elt state reset`. If all
    streams are reset, the source gives up what it keeps on its server, such as a replication slot.
    """
    place = find_place(connection)
    assets = assets_of(place)
    selected = list(select_streams(place.name, assets, streams).values())
    if data and not yes:
        keys = ", ".join(asset.key.to_user_string() for asset in selected)
        raise ConfigError(
            f"--data removes all rows of {keys}", guidance="add --yes if this is what you want"
        )
    if data:
        for asset in selected:
            states.refuse_removal(asset)
    with open_instance() as instance:
        lake = project_lake()
        answers: list[Document] = []
        for asset in selected:
            answer: Document = {"asset": asset.key.to_user_string(), "partitions": None}
            if data:
                answer["rows"] = states.remove_rows(asset, lake, instance)
            else:
                answer["partitions"] = states.reset_partitions(asset, lake, instance)
            answers.append(answer)
    if len(selected) == len(assets):
        _release(place, out)
    names = ["stream", "partitions reset"] + (["rows removed"] if data else [])
    out.table(names, [list(answer.values()) for answer in answers])
    rows = "are gone" if data else "did not change"
    out.line(f"the next sync reads these streams from the beginning; the rows of the tables {rows}")
    out.document({"connection": place.name, "streams": answers})
    return OK


def _release(place: ConnectionPlace, out: Output) -> None:
    """Let the source give up what it keeps on its server; warn if it cannot."""
    connection = load_connection(place)
    if not KINDS[connection.source.kind].releases:
        return
    try:
        make_source(connection, paths.staging(), on_log=out.log).release(seconds=_RELEASE_SECONDS)
    except EltError as error:
        out.warn(f"what the source keeps on its server may be left there: {error}")
