"""The kind `command:`, any program on this machine that speaks the Airbyte Protocol."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value

COMMAND_LINE = Annotated[list[str], Field(min_length=1)]
"""The type of a command line: the program and its first arguments."""


class Program(SourceKind):
    """Runs a command line, unchanged."""

    key = "command"
    value_type = COMMAND_LINE
    examples = (("command: [source-x, --flag]", "any program that speaks the Airbyte Protocol"),)
    is_destination = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        return list(spec.value)

    def name(self, value: Value) -> str:
        return Path(value[0]).name

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        return [([name], str(path)) for name, path in find_programs("source-*")]


def find_programs(pattern: str) -> list[tuple[str, Path]]:
    """Return the name and the path of each program on the PATH whose name matches a pattern."""
    programs: dict[str, Path] = {}
    for folder in os.get_exec_path():
        for path in Path(folder).glob(pattern):
            if path.is_file() and os.access(path, os.X_OK):
                programs.setdefault(path.name, path)
    return sorted(programs.items())
