"""The addresses to which a source may connect: the one guard of all its requests.

An API can send a source to any host: by a redirect, by the link to a next page, or by a name that resolves to
another address each time. So a host is resolved once, all its addresses are checked, and the connection goes to
one of the checked addresses.

| host | addresses to which a source connects |
|---|---|
| of a trusted origin | any |
| that code or the user's config names: of a base URL, of a URL for credentials | any but link-local ones and those of metadata services |
| that a manifest names itself, or an API | public ones; those of this machine too, if code or config name a base URL on this machine |

A manifest may come from anybody, and its requests start in the network of the user. A host counts as named by the
config if a text that the user wrote there is this host, or a URL or `host:port` of it: `hosts_in`.
"""  # noqa: E501

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import httpx

from connectors.sdk.limits import Deadline
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

_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
"""The IPv6 addresses that stand for IPv4 addresses within a network (RFC 8215)."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressGuard:
    """Decides which addresses a source may connect to. It may be used by several threads.

    Args:
        config_hosts: the only hosts that may be on private networks, unless they are trusted: those that the
            user's config names. None for a source whose code is trusted: each host that it names.
    """

    def __init__(self, config_hosts: Collection[str] | None = None) -> None:
        self._config_hosts = config_hosts
        self._trusted: set[str] = set()
        self._named: set[str] = set()
        self._names_this_machine = False

    def trust(self, hosts: Iterable[str]) -> None:
        """Allow any address of these hosts."""
        self._trusted.update(map(_normal, hosts))

    def add_named(self, host: str) -> None:
        """Allow the addresses of private networks for a host that code names, or a manifest by the config."""
        if self._config_hosts is not None and _normal(host) not in self._config_hosts:
            return
        self._named.add(_normal(host))
        address = _address(host)
        if _is_localhost(_normal(host)) or (address is not None and address.is_loopback):
            self._names_this_machine = True

    def check_host(self, host: str) -> None:
        """Check what can be checked before a host is resolved; a proxy may resolve it.

        Raises:
            ConfigError: the source may not connect to the host.
        """
        if _is_localhost(_normal(host)):
            self.check(host, ["127.0.0.1"])
        else:
            self.check(host, [] if _address(host) is None else [host])

    def check(self, host: str, addresses: Collection[str]) -> None:
        """Check a host and all its addresses.

        Raises:
            ConfigError: the source may not connect to one of them.
        """
        name = _normal(host)
        if name in self._trusted:
            return
        if is_internal(name) or any(map(is_internal, addresses)):
            raise _refusal(name, "a link-local address, or that of a cloud's metadata service")
        if name not in self._named and not all(map(self._is_allowed, addresses)):
            by = "an API" if self._config_hosts is None else "the manifest or an API"
            raise _refusal(
                name, f"an address of this machine or of a private network, and {by} has named it"
            )

    def _is_allowed(self, text: str) -> bool:
        address = _address(text)
        if address is None:
            return False
        is_own = self._names_this_machine and address.is_loopback
        return is_own or _is_public(address)


class GuardedTransport(httpx.HTTPTransport):
    """The transport of direct connections, each to an address that the guard has checked, and read until a
    deadline."""

    def __init__(
        self,
        guard: AddressGuard,
        deadline: Deadline,
        certificates: ssl.SSLContext,
        limits: httpx.Limits,
    ):
        core = _core()
        self._pool = core.ConnectionPool(
            ssl_context=certificates,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_GuardedBackend(guard, deadline, core.SyncBackend()),
        )


class _GuardedBackend:
    """A backend of httpcore that connects to addresses that were checked.

    TLS and the header `Host` still have the name of the host.
    """

    def __init__(self, guard: AddressGuard, deadline: Deadline, backend: Any):
        self._guard = guard
        self._deadline = deadline
        self._backend = backend
        self.sleep = backend.sleep

    def connect_tcp(self, host: str, port: int, *arguments: Any, **settings: Any) -> Any:
        core = _core()
        try:
            addresses = resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise core.ConnectError(str(error)) from error
        self._guard.check(host, addresses)
        failure: Exception = core.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                stream = self._backend.connect_tcp(address, port, *arguments, **settings)
            except (core.ConnectError, core.ConnectTimeout) as error:  # noqa: PERF203
                failure = error
            else:
                return _TimedConnection(stream, self._deadline)
        raise failure


class _TimedConnection:
    """A connection of httpcore that is read until a deadline: a head that comes a byte at a time is limited
    as a whole."""

    def __init__(self, inner: Any, deadline: Deadline):
        self._inner = inner
        self._deadline = deadline
        self.write = inner.write
        self.close = inner.close
        self.get_extra_info = inner.get_extra_info

    def read(self, *arguments: Any, **settings: Any) -> bytes:
        received: bytes = self._inner.read(*arguments, **settings)
        self._deadline.check()
        return received

    def start_tls(self, *arguments: Any, **settings: Any) -> _TimedConnection:
        return _TimedConnection(self._inner.start_tls(*arguments, **settings), self._deadline)


def _core() -> Any:
    """Return httpcore. It is imported for the first connection, as by httpx: it imports anyio."""
    return import_module("httpcore")


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, in the order in which they are tried.

    IPv6 addresses that are link-local are left out if there are others: they are of the own network.

    Raises:
        OSError: the host has no address.
        UnicodeError: it is not a name of a host.
    """
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    return [address for address in addresses if not address.startswith("fe80:")] or addresses


def is_internal(host: str) -> bool:
    """Return whether a host is link-local or a metadata service, however its address is written."""
    if host in _METADATA_HOSTS:
        return True
    address = _address(host)
    return address is not None and (address.is_link_local or address in _METADATA_ADDRESSES)


def hosts_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the hosts that texts are, or whose URL or `host:port` they are.

    A number is not taken for an address (`1`, `10.1`): a config has many.
    """
    hosts = set()
    for text in texts:
        for url in (text, f"//{text}"):
            try:
                host = _normal(urlsplit(url.strip()).hostname or "")
            except ValueError:
                continue
            if host and not (_NUMERIC.fullmatch(host) and host.count(".") != 3):
                hosts.add(host)
    return frozenset(hosts)


def _refusal(host: str, reason: str) -> ConfigError:
    origin = f"https://[{host}]" if ":" in host else f"https://{host}"
    return ConfigError(
        f"a request to {host!r} is refused: it is {reason}",
        guidance="correct the URL in the config or in the manifest; the API may also have sent it, as the "
        "URL of a next page or of a redirect. If the request is meant, trust the origin of the URL: "
        f'`trusted_origins` of a client, `trust: ["{origin}"]` of a manifest',
    )


def _is_localhost(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_public(address: _Address) -> bool:
    """Return whether an address is public, also where older releases of Python do not know that it is not."""
    if isinstance(address, ipaddress.IPv6Address) and (
        address.is_site_local or address in _LOCAL_NAT64
    ):
        return False
    return address.is_global and not address.is_multicast


def _normal(host: str) -> str:
    return host.lower().strip("[]").rstrip(".")


def _address(host: str) -> _Address | None:
    """Return the address that a text is, or the IPv4 address for which it stands; None for a name."""
    try:
        if _NUMERIC.fullmatch(host):
            return ipaddress.IPv4Address(socket.inet_aton(host.rstrip(".")))
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except (ValueError, OSError):
        return None
    return (_find_embedded(address) or address) if address.version == 6 else address


def _find_embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address for which an IPv6 address stands; None if there is none."""
    number = int(address)
    if number >> 32 == _NAT64 or (number >> 32 == 0 and number > 1):
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
