"""`elt list`: lists the connections, or the streams of one."""

from __future__ import annotations

from elt_assets import paths
from elt_assets.cli.assets import assets_of
from elt_assets.cli.options import connection_argument, subcommand
from elt_assets.cli.output import FAILED, OK, Document, Output
from elt_assets.connection import (
    Connection,
    ConnectionPlace,
    find_place,
    list_places,
    load_connection,
)
from elt_assets.errors import ConfigError
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.airbyte.catalog import stream_names

_CONNECTION = ("connection", "source", "destination", "streams", "schedule")
_STREAM = ("stream", "asset", "sync_mode", "destination_sync_mode", "partitions", "schedule")


@subcommand("list", "elt list", "elt list shop", "elt list --json")
@connection_argument(required=False)
def command(out: Output, connection: str | None) -> int:
    """List the connections; or the streams of one connection, with their asset keys.

    The exit code is 1 if a connection cannot be loaded.
    """
    if connection is not None:
        place = find_place(connection)
        streams = _streams(assets_of(place))
        _table(_STREAM, streams, out)
        out.document({"connection": place.name, "streams": streams})
        return OK
    places = list_places()
    documents = [_connection(place, out) for place in places]
    loaded = [document for document in documents if document is not None]
    _table(_CONNECTION, loaded, out)
    if not places:
        out.line(f"there are no connections in {paths.connections()}; create one with `elt new`")
    out.document({"connections": loaded})
    return OK if len(loaded) == len(places) else FAILED


def _connection(place: ConnectionPlace, out: Output) -> Document | None:
    """Describe a connection. Return None, and show a warning, if it cannot be loaded."""
    try:
        connection = load_connection(place)
    except ConfigError as error:
        out.warn(f"{place.name} cannot be loaded: {error}")
        return None
    source, destination = connection.source, connection.destination
    return {
        "connection": place.name,
        "source": f"{source.kind}: {_text(source.value)}",
        "destination": "lake" if destination is None else _text(destination.value),
        "streams": len(connection.streams),
        "schedule": _schedule(connection),
    }


def _schedule(connection: Connection) -> str | None:
    if connection.schedule is not None:
        return connection.schedule
    return "per stream" if any(stream.schedule for stream in connection.streams) else None


def _streams(assets: list[StreamAsset]) -> list[Document]:
    names = stream_names([asset.stream.id for asset in assets])
    return [
        {
            "stream": names[asset.stream.id],
            "asset": asset.key.to_user_string(),
            "sync_mode": asset.stream.sync_mode,
            "destination_sync_mode": asset.stream.destination_sync_mode,
            "partitions": asset.settings.partitions and asset.settings.partitions.type,
            "schedule": asset.settings.schedule or asset.connection.schedule,
        }
        for asset in assets
    ]


def _table(columns: tuple[str, ...], rows: list[Document], out: Output) -> None:
    names = [name.replace("_", " ") for name in columns]
    out.table(names, [[row[name] for name in columns] for row in rows])


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
