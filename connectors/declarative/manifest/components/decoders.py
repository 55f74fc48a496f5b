"""The formats of the bodies of responses."""

from __future__ import annotations

from connectors.declarative.manifest.components.base import Component, Custom


class JsonDecoder(Component):
    """JSON."""


class JsonlDecoder(Component):
    """A JSON value in each line."""


class JsonItemsDecoder(Component):
    """The items at a path of a JSON document, read one by one."""

    items_path: str
    encoding: str = "utf-8"


class IterableDecoder(Component):
    """A text in each line; the records have the field `record`."""


class XmlDecoder(Component):
    """XML."""


class CsvDecoder(Component):
    """CSV with a header."""

    encoding: str = "utf-8"
    delimiter: str = ","
    set_values_to_none: tuple[str, ...] | None = None


class CustomDecoder(Custom):
    """A decoder in Python."""


class GzipDecoder(Component):
    """Another format, compressed."""

    decoder: CsvDecoder | GzipDecoder | JsonDecoder | JsonItemsDecoder | JsonlDecoder


class ZipfileDecoder(Component):
    """The files of an archive, each in another format."""

    decoder: CsvDecoder | GzipDecoder | JsonDecoder | JsonItemsDecoder | JsonlDecoder


Decoder = (
    JsonDecoder
    | JsonItemsDecoder
    | XmlDecoder
    | CsvDecoder
    | JsonlDecoder
    | GzipDecoder
    | IterableDecoder
    | ZipfileDecoder
    | CustomDecoder
)
