"""`elt rename`: moves the tables and the state of a stream whose names have changed."""

from __future__ import annotations

from collections.abc import Mapping

import click

from elt_assets.cli.assets import assets_of
from elt_assets.cli.lookup import find_stream
from elt_assets.cli.output import OK, Output, connection_argument, subcommand
from elt_assets.connection import find_place
from elt_assets.errors import ConfigError
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.renaming import rename_tables
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.protocol.catalog import StreamId


@subcommand(
    "rename",
    "elt rename shop users customers",
    "elt rename shop shop/users raw/crm_users",
)
@connection_argument()
@click.argument("former", metavar="STREAM_OR_TABLE")
@click.argument("new")
def command(out: Output, connection: str, former: str, new: str) -> int:
    """Move the table of a stream, its companions and its state to the names that defs.yaml has now.

    Write the new names in defs.yaml first: the `name` of the stream, its `table`, or the `prefix` or
    `namespace` of the connection. STREAM_OR_TABLE is the former name of the stream or of its table, or the
    path of the table (NAMESPACE/TABLE). NEW is the stream as it is called now, or its table.

    No sync of the connection may be running. If the command is interrupted, run it again: it goes on.
    """
    assets = {asset.stream.id: asset for asset in assets_of(find_place(connection))}
    asset = _find(connection, assets, new)
    with open_instance() as instance:
        renamed = rename_tables(asset, project_lake(), former, instance)
    elsewhere = asset.connection.destination is not None
    out.line(f"{asset.name}: {renamed.source} is now {renamed.target}")
    if elsewhere:
        out.warn(
            "only the state was moved: rename the table in the destination as well, to "
            f"{asset.destination_name}"
        )
    for warning in renamed.warnings:
        out.warn(warning)
    out.document(
        {
            "asset": asset.key.to_user_string(),
            "former": renamed.source,
            "table": renamed.target,
            "partitions": [key for key in renamed.partitions if key is not None],
        }
    )
    return OK


def _find(connection: str, assets: Mapping[StreamId, StreamAsset], name: str) -> StreamAsset:
    """Return the stream with a present name: its own, or that of its table.

    Raises:
        ConfigError: no stream has the name, or several.
    """
    by_table = [
        asset
        for asset in assets.values()
        if name in (asset.table_path.levels[-1], "/".join(asset.table_path.levels))
    ]
    try:
        return assets[find_stream(connection, assets, name)]
    except ConfigError as error:
        if len(by_table) == 1:
            return by_table[0]
        error.guidance = (
            f"{error.guidance}; write the new name in defs.yaml first, then run the command"
        )
        raise
