"""`elt verify`: compares tables with their source, and corrects them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from elt_assets.cli.assets import assets_of, find_asset, select_streams
from elt_assets.cli.output import FAILED, OK, Document, Output, subcommand
from elt_assets.connection import find_place, list_places
from elt_assets.errors import ConfigError, EltError
from elt_assets.orchestration.io_manager import open_lake
from elt_assets.orchestration.renaming import refuse_running
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.verifying import Verification, Verified, Verifier
from elt_assets.pipeline.comparison import ComparisonOptions


@subcommand(
    "verify",
    "elt verify shop",
    "elt verify shop/orders --repair",
    "elt verify shop/orders --sweep --at-most 0.2",
)
@click.argument("target", metavar="CONNECTION|ASSET")
@click.option("--repair", is_flag=True, help="Correct what differs, in one commit for each stream.")
@click.option(
    "--columns", metavar="FIELDS", help="Compare these fields only: names with commas between them."
)
@click.option(
    "--sweep",
    is_flag=True,
    help="Compare keys only, and remove rows that the source no longer has.",
)
@click.option(
    "--at-most",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="With --sweep: the largest share of rows that may be removed.",
)
@click.option("--no-sync", is_flag=True, help="Do not sync a stream whose table is behind its log.")
def command(
    out: Output,
    target: str,
    repair: bool,
    columns: str | None,
    sweep: bool,
    at_most: float,
    no_sync: bool,
) -> int:
    """Compare the tables of streams with their source, range by range of the key.

    The exit code is 1 if something differs, and was not corrected. docs/trust.md says what is compared.
    """
    if sweep and (repair or columns is not None):
        raise ConfigError(
            "--sweep compares keys only, and goes with neither --repair nor --columns",
            guidance="leave out --sweep, or the others",
        )
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    verification = Verification(
        ComparisonOptions(() if sweep else names),
        repairs=repair,
        sweeps=at_most if sweep else None,
        syncs=not no_sync,
    )
    group, selected = _select(target)
    answers: list[Document] = []
    failed = False
    with open_lake() as (lake, spark), open_instance() as instance:
        verifier = Verifier(group, lake, spark, instance, out.log)
        for name, asset in selected.items():
            try:
                if repair or sweep:
                    refuse_running(instance, asset)
                verified = verifier.verify(asset, verification)
            except EltError as error:
                if len(selected) == 1:
                    raise
                out.verdict("failed", f"{name}: {error}", good=False)
                answers.append({"stream": name, "passed": False, "error": str(error)})
                failed = True
                continue
            _show(out, name, verified)
            failed |= not verified.passed
            answers.append({"stream": name, "passed": verified.passed, **verified.document()})
    out.document({"target": target, "streams": answers})
    return FAILED if failed else OK


def _select(target: str) -> tuple[Sequence[StreamAsset], dict[str, StreamAsset]]:
    """Return all streams of the connection, and those that are verified, by their names."""
    if "/" not in target or any(place.name == target for place in list_places()):
        group = assets_of(find_place(target))
        return group, select_streams(target, group, ())
    asset = find_asset(target)
    group = assets_of(find_place(asset.connection.name))
    return group, {asset.name: asset}


def _show(out: Output, name: str, verified: Verified) -> None:
    word = "equal" if verified.passed else "different"
    if verified.corrected and verified.passed:
        word = "corrected"
    out.verdict(word, f"{name}: {verified.describe()}", good=verified.passed)
    for entry in verified.list_keys():
        columns = f" ({', '.join(entry['columns'])})" if "columns" in entry else ""
        out.line(f"  {entry['is']}: {', '.join(map(str, entry['key']))}{columns}")
    for field, reason in verified.findings.left_out.items():
        if out.is_verbose:
            out.line(f"  not compared: {field}: {reason}")
