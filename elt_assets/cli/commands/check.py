"""`elt check`: checks a connection and whether its source can be reached."""

from __future__ import annotations

from elt_assets import paths
from elt_assets.cli.lookup import start_connector
from elt_assets.cli.output import FAILED, OK, Output, connection_argument, subcommand
from elt_assets.connection import find_place, load_connection
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.pipeline.connectors import make_destination
from elt_assets.runner.references import list_unknown_fields


@subcommand("check", "elt check shop", "elt check shop --json")
@connection_argument()
def command(out: Output, connection: str) -> int:
    """Check a connection, and whether its source can be reached with this config.

    If the connection has a destination, the destination is checked too. The exit code is 1 if one of them
    cannot be reached.
    """
    place = find_place(connection)
    loaded = load_connection(place)
    if place.catalog.exists():
        ConnectionComponent.load_at(place).definitions()
    else:
        out.note(f"the streams are not checked: run `elt discover {place.name}` first")
    connector = start_connector(loaded, out)
    schema = connector.specification.connectionSpecification
    for warning in list_unknown_fields(loaded.source.config, schema):
        out.warn(warning)
    answer = connector.check()
    destination = make_destination(loaded, paths.staging(), on_log=out.log)
    if answer.succeeded and destination is not None:
        out.note(f"starting the destination {destination.name}")
        connector, answer = destination, destination.check()
    message = answer.message or None
    result = ": ".join(filter(None, (loaded.name, connector.name, message)))
    out.verdict("succeeded" if answer.succeeded else "failed", result, good=answer.succeeded)
    out.document(
        {
            "connection": loaded.name,
            "connector": connector.name,
            "succeeded": answer.succeeded,
            "message": message,
        }
    )
    return OK if answer.succeeded else FAILED
