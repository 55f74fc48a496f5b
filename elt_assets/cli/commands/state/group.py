"""The group of the sub-commands of `elt state`, and what they share."""

from __future__ import annotations

import json
from typing import Any

import click

from elt_assets.cli.assets import find_asset
from elt_assets.cli.output import Document, Output
from elt_assets.lake.delta.table import Table
from elt_assets.orchestration import states
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.stream_plan import source_state


@click.group("state")
def command() -> None:
    """Show, set, restore or reset the state of a stream.

    ASSET is the asset key of the stream, for example shop/users.
    """


def choose_stream(asset: str, partition: str | None) -> tuple[StreamAsset, str | None]:
    """Return the stream of an asset key, and its partition.

    Raises:
        ConfigError: there is no such stream or partition.
    """
    stream_asset = find_asset(asset)
    with open_instance() as instance:
        return stream_asset, states.partition_of(stream_asset, partition, instance)


def print_state(asset: StreamAsset, partition: str | None, table: Table, out: Output) -> None:
    """Print the state that the next sync starts from, with its commit."""
    metadata = table.metadata
    refresh = metadata.refresh
    answer = {
        **identify(asset, partition),
        "state": parse_state(metadata.state),
        "sequence": metadata.sequence,
        "generation": metadata.generation,
        "table_version": table.version if table.exists else None,
        "table": table.uri,
        "refresh": None  # the next sync resumes it from its own state
        if refresh is None
        else {"generation": refresh.generation, "state": parse_state(refresh.state)},
    }
    state_text = text_of(answer["state"]) or "none: the next sync reads from the beginning"
    texts = {**answer, "state": state_text, "refresh": text_of(answer["refresh"])}
    out.table(["", ""], [(name, text) for name, text in texts.items() if text is not None])
    out.document(answer)


def identify(asset: StreamAsset, partition: str | None) -> Document:
    """Return the part of an answer that names the stream and its partition."""
    return {"asset": asset.key.to_user_string(), "partition": partition}


def parse_state(state: str | None) -> Any:
    """Return the state of the stream as the source wrote it, from the text in a commit."""
    text = source_state(state)
    return None if text is None else json.loads(text)


def text_of(state: Any) -> str | None:
    """Return a JSON value as text; None if there is no value."""
    return None if state is None else json.dumps(state, ensure_ascii=False)
