"""The formats of the bodies of responses."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.declarative.manifest.components.base import Component, Custom


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JsonDecoder(Component):
    """JSON."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JsonlDecoder(Component):
    """A JSON value in each line."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JsonItemsDecoder(Component):
    """The items at a path of a JSON document, read one by one."""

    items_path: str
    encoding: str = "utf-8"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IterableDecoder(Component):
    """A text in each line; the records have the field `record`."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class XmlDecoder(Component):
    """XML."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CsvDecoder(Component):
    """CSV with a header."""

    encoding: str = "utf-8"
    delimiter: str = ","
    set_values_to_none: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CustomDecoder(Custom):
    """A decoder in Python."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GzipDecoder(Component):
    """Another format, compressed."""

    decoder: CsvDecoder | GzipDecoder | JsonDecoder | JsonItemsDecoder | JsonlDecoder


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
