"""`elt-destination` and `target-elt`: the lake as an Airbyte destination and as a Singer target."""

from elt_assets.destination.entry import main

__all__ = ["main"]
