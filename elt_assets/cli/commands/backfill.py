"""`elt backfill`: fills new columns of rows that a table has already."""

from __future__ import annotations

import click

from elt_assets.cli.assets import find_asset
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.orchestration.backfilling import backfill_columns
from elt_assets.orchestration.io_manager import open_lake
from elt_assets.orchestration.resources import open_instance


@subcommand(
    "backfill",
    "elt backfill shop/orders --columns discount",
    "elt backfill shop/orders --columns discount,note --history all",
)
@click.argument("key", metavar="CONNECTION/STREAM")
@click.option("--columns", required=True, help="The columns to fill, separated by commas.")
@click.option(
    "--history",
    type=click.Choice(["current", "all"]),
    default="current",
    help="Which versions in a history get the values: the current one of each row, or all.",
)
def command(out: Output, key: str, columns: str, history: str) -> int:
    """Fill new columns of rows that the table has already with the values of the source.

    Key and columns are read in full, and nulls in the columns become values, in one commit. Whatever a sync
    brings meanwhile wins. The state does not change. Killed and run again, it ends the same.
    """
    asset = find_asset(key)
    names = [name.strip() for name in columns.split(",") if name.strip()]
    with open_lake() as (lake, spark), open_instance() as instance:
        done, absent = backfill_columns(
            asset,
            names,
            (lake, spark, instance),
            out.log,
            all_versions=history == "all",
        )
    versions = f", {done.versions:,} versions in the history" if asset.settings.history else ""
    out.line(f"{done.read:,} rows read, {done.rows:,} rows filled{versions}")
    for name in absent:
        out.warn(f"the source gave no value of {name}: it is null in all rows that it has")
    out.document(
        {
            "asset": key,
            "columns": names,
            "read": done.read,
            "values": dict(done.values),
            "rows": done.rows,
            "versions": done.versions,
        }
    )
    return OK
