"""`elt list`: lists the connections, or the streams of one."""

from __future__ import annotations

from collections.abc import Iterator

from elt_assets import paths
from elt_assets.cli.assets import assets_of
from elt_assets.cli.output import FAILED, OK, Document, Output, connection_argument, subcommand
from elt_assets.connection import ConnectionPlace, find_place, list_places, load_connection
from elt_assets.errors import ConfigError
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.catalog import stream_names

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
        streams = _list_streams(assets_of(place))
        _print(_STREAM, streams, out)
        out.document({"connection": place.name, "streams": streams})
        return OK
    places = list_places()
    loaded = [document for place in places for document in _describe(place, out)]
    _print(_CONNECTION, loaded, out)
    if not places:
        out.line(f"there are no connections in {paths.connections()}; create one with `elt new`")
    out.document({"connections": loaded})
    return OK if len(loaded) == len(places) else FAILED


def _describe(place: ConnectionPlace, out: Output) -> Iterator[Document]:
    """Yield a description of a connection; show a warning instead if it cannot be loaded."""
    try:
        connection = load_connection(place)
    except ConfigError as error:
        out.warn(f"{place.name} cannot be loaded: {error}")
        return
    source, destination = connection.source, connection.destination
    has_own = any(stream.schedule for stream in connection.streams)
    yield {
        "connection": place.name,
        "source": f"{source.kind}: {_join(source.value)}",
        "destination": "lake" if destination is None else _join(destination.value),
        "streams": len(connection.streams),
        "schedule": connection.schedule or ("per stream" if has_own else None),
    }


def _list_streams(assets: list[StreamAsset]) -> list[Document]:
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


def _print(columns: tuple[str, ...], rows: list[Document], out: Output) -> None:
    names = [name.replace("_", " ") for name in columns]
    out.table(names, [[row[name] for name in columns] for row in rows])


def _join(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
