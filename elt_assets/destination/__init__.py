"""`elt-destination`: the lake as an Airbyte destination."""

from elt_assets.destination.entry import main

__all__ = ["main"]
