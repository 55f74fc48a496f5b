"""`elt state`: a stream's state in hand."""

from __future__ import annotations

import argparse
import json
from typing import Any

from elt_assets import paths
from elt_assets.cli.finding import find_asset, parsed
from elt_assets.cli.output import OK, Document, Output, cut
from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.table import Table
from elt_assets.orchestration import states
from elt_assets.orchestration.status import open_instance
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.given_state import blob
from elt_assets.protocol.airbyte.sync_modes import APPEND

_WIDTH = 200
"""Characters of a state in a row of the history."""


def show(arguments: argparse.Namespace, out: Output) -> int:
    """`elt state show`."""
    asset, partition = _chosen(arguments)
    _tell(asset, partition, asset.tables(paths.lake(), partition).main, out)
    return OK


def history(arguments: argparse.Namespace, out: Output) -> int:
    """`elt state history`."""
    asset, partition = _chosen(arguments)
    found = states.history(asset, paths.lake(), partition)[: arguments.n]
    rows: list[Document] = [
        {
            "sequence": one.head.sequence,
            "time": one.time.isoformat(timespec="seconds"),
            "table_version": one.version,
            "generation": one.head.generation,
            "run_id": one.head.run_id,
            "state": _state(one.head),
        }
        for one in found
    ]
    names = ["sequence", "time", "version", "generation", "run", "state"]
    out.table(names, [[*list(row.values())[:-1], cut(_text(row["state"]), _WIDTH)] for row in rows])
    out.document({**_about(asset, partition), "states": rows})
    return OK


def set_(arguments: argparse.Namespace, out: Output) -> int:
    """`elt state set`."""
    if (arguments.state is None) == (arguments.sequence is None):
        raise ConfigError(
            "either a state or --sequence says where the next sync is to start",
            guidance="write elt state set ASSET '{…}', or elt state set ASSET --sequence N",
        )
    asset, partition = _chosen(arguments)
    given: Any = None if arguments.state is None else parsed(arguments.state, "the state")
    with open_instance() as instance:
        if arguments.sequence is None:
            tables = states.set_state(asset, paths.lake(), given, instance, partition)
        else:
            tables = states.rewind(asset, paths.lake(), arguments.sequence, instance, partition)
    _tell(asset, partition, tables.main, out)
    out.line("the next sync starts from this state; the rows are as they were")
    return OK


def reset(arguments: argparse.Namespace, out: Output) -> int:
    """`elt state reset`."""
    asset, partition = _chosen(arguments)
    with open_instance() as instance:
        tables = states.reset(asset, paths.lake(), instance, partition)
    _tell(asset, partition, tables.main, out)
    again = ", and appends all that it reads to them" if _appends(asset) else ""
    out.line(f"the next sync reads from the beginning{again}; the rows are as they were")
    return OK


def _chosen(arguments: argparse.Namespace) -> tuple[StreamAsset, str | None]:
    """The stream, and its partition.

    Raises:
        ConfigError: there is no such stream or partition.
    """
    asset = find_asset(arguments.asset)
    with open_instance() as instance:
        return asset, states.partition_of(asset, arguments.partition, instance)


def _tell(asset: StreamAsset, partition: str | None, table: Table, out: Output) -> None:
    head = table.head
    refresh = head.refresh
    answer = {
        **_about(asset, partition),
        "state": _state(head),
        "sequence": head.sequence,
        "generation": head.generation,
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
    """One that was begun; a sync goes on with it, from its own state."""
    text = blob(state)
    return {"generation": generation, "state": None if text is None else json.loads(text)}


def _about(asset: StreamAsset, partition: str | None) -> Document:
    return {"asset": asset.key.to_user_string(), "partition": partition}


def _state(head: CommitMetadata) -> Any:
    """What the source said of the stream."""
    text = blob(head.state)
    return None if text is None else json.loads(text)


def _text(state: Any) -> str | None:
    return None if state is None else json.dumps(state, ensure_ascii=False)


def _appends(asset: StreamAsset) -> bool:
    return asset.landed().destination_sync_mode == APPEND
