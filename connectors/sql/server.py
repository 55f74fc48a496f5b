"""Parts of the configs of database servers: the address, TLS, and which tables are read."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from typing_extensions import Self

from connectors.sql.limits import ReadLimits

_PEM = re.compile(r"\s*-----BEGIN [A-Z ]+-----.*-----END [A-Z ]+-----\s*", re.DOTALL)


def _check_certificate(value: str) -> str:
    if not _PEM.fullmatch(value):
        raise ValueError("it is no certificate in the form PEM (-----BEGIN CERTIFICATE-----)")
    return value


def _check_key(value: SecretStr) -> SecretStr:
    if not _PEM.fullmatch(value.get_secret_value()):
        raise ValueError("it is no key in the form PEM (-----BEGIN PRIVATE KEY-----)")
    return value


Certificate = Annotated[str, AfterValidator(_check_certificate)]
"""A certificate as PEM."""
PrivateKey = Annotated[SecretStr, AfterValidator(_check_key)]
"""The key of a certificate as PEM."""


class ReplicaConfig(BaseModel):
    """A server that has what another one has, a moment later. The login and TLS are the same."""

    model_config = ConfigDict(extra="forbid", title="Replica")

    host: str = Field(title="Host", min_length=1)
    port: int | None = Field(None, title="Port; by default that of the server", ge=1, le=65535)
    wait_seconds: int = Field(
        300, title="Seconds to wait until it has what the server has", ge=1, le=86_400
    )


class ServerConfig(BaseModel):
    """A database server, whose log may be read."""

    model_config = ConfigDict(extra="forbid")
    modes_without_certificates: ClassVar[tuple[str, ...]]
    """The values of `ssl_mode` that use no certificates."""

    host: str = Field(title="Host", min_length=1)
    port: int = Field(title="Port", ge=1, le=65535)
    user: str = Field(title="User", min_length=1)
    password: SecretStr | None = Field(None, title="Password")
    ssl_mode: str
    ssl_root_certificate: Certificate | None = Field(
        None, title="Certificate authority of the server, as PEM"
    )
    ssl_certificate: Certificate | None = Field(None, title="Certificate of the client, as PEM")
    ssl_key: PrivateKey | None = Field(None, title="Key of the client's certificate, as PEM")
    connect_timeout: int = Field(15, title="Seconds to wait for a connection", ge=1, le=600)
    include: list[str] = Field(
        [], title="Patterns of tables to read, TABLE or SCHEMA.TABLE; by default all"
    )
    exclude: list[str] = Field([], title="Patterns of tables to leave out")
    window_megabytes: int = Field(
        256, title="Megabytes of the log that are read and committed at a time", ge=1, le=65536
    )
    replica: ReplicaConfig | None = Field(
        None, title="Replica at which tables are read and compared; the log is read at the server"
    )
    limits: ReadLimits = Field(
        default_factory=ReadLimits, title="What is asked of the server at most"
    )

    @model_validator(mode="after")
    def _check_tls(self) -> ServerConfig:
        if (self.ssl_certificate is None) != (self.ssl_key is None):
            raise ValueError("ssl_certificate and ssl_key are needed together")
        if self.ssl_mode.startswith("verify") and self.ssl_root_certificate is None:
            raise ValueError(f"ssl_mode {self.ssl_mode} needs ssl_root_certificate")
        if self.ssl_mode in self.modes_without_certificates and (
            self.ssl_root_certificate or self.ssl_certificate
        ):
            raise ValueError(
                f"ssl_mode {self.ssl_mode} uses no certificates: remove them, or write another mode"
            )
        return self

    def find_replica(self) -> Self:
        """Return the config of the replica; this one, if there is none."""
        if self.replica is None:
            return self
        address = {"host": self.replica.host, "port": self.replica.port or self.port}
        return self.model_copy(update={**address, "replica": None})

    @property
    def place(self) -> str:
        """The address of the server, for messages."""
        return f"{self.host}:{self.port}"

    def reads(self, schema: str, table: str) -> bool:
        """Return whether a table is read: patterns of `TABLE` or `SCHEMA.TABLE` choose it; no `include`
        chooses all."""
        names = (table, f"{schema}.{table}")
        included, excluded = (
            any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
            for patterns in (self.include, self.exclude)
        )
        return (included or not self.include) and not excluded


@contextmanager
def write_certificates(config: ServerConfig) -> Iterator[dict[str, str]]:
    """Write the certificates and the key to files, which are removed: drivers read them from nothing else.

    Yields:
        The paths, by the names of the fields of the config.
    """
    key = None if config.ssl_key is None else config.ssl_key.get_secret_value()
    texts = {
        "ssl_root_certificate": config.ssl_root_certificate,
        "ssl_certificate": config.ssl_certificate,
        "ssl_key": key,
    }
    if not any(texts.values()):
        yield {}
        return
    folder = Path(tempfile.mkdtemp(prefix="elt-tls-"))
    try:
        for name, text in texts.items():
            if text is not None:
                (folder / name).touch(mode=0o600)
                (folder / name).write_text(text)
        yield {name: str(folder / name) for name, text in texts.items() if text is not None}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
