"""URLs of requests: how they are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit


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
