"""`dg scaffold defs elt_assets.ConnectionComponent NAME`: a connection to fill in."""

from __future__ import annotations

import shlex
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

from elt_assets.connection.template import attributes, replaced


class ConnectionParameters(BaseModel):
    """The options of `dg scaffold defs`."""

    connector: str | None = Field(default=None, description="a built-in connector")
    package: str | None = Field(
        default=None, description="a PyPI package, as airbyte-source-faker==7.2.1"
    )
    command: str | None = Field(
        default=None, description="a program that speaks the Airbyte Protocol"
    )


class ConnectionScaffolder(dg.Scaffolder[ConnectionParameters]):
    """Writes `defs.yaml`; `elt discover` then tells which streams there are."""

    @classmethod
    def get_scaffold_params(cls) -> type[ConnectionParameters]:
        return ConnectionParameters

    def scaffold(self, request: dg.ScaffoldRequest[ConnectionParameters]) -> None:
        given = request.params
        source: dict[str, Any] = {"connector": given.connector or "faker", "config": {}}
        if given.package is not None:
            source = {"package": given.package, "config": {}}
        elif given.command is not None:
            source = {"command": shlex.split(given.command), "config": {}}
        dg.scaffold_component(
            request, attributes(request.target_path.name, source, [replaced("users")])
        )
