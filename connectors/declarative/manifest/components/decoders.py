"""The formats of the bodies of responses."""

from __future__ import annotations

from typing import Annotated

from connectors.declarative.manifest.components.base import Component


class JsonDecoder(Component):
    """JSON."""


class JsonlDecoder(Component):
    """A JSON value in each line."""


class IterableDecoder(Component):
    """A text in each line; the records have the field `record`."""


class XmlDecoder(Component):
    """XML."""


class CsvDecoder(Component):
    """CSV with a header."""

    encoding: str = "utf-8"
    delimiter: str = ","
    set_values_to_none: tuple[str, ...] | None = None


class GzipDecoder(Component):
    """Another format, compressed."""

    decoder: Annotated[CsvDecoder | GzipDecoder | JsonDecoder | JsonlDecoder, "JsonItemsDecoder"]


Decoder = Annotated[
    JsonDecoder | XmlDecoder | CsvDecoder | JsonlDecoder | GzipDecoder | IterableDecoder,
    "JsonItemsDecoder",
    "ZipfileDecoder",
    "CustomDecoder",
]
