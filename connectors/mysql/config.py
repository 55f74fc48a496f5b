"""The config of the source: where the server is, how it is reached, and which tables are read."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]
_PEM = re.compile(r"\s*-----BEGIN [A-Z ]+-----.*-----END [A-Z ]+-----\s*", re.DOTALL)


class MySqlConfig(BaseModel):
    """A MySQL or MariaDB server."""

    model_config = ConfigDict(extra="forbid", title="MySQL and MariaDB")

    host: str = Field(title="Host", min_length=1)
    port: int = Field(3306, title="Port", ge=1, le=65535)
    databases: list[str] = Field(title="Databases to read", min_length=1)
    user: str = Field(title="User", min_length=1)
    password: SecretStr | None = Field(None, title="Password")
    ssl_mode: SslMode = Field(
        "preferred", title="How TLS is used, as --ssl-mode of the mysql client"
    )
    ssl_root_certificate: str | None = Field(
        None, title="Certificate authority of the server, as PEM"
    )
    ssl_certificate: str | None = Field(None, title="Certificate of the client, as PEM")
    ssl_key: SecretStr | None = Field(None, title="Key of the client's certificate, as PEM")
    connect_timeout: int = Field(15, title="Seconds to wait for a connection", ge=1, le=600)
    include: list[str] = Field(
        [], title="Patterns of tables to read, TABLE or DATABASE.TABLE; by default all"
    )
    exclude: list[str] = Field([], title="Patterns of tables to leave out")
    lookback: int = Field(
        0,
        title="How far below the last value of the cursor late rows are read",
        description="Seconds if the cursor is a date or a time, else a number",
        ge=0,
    )
    slice_rows: int = Field(200_000, title="Rows of a table in a slice", ge=1, le=10_000_000)

    @field_validator("ssl_root_certificate", "ssl_certificate")
    @classmethod
    def _check_certificate(cls, value: str | None) -> str | None:
        if value is not None and not _PEM.fullmatch(value):
            raise ValueError("it is no certificate in the form PEM (-----BEGIN CERTIFICATE-----)")
        return value

    @field_validator("ssl_key")
    @classmethod
    def _check_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _PEM.fullmatch(value.get_secret_value()):
            raise ValueError("it is no key in the form PEM (-----BEGIN PRIVATE KEY-----)")
        return value

    @model_validator(mode="after")
    def _check_tls(self) -> MySqlConfig:
        if (self.ssl_certificate is None) != (self.ssl_key is None):
            raise ValueError("ssl_certificate and ssl_key are needed together")
        if self.ssl_mode.startswith("verify") and self.ssl_root_certificate is None:
            raise ValueError(f"ssl_mode {self.ssl_mode} needs ssl_root_certificate")
        if self.ssl_mode in ("disabled", "preferred") and (
            self.ssl_root_certificate or self.ssl_certificate
        ):
            raise ValueError(
                f"ssl_mode {self.ssl_mode} uses no certificates: remove them, or write another mode"
            )
        return self

    @property
    def place(self) -> str:
        """The address of the server, for messages."""
        return f"{self.host}:{self.port}"

    def reads(self, database: str, table: str) -> bool:
        """Return whether the patterns let a table be read."""
        if self.include and not _matches(self.include, database, table):
            return False
        return not _matches(self.exclude, database, table)


def _matches(patterns: list[str], database: str, table: str) -> bool:
    names = (table, f"{database}.{table}")
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
