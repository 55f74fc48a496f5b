"""The URL and the other parts of a request.

They come from the requester, the slice, the paginator and the authenticator.

Spec: RequestOption, and the request parameters, headers and bodies of HttpRequester.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from connectors.declarative import paths
from connectors.declarative.cursors.slices import Option
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template, TemplateMap, value
from connectors.declarative.requests.decoding.json_body import decode
from connectors.declarative.requests.expressions import Variables
from connectors.sdk.encoding import encode
from connectors.sdk.http.places import Part, Place
from elt_assets.errors import ConfigError


def joined(base: str, path: str) -> str:
    """Return the URL of a path. An absolute URL stays as it is; a path that begins with a slash
    follows the host, and any other path follows the path of the base."""
    if not path:
        return base
    return urljoin(base if base.endswith("/") else f"{base}/", path)


def origin_of(url: str) -> str | None:
    """Return the scheme, host and port of a URL; None if it is not a complete one of HTTP."""
    address = urlsplit(url.strip())
    host = (address.hostname or "").removesuffix(".")
    if address.scheme not in ("http", "https") or not all(host.split(".")):
        return None
    return f"{address.scheme}://{address.netloc}"


def with_query(url: str, params: Mapping[str, Any]) -> str:
    """Return a URL with further parameters of its query. The present ones stay as they are written.

    A parameter is left out if it is None, or if the query has it with this value. A sequence repeats it, and
    is left out if the query has it with the same values.
    """
    if not params:
        return url
    address, hash_mark, fragment = url.partition("#")
    query = urlsplit(address).query
    present = parse_qs(query, keep_blank_values=True) if query else {}
    added = [
        (name, value)
        for name, parameter in params.items()
        for value in _missing(parameter, present.get(name, []))
    ]
    if not added:
        return url
    mark = "" if address.endswith(("?", "&")) else "&" if "?" in address else "?"
    return f"{address}{mark}{urlencode(added)}{hash_mark}{fragment}"


def _missing(parameter: Any, present: Sequence[str]) -> Sequence[str]:
    """Return the values to add for a parameter; none if the query has them."""
    is_list = isinstance(parameter, list | tuple)
    values = [str(item) for item in (parameter if is_list else (parameter,)) if item is not None]
    return [] if values == (present if is_list else present[:1]) else values


_LABELS: Mapping[Part, tuple[str, str]] = {
    "params": ("the parameter {!r} of the query", "request_parameters"),
    "headers": ("the header {!r}", "request_headers"),
    "data": ("the field {!r} of the form", "request_body_data"),
    "json": ("the field {!r} of the JSON body", "request_body_json"),
}
"""For each part of a request the text that names a field of it, and the field of a requester that sets it."""
_NAMED = (str, list)
"""The types that a value of the query or of a form has; other literals are texts."""
_HEADER = (str, type(None))
"""The types that a header has: it stays as it is written, such as "1.10" or JSON."""


@dataclass
class Parts:
    """The parts of one request.

    Attributes:
        place: the place of the requester in the manifest, for errors.
        params: the parameters of the query.
        headers: the headers.
        data: the fields of a form, or a text.
        json: the JSON body; empty for none.
    """

    place: str
    params: dict[str, Any]
    headers: dict[str, str]
    data: dict[str, Any] | str
    json: Any
    _set_by: dict[tuple[str, str], str] = field(default_factory=dict)
    _owns_json: bool = False

    def add(self, option: Option, by: str) -> None:
        """Add a value. One that is set already is no conflict if it is the same text.

        Args:
            option: the value and its place in the request.
            by: the component that sets the value, for errors.

        Raises:
            ConfigError: another component has set another one.
        """
        place, value = option
        if place.part == "json":
            self._add_to_json(place, value, by)
        else:
            text = encode(value).decode() if isinstance(value, Mapping) else value
            present = self._values_at(place, by)
            if any(str(part) != str(text) for part in present):
                raise self._conflict(place, by)
            if not present:
                fields = self._fields(place, by)
                fields[place.name] = str(text) if place.part == "headers" else text
        self._set_by[_key(place)] = by

    def check(self, place: Place, by: str) -> None:
        """Check that nothing has set a value that the authenticator will set.

        Raises:
            ConfigError: another component has set it.
        """
        if self._values_at(place, by):
            raise self._conflict(place, by)

    def check_body(self) -> None:
        """Check that there is at most one body.

        Raises:
            ConfigError: there is a form or text, and a JSON body.
        """
        if self.data and self.json:
            raise ConfigError(
                f"{self.place}: the request has both `request_body_data` and `request_body_json`",
                guidance="write one of them, and set `inject_into` of the request options accordingly",
            )

    def _values_at(self, place: Place, by: str) -> list[Any]:
        """Return the values that are set at a place, at most one of them but for headers."""
        if place.part != "json":
            fields = self._fields(place, by)
            return [part for name, part in fields.items() if _key(place, name) == _key(place)]
        value = paths.value_at_names(self.json, place.path)
        return [] if value is paths.MISSING else [value]

    def _fields(self, place: Place, by: str) -> dict[str, Any]:
        if isinstance(self.data, str) and place.part == "data":
            if self.data:
                raise ConfigError(
                    f"{self.place}: {by} cannot add a field to a body that is a text",
                    guidance="write `request_body_data` as a mapping",
                )
            self.data = {}
        fields: dict[str, Any] = getattr(self, place.part)
        return fields

    def _add_to_json(self, place: Place, value: Any, by: str) -> None:
        if not self._owns_json:
            self.json, self._owns_json = deepcopy(self.json), True
        if not isinstance(self.json, dict):
            self.json = self.json or {}
        node, last = self.json, place.path[-1]
        for part in place.path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict) or node.get(last, value) != value:
            raise self._conflict(place, by)
        node[last] = value

    def _conflict(self, place: Place, by: str) -> ConfigError:
        label, setter = _LABELS[place.part]
        first = self._set_by.get(_key(place), f"{self.place}.{setter}")
        return ConfigError(
            f"{label.format(place.name)} is set by both {first} and {by}",
            guidance="remove one of them from the manifest",
        )


def _key(place: Place, name: str | None = None) -> tuple[str, str]:
    """Return what tells a field of a part of a request apart from others; by default that of a place."""
    name = place.name if name is None else name
    return place.part, name.lower() if place.part == "headers" else name


def parameters(template: Any, variables: Variables) -> dict[str, Any]:
    """Return the parameters of the query. Those that are empty are left out, as in the CDK.

    Raises:
        ConfigError: a parameter is an object.
    """
    pairs = _mapping(template, variables, _NAMED)
    for name, parameter in pairs.items():
        if isinstance(parameter, Mapping):
            raise ConfigError(
                f"the parameter {name!r} of the query is an object",
                guidance="write a text; for an object as JSON, use the filter `tojson`",
            )
    return pairs


def headers(template: Any, variables: Variables) -> dict[str, str]:
    """Return the headers. Those that are empty are left out."""
    return {name: str(value) for name, value in _mapping(template, variables, _HEADER).items()}


def data(template: Any, variables: Variables) -> dict[str, Any] | str:
    """Return the body as the fields of a form, or as a text. A text that is a mapping when it is read as a
    Python literal is a form: so the CDK has it, and manifests rely on it."""
    if isinstance(template, Template):
        values = template.evaluate_or("", variables, (str, dict))
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if value is not None}
        return str(values)
    return _mapping(template, variables, _NAMED)


def json(template: Any, variables: Variables) -> Any:
    """Return the body as a JSON value; an empty object for none.

    Raises:
        ConfigError: a text is not JSON.
    """
    is_text = isinstance(template, Template)
    body = template.evaluate_or(None, variables) if is_text else value(template, variables)
    if isinstance(body, str) and body:
        try:
            return decode(body.encode())
        except ValueError as error:
            raise ConfigError(
                f"the text of the JSON body is not JSON: {error}",
                guidance="correct the text, or write `request_body_json` as a mapping",
            ) from None
    return body or {}


def written_body(component: components.HttpRequester) -> tuple[Any, Any]:
    """Return what a requester has written as form or text, and as JSON; None for what is not there.

    Raises:
        ConfigError: it has both.
    """
    form, body = component.request_body_data, component.request_body_json
    requested = component.request_body
    if requested is None:
        return form, body
    if isinstance(requested, components.RequestBodyJsonObject):
        return form, requested.value
    if isinstance(requested, components.RequestBodyGraphQL):
        return form, requested.value
    return requested.value, body


def _mapping(
    template: Template | TemplateMap | None, variables: Variables, types: tuple[type, ...] = ()
) -> dict[str, Any]:
    """Return a mapping with its keys and values evaluated; an empty one for a text that is no mapping."""
    if isinstance(template, TemplateMap):
        return template.evaluate(variables, types)
    evaluated = None if template is None else template.evaluate_or(None, variables)
    pairs = evaluated.items() if isinstance(evaluated, Mapping) else ()
    return {str(name): value for name, value in pairs if value is not None}
