"""Parts of URLs: parameters of a query, origins, and links in a header."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import httpx

from elt_assets.errors import ConfigError, SystemFailure

Origin = tuple[str, str, int | None]

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PORTS = {"http": 80, "https": 443}
# A quoted text may contain commas and semicolons; so may a target.
_PARAMETER = r';\s*([^\s=;,"]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?\s*'
_LINK = re.compile(rf"<([^>]*)>\s*((?:{_PARAMETER})*)")


def base(url: str) -> httpx.URL:
    """Return the base URL of an API.

    Raises:
        ConfigError: it is not an absolute URL. It is not quoted, because it may contain a password.
    """
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in _PORTS or not parsed.host or parsed.query:
        raise ConfigError(
            "the base URL of the API is not a URL that begins with https:// or http:// and has no query",
            guidance="correct the URL in the config",
        )
    return parsed


def parsed(url: str) -> httpx.URL:
    """Return a URL.

    Raises:
        SystemFailure: it is malformed. It is not quoted, because it may contain a secret.
    """
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:
        raise _describe_malformed() from None


def resolve_link(page: httpx.URL, target: str) -> httpx.URL:
    """Return the absolute URL of a link on a page.

    Raises:
        SystemFailure: it is malformed.
    """
    try:
        target_url = page.join(target)
    except (httpx.InvalidURL, ValueError):
        raise _describe_malformed() from None
    if not target_url.host:
        raise _describe_malformed()
    return target_url


def join_path(base_url: httpx.URL, path: str) -> httpx.URL:
    """Return the URL of a path below a base URL, or an absolute URL as it is.

    A path always follows the path of the base URL, also if it begins with a slash.
    """
    if _ABSOLUTE.match(path):
        return parsed(path)
    if not path:
        return base_url
    relative = parsed("/" + path.lstrip("/"))
    return base_url.copy_with(raw_path=base_url.raw_path.rstrip(b"/") + relative.raw_path)


def add_params(url: httpx.URL, params: Mapping[str, Any]) -> httpx.URL:
    """Return a URL with further parameters of the query; those that are None are left out."""
    texts = {
        name: [text(item) for item in value]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else text(value)
        for name, value in params.items()
        if value is not None
    }
    return url.copy_merge_params(texts) if texts else url


def text(value: Any) -> str:
    """Return a value as it stands in a URL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def origin(url: httpx.URL) -> Origin:
    """Return scheme, host and port."""
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme)


def is_within(url: httpx.URL, origins: Sequence[Origin]) -> bool:
    """Return whether a URL is of one of these origins, or of one of them with HTTPS in place of HTTP."""
    own_origin = origin(url)
    upgraded = [
        ("https", host, 443) for scheme, host, port in origins if (scheme, port) == ("http", 80)
    ]
    return own_origin in [*origins, *upgraded]


def _describe_malformed() -> SystemFailure:
    return SystemFailure(
        "a URL of the API is malformed",
        guidance="correct the URL; if the API has sent it, as a link to the next page, report it there",
    )


def link(header: str, relation: str) -> str | None:
    """Return the target of the first link with a relation in a header `Link`; None if there is none."""
    for target, parameters in links(header):
        if relation.lower() in parameters.get("rel", "").lower().split():
            return target
    return None


def links(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the target of each link in a header `Link`, and its parameters. The first parameter of a name
    counts.

    Spec: RFC 8288.
    """
    for match in _LINK.finditer(header):
        parameters: dict[str, str] = {}
        for name, quoted, plain in re.findall(_PARAMETER, match[2]):
            value = re.sub(r"\\(.)", r"\1", quoted) or plain
            parameters.setdefault(name.lower(), value)
        yield match[1].strip(), parameters
