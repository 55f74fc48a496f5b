"""Decoders: they turn a response into values, in which the extractor finds the records."""

from __future__ import annotations

import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.requests.decoding.json_body import (
    fresh_json_body,
    json_body,
)
from connectors.declarative.requests.decoding.parsers import (
    BadFile,
    BadXml,
    Parse,
    TruncatedFile,
    csv_rows,
    gunzipped,
    json_lines,
    json_values,
    text_lines,
    xml_value,
)
from connectors.sdk.http.charset import charset_of, is_charset
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.http.messages import Response
from elt_assets.errors import ConfigError, SystemFailure, TransientError

CHUNK = 10_000
"""Number of values of a file that are in memory at the same time."""
_XML = "connectors.declarative.xml"


class Decoder(ABC):
    """Turns the body of a response into values."""

    @abstractmethod
    def values(self, response: Response) -> Iterator[list[Any]]:
        """Yield the values in lists of a limited size; a JSON body is one list, whatever its size.

        Raises:
            SystemFailure: the body has another format.
            TransientError: the body ends too early.
        """

    def shown(self, response: Response, *, is_fresh: bool = False) -> Any:
        """Return what templates see as `response`: for a list its first element, as in the CDK.

        Args:
            response: the response.
            is_fresh: whether the value must be one that no transformation has changed.
        """
        del response, is_fresh
        return {}


class JsonBody(Decoder):
    """The decoder of JSON. An empty body has no values."""

    def values(self, response: Response) -> Iterator[list[Any]]:
        body = json_body(response)
        yield body if isinstance(body, list) else [body]

    def shown(self, response: Response, *, is_fresh: bool = False) -> Any:
        body = fresh_json_body(response) if is_fresh else json_body(response)
        if isinstance(body, list):
            return body[0] if body else {}
        return {} if body is None else body


class FileBody(Decoder):
    """The decoder of a body that is a file with many values.

    Args:
        parse: yields the values.
        has_json: whether the file is JSON, which templates see also when it is compressed.
    """

    def __init__(self, parse: Parse, *, has_json: bool = False):
        self._parse = parse
        self._has_json = has_json

    def values(self, response: Response) -> Iterator[list[Any]]:
        values = self._parse(io.BytesIO(response.content))
        try:
            while chunk := list(islice(values, CHUNK)):
                yield chunk
        except TruncatedFile as error:
            raise TransientError(
                f"the body of {place(response.request)} {error}",
                guidance="run the sync again; if it fails again, the API sends incomplete files",
            ) from None
        except BadFile as error:
            raise SystemFailure(
                f"the body of {place(response.request)} {error}; it begins with {excerpt(response)}",
                guidance="check the URL and the `decoder` of the retriever",
            ) from None

    def shown(self, response: Response, *, is_fresh: bool = False) -> Any:
        chunk = next(self.values(response), None) if self._has_json else None
        return chunk[0] if chunk else {}


class XmlBody(Decoder):
    """The decoder of XML."""

    def values(self, response: Response) -> Iterator[list[Any]]:
        document = self.shown(response)
        yield [document] if document else []

    def shown(self, response: Response, *, is_fresh: bool = False) -> Any:
        if is_fresh or _XML not in response.extensions:
            response.extensions[_XML] = self._parsed(response)
        return response.extensions[_XML]

    def _parsed(self, response: Response) -> Any:
        if not response.content.strip():
            return {}
        try:
            return xml_value(response.content, charset_of(response))
        except BadXml as error:
            raise SystemFailure(
                f"the body of {place(response.request)} is not XML: {error}; it begins with "
                f"{excerpt(response)}",
                guidance="check the URL: a login page or a proxy may have answered in place of the API",
            ) from None


def decoder(component: Any) -> Decoder:
    """Return the decoder that a component describes; for None that of JSON.

    Raises:
        ConfigError: the component contradicts itself.
    """
    if component is None or isinstance(component, components.JsonDecoder):
        return JsonBody()
    if isinstance(component, components.XmlDecoder):
        return XmlBody()
    return FileBody(_parser(component), has_json=_has_json(component))


def _has_json(component: Any) -> bool:
    while isinstance(component, components.GzipDecoder):
        component = component.decoder
    return isinstance(component, components.JsonDecoder)


def _parser(component: Any) -> Parse:
    if isinstance(component, components.CsvDecoder):
        nulls = component.set_values_to_none or ()
        return csv_rows(_encoding(component), _delimiter(component), nulls)
    if isinstance(component, components.GzipDecoder):
        return gunzipped(_parser(component.decoder))
    return _PARSERS[type(component)]


_PARSERS: Mapping[type, Parse] = {
    components.JsonDecoder: json_values,
    components.JsonlDecoder: json_lines,
    components.IterableDecoder: text_lines,
}
"""The parsers of components without settings."""


def _encoding(component: components.CsvDecoder) -> str:
    encoding = component.encoding or "utf-8"
    if is_charset(encoding):
        return encoding
    raise ConfigError(
        f"{component.place}: {encoding!r} is not an encoding of texts",
        guidance='write a name such as "utf-8" or "iso-8859-1"',
    )


def _delimiter(component: components.CsvDecoder) -> str:
    r"""Return the character between two fields, which may be written as an escape such as `\t`."""
    delimiter = component.delimiter or ","
    if delimiter.startswith("\\"):
        with suppress(UnicodeError), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of an escape that does not exist
            delimiter = delimiter.encode().decode("unicode_escape")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ConfigError(
            f"{component.place}: the `delimiter` {component.delimiter!r} does not separate fields",
            guidance=r'write one character, such as ";" or "\t", that is neither a quote nor a line break',
        )
    return delimiter
