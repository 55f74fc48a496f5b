"""What a kind of source is: a key of `source` in a connection's YAML, and all that follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.connector import Connector
from elt_assets.runner.packages import Installation
from elt_assets.runner.process.container import ContainerOptions, Image

Value: TypeAlias = Any
"""What the YAML says under the kind's key: a text, or a list of texts, as `SourceKind.value_type` has it."""
Command = Callable[[], Sequence[str]]
"""Finds a connector's command line when it is first needed; to find it may mean to install it."""


@dataclass(frozen=True)
class Installed:
    """Where and how packages are installed."""

    folder: Path
    options: Installation | None = None


class SourceKind(ABC):
    """A kind of connector that a connection may name.

    `key`: under `source`, or `destination`, in the YAML; `value_type`: of its value, as pydantic takes it.
    `examples`: what the YAML may say, and what that runs. `connector_class`: speaks with it. `label`: the
    kind that its asset shows in Dagster. `is_destination`: whether it can take records, too. `can_reopen`:
    whether the schema of a stream may change in the middle of a read. `tells_news`: whether it can be asked
    for new data.
    """

    key: ClassVar[str]
    value_type: ClassVar[Any]
    examples: ClassVar[Sequence[tuple[str, str]]]
    connector_class: ClassVar[type[Connector]] = Connector
    label: ClassVar[str] = "airbyte"
    is_destination: ClassVar[bool] = False
    can_reopen: ClassVar[bool] = False
    tells_news: ClassVar[bool] = False

    @abstractmethod
    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        """How to find the command when it is needed, and what to call the connector in messages.

        Starts, installs and imports nothing: it is what a connection's YAML is checked by at load.

        Raises:
            ConfigError: nothing can run what is written.
        """

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        """The variables that its process is given; of what comes from elsewhere, no others than declared."""
        return Environment(declared)

    def package(self, value: Value) -> str | None:
        """The package from PyPI that it needs, if it needs one."""
        return None

    def image(self, value: Value, options: ContainerOptions | None) -> Image | None:
        """The image that it is run from, if it is."""
        return None

    def misplaced(self, value: Value, options: set[str]) -> str | None:
        """Why some of the options that stand beside it do not go with it; None if all do."""
        if "install" in options and self.package(value) is None:
            return "`install` goes with a package from PyPI: `package`, or `tap: name==version`"
        if "container" in options and self.image(value, None) is None:
            return "`container` goes with `image`"
        if "user" in options and self.image(value, None) is not None:
            return "`user` goes with a program; a container runs as this process's user"
        return None
