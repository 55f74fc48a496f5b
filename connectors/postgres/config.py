"""The config of the source: where the server is, how it is reached, and which tables are read."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from connectors.sql.server import ServerConfig

CURSOR, XMIN, LOG = "cursor", "xmin", "log"
SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]


class PostgresConfig(ServerConfig):
    """A PostgreSQL database."""

    model_config = ConfigDict(title="PostgreSQL")
    modes_without_certificates = ("disable",)

    port: int = Field(5432, title="Port", ge=1, le=65535)
    database: str = Field(title="Database", min_length=1)
    ssl_mode: SslMode = Field("prefer", title="How TLS is used, as libpq's sslmode")
    schemas: list[str] = Field(["public"], title="Schemas to read", min_length=1)
    incremental: Literal["cursor", "xmin", "log"] = Field(
        "cursor",
        title="How changes are recognized: by a column that grows, by the transaction (xmin), or by the log",
    )
    slot: str | None = Field(
        None, title="Replication slot, for `incremental: log`", pattern=r"^[a-z0-9_]{1,63}$"
    )
    failover_slot: bool = Field(
        False,
        title="Whether standbys synchronize the slot, so that a new primary has it (PostgreSQL 17)",
    )
    publication: str | None = Field(
        None, title="Publication, for `incremental: log`", min_length=1, max_length=63
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
    def _check_log(self) -> PostgresConfig:
        needs = self.incremental == LOG
        if needs and not (self.slot and self.publication):
            raise ValueError("incremental: log needs `slot` and `publication`")
        if not needs and (self.slot or self.publication or self.failover_slot):
            raise ValueError("`slot`, `publication` and `failover_slot` are for incremental: log")
        return self
