"""`elt state show` and `elt state history`."""

from __future__ import annotations

from elt_assets.cli.commands.state.group import (
    choose_stream,
    command,
    identify,
    parse_state,
    print_state,
    text_of,
)
from elt_assets.cli.output import (
    OK,
    Document,
    Output,
    asset_arguments,
    count_option,
    cut,
    subcommand,
)
from elt_assets.orchestration import states
from elt_assets.orchestration.io_manager import project_lake

_WIDTH = 200
"""Maximum length of a state in `elt state history`, in characters."""


@subcommand("show", "elt state show shop/users", group=command)
@asset_arguments
def show(out: Output, asset: str, partition: str | None) -> int:
    """Show the state that the next sync starts from."""
    chosen, key = choose_stream(asset, partition)
    print_state(chosen, key, chosen.tables(project_lake(), key).main, out)
    return OK


@subcommand("history", "elt state history shop/users -n 5", group=command)
@asset_arguments
@count_option("states")
def history(out: Output, asset: str, partition: str | None, count: int) -> int:
    """Show the acknowledged states, the newest first."""
    chosen, key = choose_stream(asset, partition)
    commits = states.history(chosen, project_lake(), key)[:count]
    rows: list[Document] = [
        {
            "sequence": commit.metadata.sequence,
            "time": commit.time.isoformat(timespec="seconds"),
            "table_version": commit.version,
            "generation": commit.metadata.generation,
            "run_id": commit.metadata.run_id,
            "state": parse_state(commit.metadata.state),
        }
        for commit in commits
    ]
    names = ["sequence", "time", "version", "generation", "run", "state"]
    out.table(
        names, [[*list(row.values())[:-1], cut(text_of(row["state"]), _WIDTH)] for row in rows]
    )
    out.document({**identify(chosen, key), "states": rows})
    return OK
