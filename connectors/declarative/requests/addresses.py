"""URLs of requests: how they are put together, and which of them must not be requested."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from urllib.request import getproxies

from connectors.sdk.http import URL
from elt_assets.errors import ConfigError

_METADATA_HOSTS = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "metadata.azure.internal",
    }
)
_METADATA_ADDRESSES = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("100.100.100.200", "192.0.0.192", "168.63.129.16"),
            *("fd00:ec2::254", "fd20:ce::254"),
        ),
    )
)
"""Addresses of the metadata services of clouds, besides the link-local ones."""
_NUMERIC = re.compile(r"(0x[0-9a-f]+|\d+)(\.(0x[0-9a-f]+|\d+)){0,3}\.?", re.IGNORECASE)

_NAT64 = 0x64FF9B << 64
"""The first 96 bits of the IPv6 addresses that stand for IPv4 addresses (RFC 6052)."""
MAX_HOSTS = 1024
"""Number of hosts whose addresses are kept."""

Guard = Callable[[URL], None]
Resolve = Callable[[str], Collection[str]]
"""Returns the addresses of a host."""


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
        for name, written in params.items()
        for value in _missing(written, present.get(name, []))
    ]
    if not added:
        return url
    mark = "" if address.endswith(("?", "&")) else "&" if "?" in address else "?"
    return f"{address}{mark}{urlencode(added)}{hash_mark}{fragment}"


@lru_cache(MAX_HOSTS)
def resolved(host: str) -> Collection[str]:
    """Return the addresses of a host; none if it has none, or if a proxy looks it up.

    An IPv6 address that is link-local is left out: it is one of the own network, and no metadata service.
    """
    if _address(host) is not None or getproxies().keys() & {"http", "https", "all"}:
        return ()
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return {str(at[0]) for *_, at in found if not str(at[0]).startswith("fe80:")}


def guard(allowed_hosts: Collection[str] = (), resolve: Resolve = resolved) -> Guard:
    """Return a function that refuses addresses which only this machine or its network can reach and which
    give away credentials: link-local addresses, and those of the metadata services of clouds.

    Args:
        allowed_hosts: the hosts that are allowed nevertheless.
        resolve: returns the addresses of a host.
    """
    allowed = {host.lower().strip("[]") for host in allowed_hosts}

    def check(url: URL) -> None:
        host = url.host.lower().rstrip(".")
        if host not in allowed and (is_internal(host) or any(map(is_internal, resolve(host)))):
            raise ConfigError(
                f"a request to {host!r} is refused: it is a link-local address, or that of a cloud's "
                "metadata service",
                guidance="correct the URL in the config or in the manifest; the API may also have sent it, "
                "as the URL of a next page or of a redirect. If the request is meant, trust the origin of "
                "the URL",
            )

    return check


def is_internal(host: str) -> bool:
    """Return whether a host is link-local or a metadata service, however its address is written."""
    if host in _METADATA_HOSTS:
        return True
    address = _address(host)
    if address is None:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        address = _embedded(address) or address
    return address.is_link_local or address in _METADATA_ADDRESSES


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address for which an IPv6 address stands; None if there is none."""
    number = int(address)
    if number >> 32 in (0, _NAT64):
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is; None for a name."""
    try:
        if _NUMERIC.fullmatch(host):
            return ipaddress.IPv4Address(socket.inet_aton(host))
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except (ValueError, OSError):
        return None


def _missing(written: Any, present: Sequence[str]) -> Sequence[str]:
    """Return the values to add for a parameter; none if the query has them."""
    is_list = isinstance(written, list | tuple)
    values = [str(each) for each in (written if is_list else (written,)) if each is not None]
    return [] if values == (present if is_list else present[:1]) else values
