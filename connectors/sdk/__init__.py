"""Building blocks of a source. `run` makes a source a program that uses the Airbyte Protocol."""

from connectors.sdk.cli import run
from connectors.sdk.declared_stream import Parent
from connectors.sdk.items import Checkpoint, Document, Slice, Wait, Window
from connectors.sdk.saved_config import report_config
from connectors.sdk.slices import SlicedStream
from connectors.sdk.source import Source
from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError, SystemFailure, TransientError

__all__ = [
    "Checkpoint",
    "ConfigError",
    "Document",
    "Parent",
    "Slice",
    "SlicedStream",
    "Source",
    "Stream",
    "SystemFailure",
    "TransientError",
    "Wait",
    "Window",
    "report_config",
    "run",
]
