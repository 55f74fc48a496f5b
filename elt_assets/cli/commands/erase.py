"""`elt erase`: removes rows of a stream from all that the lake has of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elt_assets.cli.assets import find_asset
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.errors import ConfigError
from elt_assets.lake.admin.erasure import Counts
from elt_assets.orchestration.erasing import ErasurePlan, ErasureRequest, describe
from elt_assets.orchestration.io_manager import open_lake
from elt_assets.orchestration.resources import open_instance

_LOST = (
    "With the rows go all older versions of the stream's tables, and the list of its older states: no "
    "restore and no `elt state set --sequence` goes back behind this."
)
_PLACES = {
    "rows": "rows of the table",
    "history": "rows of its history",
    "rejected": "rejected records",
    "hidden": "hidden rows (deletes, an unfinished refresh)",
    "rewritten": "files that are written again",
    "files": "files of older versions",
    "log_entries": "entries of the logs",
    "documents": "documents",
}


@subcommand(
    "erase",
    "elt erase shop/users --where \"email = 'ann@example.com'\" --dry-run",
    "elt erase shop/users --keys keys.csv --suppress --yes",
)
@click.argument("asset", metavar="ASSET")
@click.option(
    "--where", metavar="CONDITION", help="A condition in SQL on the columns of the table."
)
@click.option(
    "--keys",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with primary keys: CSV with a header, or lines of JSON.",
)
@click.option("--suppress", is_flag=True, help="Do not store records of these keys again.")
@click.option("--all", "everything", is_flag=True, help="Allow a condition that all rows meet.")
@click.option("--dry-run", is_flag=True, help="Show what would go, by place; nothing is changed.")
@click.option("--yes", is_flag=True, help="Erase without a question.")
def command(out: Output, asset: str, dry_run: bool, yes: bool, **selection: Any) -> int:
    """Erase rows of a stream from its table, history, rejected records, documents and older versions.

    A stream with a primary key is erased by key: every row of a key goes if one of them meets the condition.
    No run of the connection may be in progress. If the command is interrupted, run it again: it goes on.
    docs/data-protection.md says what is lost with the rows, and what is not covered.
    """
    request = ErasureRequest(**selection)
    with open_lake() as (lake, spark):
        plan = ErasurePlan(find_asset(asset), lake, spark, request)
        if dry_run:
            counts = plan.preview()
            _show(out, counts)
            out.line("nothing was changed")
            out.document({"asset": plan.asset.name, "dry_run": True, **describe(counts)})
            return OK
        if not yes:
            _ask(out, plan)
        with open_instance() as instance:
            erased = plan.carry_out(instance)
    counts = erased.counts
    _show(out, counts)
    if not counts.found:
        out.line(
            "no row was found; older versions and old entries of the logs were removed all the same"
        )
    home = erased.home
    for place in home.left:
        out.warn(f"a text of the erased rows is left in {place}")
    for sentence in erased.left:
        out.warn(sentence)
    if home.events or home.logs:
        out.line(f"replaced in {home.events} events and {home.logs} logs of Dagster's home")
    if request.suppress:
        out.line(f"{erased.suppressed} keys are suppressed: their records are not stored again")
    out.line(f"erasure {erased.id}: {counts.found} rows are gone from {plan.asset.name}")
    out.document(
        {
            "asset": plan.asset.name,
            "dry_run": False,
            "erasure": erased.id,
            "suppressed_keys": erased.suppressed,
            "staging_folders": erased.staged,
            "events": home.events,
            "logs": home.logs,
            **describe(counts),
        }
    )
    return OK


def _show(out: Output, counts: Counts) -> None:
    out.table(["place", "count"], [(text, getattr(counts, name)) for name, text in _PLACES.items()])
    if counts.unclear:
        out.warn(
            f"{counts.unclear} rejected records have, in a field that decides, a value that its column "
            "cannot have, so it is not known whether they are meant; they stay: select them by another "
            "column, or wait until maintenance removes them"
        )


def _ask(out: Output, plan: ErasurePlan) -> None:
    """Show what goes, and ask.

    Raises:
        ConfigError: nobody can answer.
        click.Abort: the answer is no.
    """
    if not out.asks:
        raise ConfigError(
            f"rows of {plan.asset.name} are to be erased, and nobody can answer a question here",
            guidance="add --yes if this is what you want, or --dry-run to see what goes",
        )
    _show(out, plan.preview())
    out.line(_LOST)
    click.confirm("Erase?", abort=True, err=True)
