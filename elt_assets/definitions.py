"""The Definitions object of the project, assembled from its connections."""

from __future__ import annotations

import dagster as dg

from elt_assets import paths
from elt_assets.orchestration.project_definitions import definitions_for


def build() -> dg.Definitions:
    """Return the definitions of every connection of the project (see `definitions_for`)."""
    return definitions_for(paths.connections())


defs = build()
