"""Reads of the source in this process, as a destination on a pipe sees them, and slice by slice."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from connectors.mysql.source import MySql
from connectors.sdk.slices import SlicedStream
from elt_assets.protocol.catalog import ConfiguredStream
from tests.connectors.support import output_of
from tests.support.mariadb import MariaDb

Json = dict[str, Any]


def open_stream(server: MariaDb, name: str, **config: Any) -> SlicedStream:
    source = MySql()
    source.selected = [name]
    (stream,) = source.open(server.config(**config))
    assert isinstance(stream, SlicedStream)
    return stream


def configure(stream: SlicedStream, cursor: str | None = None) -> Json:
    mode = {"sync_mode": "incremental" if cursor else "full_refresh"}
    document = {"stream": _describe(stream), "destination_sync_mode": "append", **mode}
    return {**document, "cursor_field": [cursor]} if cursor else document


def _describe(stream: SlicedStream) -> Json:
    described: Json = json.loads(stream.describe().to_json())
    return described


def make_configured_stream(stream: SlicedStream, cursor: str | None = None) -> ConfiguredStream:
    return ConfiguredStream.from_json(json.dumps(configure(stream, cursor)).encode())


def messages(
    server: MariaDb,
    folder: Path,
    name: str,
    *,
    cursor: str | None = None,
    state: Json | None = None,
    **config: Any,
) -> list[Json]:
    """The messages of a read, with all digits of numbers. `state`: that of the stream."""
    stream = open_stream(server, name, **config)
    descriptor = {"name": name, "namespace": stream.namespace}
    files: Json = {"catalog": {"streams": [configure(stream, cursor)]}}
    if state is not None:
        own = {"stream_descriptor": descriptor, "stream_state": state}
        files["state"] = [{"type": "STREAM", "stream": own}]
    _, output = output_of(MySql(), folder, "read", config=server.config(**config), **files)
    return [json.loads(line, parse_float=Decimal) for line in output.splitlines()]


def states(output: list[Json]) -> list[Json]:
    """The states of the stream in the messages of a read."""
    stream_states = [m["state"]["stream"] for m in output if m["type"] == "STATE"]
    return [state["stream_state"] for state in stream_states]
