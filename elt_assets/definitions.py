"""The Definitions object of the project, assembled from its connections."""

from __future__ import annotations

import dagster as dg

from elt_assets import paths
from elt_assets.orchestration.project_definitions import definitions_for
from elt_assets.orchestration.runs.executor import executor


def build() -> dg.Definitions:
    """Return the definitions of every connection of the project (see `definitions_for`)."""
    connections = definitions_for(paths.connections())
    return dg.Definitions.merge(connections, dg.Definitions(executor=executor))


defs = build()
