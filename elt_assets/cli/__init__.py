"""`elt`: the command line of this project, in addition to Dagster's."""

from elt_assets.cli.entry import main

__all__ = ["main"]
