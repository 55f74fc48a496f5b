"""Specs of connectors that tests run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elt_assets.runner.environment import Declared, Environment
from elt_assets.runner.kinds import KINDS, Program
from elt_assets.runner.source_kind import ConnectorSpec


class _NamedProgram(Program):
    def __init__(self, name: str, variables: Environment | None):
        self._name = name
        self._variables = variables

    def name(self, value: Any) -> str:
        return self._name

    def environment(self, value: Any, declared: Declared | None) -> Environment:
        return self._variables or super().environment(value, declared)


def command_spec(
    command: Sequence[str],
    config: Mapping[str, Any],
    workdir: Path,
    name: str,
    variables: Environment | None = None,
    **options: Any,
) -> ConnectorSpec:
    """The spec of a command line, with a name for messages, and perhaps the environment of another kind of
    source; `options`: the fields of the spec."""
    kind = _NamedProgram(name, variables)
    return ConnectorSpec(kind, command, config, workdir, workdir, **options)


def spec_of(kind: str, value: Any, folder: Path, **options: Any) -> ConnectorSpec:
    """The spec of a kind of source, with its files in a folder; `options`: the fields of the spec."""
    fields = {"config": {}, "workdir": folder / "work", "packages": folder, **options}
    return ConnectorSpec(KINDS[kind], value, **fields)
