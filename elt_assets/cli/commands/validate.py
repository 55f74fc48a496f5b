"""`elt validate`: checks that Dagster can load the connections."""

from __future__ import annotations

from elt_assets import paths
from elt_assets.cli.output import FAILED, OK, Document, Output, connection_argument, subcommand
from elt_assets.connection import check_names, check_overlays, find_place, list_places
from elt_assets.errors import ConfigError
from elt_assets.orchestration.build import check_together
from elt_assets.orchestration.component import ConnectionComponent


@subcommand("validate", "elt validate", "elt validate shop", "elt validate --json")
@connection_argument(required=False)
def command(out: Output, connection: str | None) -> int:
    """Check that Dagster can load a connection, or all connections.

    Every connection is checked, also after an error in one. A connection is checked in three steps: its
    defs.yaml, its streams against catalog.json, its assets, schedules and sensors. A step lists all problems
    that it finds; the next step is taken when there are none. No connector, Spark or Dagster process is
    started, and no secret is needed. The exit code is 1 if there is an error.
    """
    places = list_places() if connection is None else [find_place(connection)]
    if not places:
        out.line(f"there are no connections in {paths.connections()}")
    loaded, answers = [], []
    for place in places:
        answer: Document = {"connection": place.name, "error": None}
        try:
            loaded.append(ConnectionComponent.load_at(place).definitions())
            out.verdict("valid", place.name, good=True)
        except ConfigError as error:
            answer["error"] = _refuse(error, f"{place.name}: {error}", out)
        answers.append(answer)
    together = None
    try:
        check_names(places)
        check_overlays(paths.connections())
        check_together(loaded)
    except ConfigError as error:
        together = _refuse(error, str(error), out)
    out.document({"connections": answers, "error": together})
    return FAILED if together or any(answer["error"] for answer in answers) else OK


def _refuse(error: ConfigError, text: str, out: Output) -> Document:
    """Print an error for people, and return it for machines."""
    out.verdict("invalid", text, good=False)
    return {"message": error.message, "guidance": error.guidance}
