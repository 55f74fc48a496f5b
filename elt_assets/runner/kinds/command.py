"""The kind `command:`, any program on this machine that speaks the Airbyte Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value

COMMAND_LINE = Annotated[list[str], Field(min_length=1)]
"""The type of a command line: the program and its first arguments."""


class Program(SourceKind):
    """Runs a command line, unchanged."""

    key = "command"
    value_type = COMMAND_LINE
    examples = (("command: [source-x, --flag]", "any program that speaks the Airbyte Protocol"),)
    is_destination = True

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        return lambda: value, Path(value[0]).name
