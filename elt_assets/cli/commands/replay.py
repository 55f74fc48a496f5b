"""`elt replay`: processes the records of the dead letter tables again."""

from __future__ import annotations

from collections.abc import Sequence

import click

from elt_assets.cli.assets import assets_of, select_streams
from elt_assets.cli.output import OK, Document, Output, connection_argument, subcommand
from elt_assets.cli.sync_report import list_losses, print_losses
from elt_assets.connection import find_place
from elt_assets.orchestration.io_manager import open_lake
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.table_jobs import replay_stream
from elt_assets.pipeline.progress import SyncFigures


@subcommand("replay", "elt replay shop", "elt replay shop users orders")
@connection_argument()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
def command(out: Output, connection: str, streams: Sequence[str]) -> int:
    """Process the records of the dead letter tables again, for all streams or the named ones.

    Records that are now valid go to the tables of their streams. The others stay in the dead letter table.
    """
    selected = select_streams(connection, assets_of(find_place(connection)), streams)
    answers: list[Document] = []
    with open_lake() as (lake, spark), open_instance() as instance:
        for name, asset in selected.items():
            done = replay_stream(asset, lake, spark, instance)
            figures = done or SyncFigures()
            replayed, rejected = figures.committed, figures.rejected
            result = f"{replayed} records replayed, {rejected} rejected again"
            out.line(f"{name}: {'no dead letters' if done is None else result}")
            print_losses(out, name, figures)
            counts = {"replayed": replayed, "rejected": rejected, "changed": figures.changed}
            answers.append({"stream": name, **counts, **list_losses(figures)})
    out.document({"connection": connection, "streams": answers})
    return OK
