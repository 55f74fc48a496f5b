"""`elt`: the command line beside Dagster's own."""

from elt_assets.cli.entry import main

__all__ = ["main"]
