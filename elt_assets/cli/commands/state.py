"""`elt state`: shows and changes the state of a stream."""

from __future__ import annotations

import json
from typing import Any

import click

from elt_assets import paths
from elt_assets.cli.lookup import find_asset, parse_json
from elt_assets.cli.options import asset_arguments, count_option, subcommand
from elt_assets.cli.output import OK, Document, Output, cut
from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.orchestration import states
from elt_assets.orchestration.status import open_instance
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.given_state import source_state
from elt_assets.protocol.airbyte.sync_modes import APPEND

_WIDTH = 200
"""Maximum length of a state in `elt state history`, in characters."""


@click.group("state")
def command() -> None:
    """Show, set, restore or reset the state of a stream.

    ASSET is the asset key of the stream, for example shop/users.
    """


@subcommand("show", "elt state show shop/users", group=command)
@asset_arguments
def show(out: Output, asset: str, partition: str | None) -> int:
    """Show the state that the next sync starts from."""
    chosen, key = _chosen(asset, partition)
    _print(chosen, key, chosen.tables(paths.lake(), key).main, out)
    return OK


@subcommand("history", "elt state history shop/users -n 5", group=command)
@asset_arguments
@count_option("states")
def history(out: Output, asset: str, partition: str | None, count: int) -> int:
    """Show the acknowledged states, the newest first."""
    chosen, key = _chosen(asset, partition)
    found = states.history(chosen, paths.lake(), key)[:count]
    rows: list[Document] = [
        {
            "sequence": one.metadata.sequence,
            "time": one.time.isoformat(timespec="seconds"),
            "table_version": one.version,
            "generation": one.metadata.generation,
            "run_id": one.metadata.run_id,
            "state": _state(one.metadata),
        }
        for one in found
    ]
    names = ["sequence", "time", "version", "generation", "run", "state"]
    out.table(names, [[*list(row.values())[:-1], cut(_text(row["state"]), _WIDTH)] for row in rows])
    out.document({**_about(chosen, key), "states": rows})
    return OK


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
    chosen, key = _chosen(asset, partition)
    given: Any = None if state is None else parse_json(state, "the state")
    with open_instance() as instance:
        if sequence is None:
            tables = states.set_state(chosen, paths.lake(), given, instance, key)
        else:
            tables = states.rewind(chosen, paths.lake(), sequence, instance, key)
    _print(chosen, key, tables.main, out)
    out.line("the next sync starts from this state; the rows of the table did not change")
    return OK


@subcommand("reset", "elt state reset shop/users", group=command)
@asset_arguments
def reset(out: Output, asset: str, partition: str | None) -> int:
    """Make the next sync read from the beginning. The rows of the table do not change."""
    chosen, key = _chosen(asset, partition)
    with open_instance() as instance:
        tables = states.reset(chosen, paths.lake(), instance, key)
    _print(chosen, key, tables.main, out)
    appended = ", and appends all records that it reads" if _appends(chosen) else ""
    out.line(
        f"the next sync reads from the beginning{appended}; the rows of the table did not change"
    )
    return OK


def _chosen(asset: str, partition: str | None) -> tuple[StreamAsset, str | None]:
    """Return the stream of an asset key, and its partition.

    Raises:
        ConfigError: there is no such stream or partition.
    """
    found = find_asset(asset)
    with open_instance() as instance:
        return found, states.partition_of(found, partition, instance)


def _print(asset: StreamAsset, partition: str | None, table: Table, out: Output) -> None:
    metadata = table.metadata
    refresh = metadata.refresh
    answer = {
        **_about(asset, partition),
        "state": _state(metadata),
        "sequence": metadata.sequence,
        "generation": metadata.generation,
        "table_version": table.version if table.exists else None,
        "table": table.uri,
        "refresh": None if refresh is None else _refresh(refresh.generation, refresh.state),
    }
    texts = {
        **answer,
        "state": _text(answer["state"]) or "none: the next sync reads from the beginning",
        "refresh": _text(answer["refresh"]),
    }
    out.table(["", ""], [(name, text) for name, text in texts.items() if text is not None])
    out.document(answer)


def _refresh(generation: int, state: str | None) -> Document:
    """Describe an unfinished refresh, which the next sync resumes from the refresh's own state."""
    text = source_state(state)
    return {"generation": generation, "state": None if text is None else json.loads(text)}


def _about(asset: StreamAsset, partition: str | None) -> Document:
    return {"asset": asset.key.to_user_string(), "partition": partition}


def _state(metadata: CommitMetadata) -> Any:
    """Return the state of the stream as the source wrote it."""
    text = source_state(metadata.state)
    return None if text is None else json.loads(text)


def _text(state: Any) -> str | None:
    return None if state is None else json.dumps(state, ensure_ascii=False)


def _appends(asset: StreamAsset) -> bool:
    return asset.landed().destination_sync_mode == APPEND
