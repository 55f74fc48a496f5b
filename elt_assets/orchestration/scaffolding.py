"""The command `dg scaffold defs elt_assets.ConnectionComponent NAME`: create a connection from a template."""

from __future__ import annotations

import shlex
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

from elt_assets.connection.default_attributes import attributes, overwrite_attributes


class ConnectionParameters(BaseModel):
    """The options of `dg scaffold defs`."""

    connector: str | None = Field(default=None, description="a built-in connector")
    package: str | None = Field(
        default=None, description="a PyPI package, for example airbyte-source-faker==7.2.1"
    )
    command: str | None = Field(
        default=None, description="a program that implements the Airbyte Protocol"
    )
    manifest: str | None = Field(
        default=None,
        description="a low-code manifest: its path from the folder of the connection, or PACKAGE:FILE",
    )


class ConnectionScaffolder(dg.Scaffolder[ConnectionParameters]):
    """Scaffolder that writes `defs.yaml`. The next step is `elt discover`, which finds the streams."""

    @classmethod
    def get_scaffold_params(cls) -> type[ConnectionParameters]:
        return ConnectionParameters

    def scaffold(self, request: dg.ScaffoldRequest[ConnectionParameters]) -> None:
        options = request.params
        source: dict[str, Any] = {"connector": options.connector or "faker", "config": {}}
        if options.package is not None:
            source = {"package": options.package, "config": {}}
        elif options.command is not None:
            source = {"command": shlex.split(options.command), "config": {}}
        elif options.manifest is not None:
            source = {"manifest": options.manifest, "config": {}}
        dg.scaffold_component(
            request, attributes(request.target_path.name, source, [overwrite_attributes("users")])
        )
