"""`elt state set` and `elt state reset`."""

from __future__ import annotations

from typing import Any

import click

from elt_assets.cli.commands.state.group import choose_stream, command, print_state
from elt_assets.cli.lookup import parse_json
from elt_assets.cli.output import OK, Output, asset_arguments, subcommand
from elt_assets.errors import ConfigError
from elt_assets.orchestration import states
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.resources import open_instance
from elt_assets.protocol.catalog import APPEND


@subcommand(
    "set",
    'elt state set shop/users \'{"updated_at": "2026-01-01"}\'',
    "elt state set shop/users @state.json",
    "elt state set shop/users --sequence 2",
    group=command,
)
@asset_arguments
@click.argument("state", required=False)
@click.option(
    "--sequence", type=int, help="Restore the state of this commit (see `elt state history`)."
)
def set_(
    out: Output, asset: str, partition: str | None, state: str | None, sequence: int | None
) -> int:
    """Make the next sync start from another state. The rows of the table do not change.

    STATE is the state of the stream as the source writes it, or a whole STATE message: JSON, or @FILE.
    """
    if (state is None) == (sequence is None):
        raise ConfigError(
            "write either a state or --sequence",
            guidance="elt state set ASSET '{…}', or elt state set ASSET --sequence N",
        )
    chosen, key = choose_stream(asset, partition)
    new_state: Any = None if state is None else parse_json(state, "the state")
    with open_instance() as instance:
        if sequence is None:
            tables = states.set_state(chosen, project_lake(), new_state, instance, key)
        else:
            tables = states.rewind(chosen, project_lake(), sequence, instance, key)
    print_state(chosen, key, tables.main, out)
    out.line("the next sync starts from this state; the rows of the table did not change")
    return OK


@subcommand("reset", "elt state reset shop/users", group=command)
@asset_arguments
def reset(out: Output, asset: str, partition: str | None) -> int:
    """Make the next sync read from the beginning. The rows of the table do not change."""
    chosen, key = choose_stream(asset, partition)
    with open_instance() as instance:
        tables = states.reset(chosen, project_lake(), instance, key)
    print_state(chosen, key, tables.main, out)
    appends = chosen.make_stored_stream().destination_sync_mode == APPEND
    appended = ", and appends all records that it reads" if appends else ""
    out.line(
        f"the next sync reads from the beginning{appended}; the rows of the table did not change"
    )
    return OK
