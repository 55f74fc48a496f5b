"""The config of the source: where the server is, how it is reached, and which tables are read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.sql.server import Certificate, PrivateKey, is_chosen

LOG = "log"
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


class MySqlConfig(BaseModel):
    """A MySQL or MariaDB server."""

    model_config = ConfigDict(extra="forbid", title="MySQL and MariaDB")

    host: str = Field(title="Host", min_length=1)
    port: int = Field(3306, title="Port", ge=1, le=65535)
    databases: list[str] = Field(title="Databases to read", min_length=1)
    user: str = Field(title="User", min_length=1)
    password: SecretStr | None = Field(None, title="Password")
    cleartext_password: bool = Field(
        False,
        title="Whether the server may ask for the password itself, as PAM and LDAP need it",
    )
    ssl_mode: SslMode = Field(
        "preferred", title="How TLS is used, as --ssl-mode of the mysql client"
    )
    ssl_root_certificate: Certificate | None = Field(
        None, title="Certificate authority of the server, as PEM"
    )
    ssl_certificate: Certificate | None = Field(None, title="Certificate of the client, as PEM")
    ssl_key: PrivateKey | None = Field(None, title="Key of the client's certificate, as PEM")
    connect_timeout: int = Field(15, title="Seconds to wait for a connection", ge=1, le=600)
    include: list[str] = Field(
        [], title="Patterns of tables to read, TABLE or DATABASE.TABLE; by default all"
    )
    exclude: list[str] = Field([], title="Patterns of tables to leave out")
    incremental: Literal["cursor", "log"] = Field(
        "cursor",
        title="How changes are recognized: by a column that grows, or by the log (binlog)",
    )
    window_megabytes: int = Field(
        256, title="Megabytes of the log that are read and committed at a time", ge=1, le=65536
    )
    lookback: int = Field(
        0,
        title="How far below the last value of the cursor late rows are read",
        description="Seconds if the cursor is a date or a time, else a number",
        ge=0,
    )
    slice_rows: int = Field(500_000, title="Rows of a table in a slice", ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _check_tls(self) -> MySqlConfig:
        if (self.ssl_certificate is None) != (self.ssl_key is None):
            raise ValueError("ssl_certificate and ssl_key are needed together")
        if self.ssl_mode.startswith("verify") and self.ssl_root_certificate is None:
            raise ValueError(f"ssl_mode {self.ssl_mode} needs ssl_root_certificate")
        if self.cleartext_password and self.ssl_mode in ("disabled", "preferred"):
            raise ValueError(
                "cleartext_password needs ssl_mode verify_identity, or verify_ca or required"
            )
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
        return is_chosen(self.include, self.exclude, database, table)
