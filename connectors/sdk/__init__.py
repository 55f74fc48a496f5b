"""Building blocks of a source. `run` makes a source a program that uses the Airbyte Protocol."""

from connectors.sdk.cli import run
from connectors.sdk.declared_stream import DeclaredStream
from connectors.sdk.items import (
    Checkpoint,
    Context,
    Document,
    Estimate,
    Item,
    Measure,
    Page,
    Record,
    Slice,
    Wait,
    Warn,
)
from connectors.sdk.slices import SlicedStream
from connectors.sdk.source import Source
from connectors.sdk.state.bookmark import InvalidStreamSortException
from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError, SystemFailure, TransientError

__all__ = [
    "Checkpoint",
    "ConfigError",
    "Context",
    "DeclaredStream",
    "Document",
    "Estimate",
    "InvalidStreamSortException",
    "Item",
    "Measure",
    "Page",
    "Record",
    "Slice",
    "SlicedStream",
    "Source",
    "Stream",
    "SystemFailure",
    "TransientError",
    "Wait",
    "Warn",
    "run",
]
