"""A source connects only to addresses that were checked, wherever a URL comes from."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk.http import HttpClient, RetryPolicy
from connectors.sdk.http.addresses import AddressGuard, is_internal, resolve
from elt_assets.errors import ConfigError, EltError
from tests.programs.json_api import Answer, JsonApi, serving

ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with serving(JsonApi({"orders": [{"id": 1}]})) as found:
        yield found


class Names:
    """A DNS server that returns the next of the answers for a name at each question."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[str]):
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.questions: list[str] = []
        self._ask = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: Any, *rest: Any, **more: Any) -> Any:
        if host not in self.answers:
            return self._ask(host, port, *rest, **more)
        self.questions.append(host)
        known = self.answers[host]
        texts = (known.pop(0) if len(known) > 1 else known[0]).split()
        return [entry for text in texts for entry in self._ask(text, port, *rest, **more)]


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "169.254.1.1", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376"),
        *("169.254.43518", "fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254", "100.100.100.200"),
        *("metadata.google.internal", "metadata", "[fe80::1]", "64:ff9b::a9fe:a9fe"),
        *("fd20:ce::254", "::169.254.169.254", "2002:a9fe:a9fe::1", "fe80::1%eth0"),
    ],
)
def test_link_local_and_metadata_addresses_are_refused(host: str) -> None:
    assert is_internal(host)
    guard = AddressGuard()
    guard.add_named(host)
    with pytest.raises(ConfigError, match="is refused: it is a link-local address"):
        guard.check_host(host)
    guard.trust([host])
    guard.check_host(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.1", "api.example", "1.2.3.4", "::1", "64:ff9b::102:304"]
)
def test_other_addresses_are_not_internal(host: str) -> None:
    assert not is_internal(host)
    guard = AddressGuard()
    guard.add_named(host)
    guard.check_host(host)


@given(st.ip_addresses())
def test_a_host_that_an_api_names_has_public_addresses_only(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    guard = AddressGuard()
    guard.add_named("api.example")
    if address.version == 4 and not address.is_global:
        with pytest.raises(ConfigError, match="is refused"):
            guard.check("other.example", ["8.8.8.8", str(address)])
        with pytest.raises(ConfigError, match="is refused"):
            guard.check("other.example", [f"::ffff:{address}"])
    if address.is_loopback or address.is_private or address.is_link_local:
        with pytest.raises(ConfigError, match="is refused"):
            guard.check("other.example", [str(address)])


@pytest.mark.parametrize(
    "target",
    [
        *("http://10.0.0.5/x", "http://192.168.1.1:8080/", "http://[fd12::1]/", "http://0.0.0.0/"),
        *("http://100.64.0.1/", "http://169.254.169.254/x", "http://metadata.google.internal/"),
        *("http://2852039166/", "http://inner.example/", "http://mixed.example/"),
    ],
)
@pytest.mark.parametrize("how", ["redirect", "link"])
def test_an_api_cannot_send_a_source_to_another_host_within(
    target: str, how: str, api: JsonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names(monkeypatch, inner_example=["10.1.2.3"], mixed_example=["8.8.8.8 172.16.0.1"])
    api.answers.append(Answer(302, headers={"Location": target}))
    path = "all/orders" if how == "redirect" else target
    with HttpClient(api.url, retry=ONCE) as client, pytest.raises(ConfigError, match="is refused"):
        client.get(path)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_on_this_machine_is_followed_if_the_base_url_is_there(
    code: int, api: JsonApi
) -> None:
    target = api.url.replace("127.0.0.1", "localhost") + "/all/orders"
    api.answers.append(Answer(code, headers={"Location": target}))
    with HttpClient(api.url, retry=ONCE) as client:
        assert client.get("all/orders").status_code == 200


def test_a_name_that_resolves_to_another_address_the_second_time_is_no_way_in(
    api: JsonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, api_example=["127.0.0.1", "169.254.169.254"])
    port = api.url.rsplit(":", 1)[1].split("/")[0]
    path = api.url.split(port, 1)[1]
    with HttpClient(f"http://api.example:{port}{path}", retry=ONCE) as client:
        assert client.get("all/orders").status_code == 200
        assert names.questions == ["api.example"]  # once: the address that was checked is used
        assert api.requests[0].headers["host"] == f"api.example:{port}"
        client.close()
        with pytest.raises(ConfigError, match=r"'api\.example' is refused: it is a link-local"):
            client.get("all/orders")
    assert len(api.requests) == 1


def test_a_trusted_origin_may_be_within(api: JsonApi, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, inner_example=["127.0.0.1"])
    inner = api.url.replace("127.0.0.1", "inner.example")
    with HttpClient("https://api.example", trusted_origins=[inner], retry=ONCE) as client:
        assert client.get(f"{inner}/all/orders").status_code == 200
    assert names.questions == ["inner.example"]


def test_a_proxy_resolves_names_and_what_a_url_says_is_checked(
    api: JsonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "/".join(api.url.split("/")[:3]))
    names = Names(monkeypatch, api_example=["10.0.0.1"], inner_example=["10.0.0.1"])
    api.answers += [Answer(200), Answer(200)]
    with HttpClient("http://api.example", retry=ONCE) as client:
        for url in ("http://api.example/a", "http://inner.example/b"):
            assert client.get(url).status_code == 200
        for url in ("http://169.254.169.254/", "http://metadata/", "http://10.0.0.5/"):
            with pytest.raises(ConfigError, match="is refused"):
                client.get(url)
    assert names.questions == []
    assert [request.headers["host"] for request in api.requests] == ["api.example", "inner.example"]


def test_addresses_are_tried_in_turn(api: JsonApi, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, api_example=["127.0.0.2 127.0.0.1"])  # nothing listens at the first
    url = api.url.replace("127.0.0.1", "api.example")
    with HttpClient(url, retry=ONCE) as client:
        assert client.get("all/orders").status_code == 200


def test_a_name_without_an_address_is_an_error_of_the_network() -> None:
    client = HttpClient("http://no-such-host.invalid", retry=ONCE)
    with client, pytest.raises(EltError, match=r"no-such-host\.invalid"):
        client.get()
    assert set(resolve("localhost", 80)) <= {"127.0.0.1", "::1"}


def certificate(folder: Path, name: str) -> Path:
    """Write a certificate of a host, and its key, to a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(names)
        .issuer_name(names)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(encoding) + private)
    return file


def test_tls_names_and_checks_the_host_and_not_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path, "api.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    asked: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked.append(name)
    Names(monkeypatch, api_example=["127.0.0.1"], other_example=["127.0.0.1"])
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                raw, _address = server.accept()
                with suppress(OSError), context.wrap_socket(raw, server_side=True) as connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        with HttpClient(f"https://api.example:{port}", retry=ONCE) as client:
            assert client.get().status_code == 200
        other = HttpClient(f"https://other.example:{port}", retry=ONCE)
        with other, pytest.raises(EltError, match="failed"):
            other.get()
    assert asked == ["api.example", "other.example"]
