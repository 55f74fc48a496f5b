"""Servers that speak as MySQL and PostgreSQL do when a client logs in, and ask for what they should not get.

Each records the bytes that a client sends, as it understands them. They offer TLS if they have a certificate.
"""

from __future__ import annotations

import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

_CAPABILITIES = 0x000FA2DF
"""Those of MySQL 8 without CLIENT_SSL."""
_CLIENT_SSL = 0x800
_SALT = bytes(range(1, 21))
OK = b"\x00\x00\x00\x02\x00\x00\x00"


@dataclass
class Server:
    """A server that runs. `received`: what clients have sent, all connections together."""

    port: int
    received: bytearray


class Channel:
    """The packets of one client of MySQL."""

    def __init__(
        self,
        handler: socketserver.StreamRequestHandler,
        received: bytearray,
        tls: ssl.SSLContext | None = None,
    ):
        self._handler = handler
        self._received = received
        self._tls = tls
        self._number = 0

    def send(self, payload: bytes) -> None:
        head = struct.pack("<I", len(payload))[:3] + bytes([self._number])
        self._number = (self._number + 1) % 256
        self._handler.wfile.write(head + payload)

    def read(self) -> bytes:
        head = _read(self._handler, 4)
        payload = _read(self._handler, int.from_bytes(head[:3], "little"))
        self._number = (head[3] + 1) % 256
        self._received += payload
        return payload

    def greet(self, plugin: str) -> bytes:
        """Send the greeting, and return the client's answer."""
        offered = _CAPABILITIES | (_CLIENT_SSL if self._tls else 0)
        low, high = offered & 0xFFFF, offered >> 16
        greeting = b"\x0a8.0.36\x00" + struct.pack("<I", 1) + _SALT[:8] + b"\x00"
        greeting += struct.pack("<HBHHB", low, 45, 2, high, 21) + bytes(10) + _SALT[8:] + b"\x00"
        self.send(greeting + plugin.encode() + b"\x00")
        answer = self.read()
        if self._tls is None or not int.from_bytes(answer[:4], "little") & _CLIENT_SSL:
            return answer
        _start_tls(self._handler, self._tls)
        return self.read()


Script = Callable[[Channel], None]


def switch(
    plugin: str, data: bytes = _SALT + b"\x00", first: str = "mysql_native_password"
) -> Script:
    """Return a script that asks for another way to log in."""

    def run(channel: Channel) -> None:
        channel.greet(first)
        channel.send(b"\xfe" + plugin.encode() + b"\x00" + data)
        channel.read()
        channel.send(OK)
        channel.read()

    return run


def ask_with_key(plugin: str, *, at_once: bool) -> Script:
    """Return a script that asks for the password, encrypted with the key of the server."""

    def run(channel: Channel) -> None:
        channel.greet(plugin if at_once else "mysql_native_password")
        if not at_once:
            channel.send(b"\xfe" + plugin.encode() + b"\x00" + _SALT + b"\x00")
            channel.read()
        if plugin == "caching_sha2_password":
            channel.send(b"\x01\x04")
            channel.read()
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        channel.send(b"\x01" + key.public_bytes(serialization.Encoding.PEM, form))
        channel.read()

    return run


def ask_for_file(channel: Channel, path: str = "/etc/hostname") -> None:
    """Let the client in, and answer each command by a request for a file."""
    channel.greet("mysql_native_password")
    channel.send(OK)
    while True:
        channel.read()
        channel.send(b"\xfb" + path.encode())


def _read(handler: socketserver.StreamRequestHandler, size: int) -> bytes:
    """Return what a client sends. Nothing is read ahead: after it may come TLS."""
    parts = b""
    while len(parts) < size:
        part = handler.connection.recv(size - len(parts))
        if not part:
            raise ConnectionError
        parts += part
    return parts


def _start_tls(handler: socketserver.StreamRequestHandler, tls: ssl.SSLContext) -> None:
    handler.request = handler.connection = tls.wrap_socket(handler.connection, server_side=True)
    handler.wfile = handler.connection.makefile("wb", 0)


@contextmanager
def mysql(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Run a server of MySQL."""
    with _serve(lambda handler, received: script(Channel(handler, received, tls))) as server:
        yield server


_SSL_REQUEST = struct.pack(">I", 80877103)


@contextmanager
def postgres(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Run a server of PostgreSQL that asks for the password in clear text."""

    def run(handler: socketserver.StreamRequestHandler, received: bytearray) -> None:
        while True:
            length = int.from_bytes(_read(handler, 4), "big")
            code = _read(handler, 4)
            received += code + _read(handler, length - 8)
            if code[:2] == b"\x00\x03":
                break
            if tls is not None and code == _SSL_REQUEST:
                handler.wfile.write(b"S")
                _start_tls(handler, tls)
            else:
                handler.wfile.write(b"N")
        handler.wfile.write(b"R" + struct.pack(">II", 8, 3))
        received += handler.connection.recv(1024)

    with _serve(run) as server:
        yield server


@contextmanager
def _serve(
    run: Callable[[socketserver.StreamRequestHandler, bytearray], None],
) -> Iterator[Server]:
    received = bytearray()

    class Handler(socketserver.StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            try:
                run(self, received)
            except OSError:
                return
            finally:
                self.connection.close()  # also one with TLS, which the server does not know

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server(server.server_address[1], received)
        finally:
            server.shutdown()
            thread.join()
