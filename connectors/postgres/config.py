"""The config of the source: where the server is, how it is reached, and which tables are read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.sql.server import Certificate, PrivateKey, is_chosen

CURSOR, XMIN, LOG = "cursor", "xmin", "log"
SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]


class PostgresConfig(BaseModel):
    """A PostgreSQL database."""

    model_config = ConfigDict(extra="forbid", title="PostgreSQL")

    host: str = Field(title="Host", min_length=1)
    port: int = Field(5432, title="Port", ge=1, le=65535)
    database: str = Field(title="Database", min_length=1)
    user: str = Field(title="User", min_length=1)
    password: SecretStr | None = Field(None, title="Password")
    ssl_mode: SslMode = Field("prefer", title="How TLS is used, as libpq's sslmode")
    ssl_root_certificate: Certificate | None = Field(
        None, title="Certificate authority of the server, as PEM"
    )
    ssl_certificate: Certificate | None = Field(None, title="Certificate of the client, as PEM")
    ssl_key: PrivateKey | None = Field(None, title="Key of the client's certificate, as PEM")
    connect_timeout: int = Field(15, title="Seconds to wait for a connection", ge=1, le=600)
    schemas: list[str] = Field(["public"], title="Schemas to read", min_length=1)
    include: list[str] = Field(
        [], title="Patterns of tables to read, TABLE or SCHEMA.TABLE; by default all"
    )
    exclude: list[str] = Field([], title="Patterns of tables to leave out")
    incremental: Literal["cursor", "xmin", "log"] = Field(
        "cursor",
        title="How changes are recognized: by a column that grows, by the transaction (xmin), or by the log",
    )
    slot: str | None = Field(
        None, title="Replication slot, for `incremental: log`", pattern=r"^[a-z0-9_]{1,63}$"
    )
    publication: str | None = Field(
        None, title="Publication, for `incremental: log`", min_length=1, max_length=63
    )
    window_megabytes: int = Field(
        256, title="Megabytes of the log that are read and committed at a time", ge=1, le=65536
    )
    wait_seconds: int = Field(
        60,
        title="Seconds to wait for other sessions: for their locks, and for their open transactions",
        ge=1,
        le=86_400,
    )
    lookback: str | None = Field(
        None,
        title="How far below the last value of the cursor late rows are read",
        description="An interval for dates and times, such as 10 minutes; else a number",
        pattern=r"^[0-9A-Za-z.:+\- ]+$",
    )
    slice_megabytes: int = Field(128, title="Megabytes of a table in a slice", ge=1, le=8192)

    @model_validator(mode="after")
    def _check_tls(self) -> PostgresConfig:
        if (self.ssl_certificate is None) != (self.ssl_key is None):
            raise ValueError("ssl_certificate and ssl_key are needed together")
        if self.ssl_mode.startswith("verify") and self.ssl_root_certificate is None:
            raise ValueError(f"ssl_mode {self.ssl_mode} needs ssl_root_certificate")
        if self.ssl_mode == "disable" and (self.ssl_root_certificate or self.ssl_certificate):
            raise ValueError("ssl_mode disable uses no certificates: remove them, or the mode")
        return self

    @model_validator(mode="after")
    def _check_log(self) -> PostgresConfig:
        needs = self.incremental == LOG
        if needs and not (self.slot and self.publication):
            raise ValueError("incremental: log needs `slot` and `publication`")
        if not needs and (self.slot or self.publication):
            raise ValueError("`slot` and `publication` are for incremental: log")
        return self

    def reads(self, schema: str, table: str) -> bool:
        """Return whether the patterns let a table be read."""
        return is_chosen(self.include, self.exclude, schema, table)
