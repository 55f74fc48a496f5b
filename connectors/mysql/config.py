"""The config of the source: where the server is, how it is reached, and which tables are read."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from connectors.sql.server import ServerConfig

LOG = "log"
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


class MySqlConfig(ServerConfig):
    """A MySQL or MariaDB server."""

    model_config = ConfigDict(title="MySQL and MariaDB")
    modes_without_certificates = ("disabled", "preferred")

    port: int = Field(3306, title="Port", ge=1, le=65535)
    databases: list[str] = Field(title="Databases to read", min_length=1)
    cleartext_password: bool = Field(
        False,
        title="Whether the server may ask for the password itself, as PAM and LDAP need it",
    )
    ssl_mode: SslMode = Field(
        "preferred", title="How TLS is used, as --ssl-mode of the mysql client"
    )
    include: list[str] = Field(
        [], title="Patterns of tables to read, TABLE or DATABASE.TABLE; by default all"
    )
    incremental: Literal["cursor", "log"] = Field(
        "cursor",
        title="How changes are recognized: by a column that grows, or by the log (binlog)",
    )
    lookback: int = Field(
        0,
        title="How far below the last value of the cursor late rows are read",
        description="Seconds if the cursor is a date or a time, else a number",
        ge=0,
    )
    slice_rows: int = Field(500_000, title="Rows of a table in a slice", ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _check_password(self) -> MySqlConfig:
        if self.cleartext_password and self.ssl_mode in self.modes_without_certificates:
            raise ValueError(
                "cleartext_password needs ssl_mode verify_identity, or verify_ca or required"
            )
        return self
