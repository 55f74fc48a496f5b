"""Building blocks of a source. `run` makes a source a program that uses the Airbyte Protocol."""

from connectors.sdk.cli import run
from connectors.sdk.source import Source
from connectors.sdk.stream import Checkpoint, Estimate, Item, Record, Stream

__all__ = ["Checkpoint", "Estimate", "Item", "Record", "Source", "Stream", "run"]
