"""`elt validate`: whether connections can be loaded."""

from __future__ import annotations

import argparse

from elt_assets import paths
from elt_assets.cli.finding import connection_folders, folder_of
from elt_assets.cli.output import FAILED, OK, Document, Output
from elt_assets.connection import load_connection
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.build import check_together
from elt_assets.orchestration.component import ConnectionComponent


def validate(arguments: argparse.Namespace, out: Output) -> int:
    """`elt validate`. It finds what keeps Dagster from loading the connections; nothing is started."""
    one = arguments.connection
    folders = connection_folders() if one is None else [folder_of(one)]
    if not folders:
        out.line(f"there are no connections in {paths.connections()}")
    loaded, answers = [], []
    for folder in folders:
        error = None
        try:
            loaded.append(ConnectionComponent.of(load_connection(folder)).definitions(folder))
        except ConfigError as found:
            error = found
        out.verdict("invalid" if error else "valid", _line(folder.name, error), good=error is None)
        answers.append({"connection": folder.name, "error": _document(error)})
    together = None
    try:
        check_together(loaded)
    except ConfigError as error:
        together = error
        out.verdict("invalid", str(error), good=False)
    out.document({"connections": answers, "error": _document(together)})
    return FAILED if together or any(each["error"] for each in answers) else OK


def _line(name: str, error: ConfigError | None) -> str:
    return name if error is None else f"{name}: {error}"


def _document(error: ConfigError | None) -> Document | None:
    return None if error is None else {"message": error.message, "guidance": error.guidance}
