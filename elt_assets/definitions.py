"""The Definitions object of the project, assembled from its connections; `workspace.yaml` names it."""

from __future__ import annotations

import dagster as dg

from elt_assets import paths
from elt_assets.orchestration.collector import pause_collector

with pause_collector():
    from elt_assets.orchestration.io_manager import resources
    from elt_assets.orchestration.project import definitions_for
    from elt_assets.orchestration.resources import IO_MANAGER_KEY
    from elt_assets.orchestration.runs.executor import add_executor


def build() -> dg.Definitions:
    """Return the definitions of every connection of the project (see `definitions_for`).

    The default IO manager of this project stores frames as tables, too.
    """
    shared = resources()
    default = {"io_manager": shared[IO_MANAGER_KEY]} if "io_manager" not in shared else {}
    own = dg.Definitions(resources=default)
    return add_executor(dg.Definitions.merge(definitions_for(paths.connections()), own))


defs = build()
