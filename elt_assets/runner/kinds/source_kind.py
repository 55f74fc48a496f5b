"""The interface of a kind of source: a key of `source` in a connection's YAML, and how it is run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from elt_assets.runner.config.environment import PYTHON_VARIABLES, Declared, Environment
from elt_assets.runner.connector import Connector
from elt_assets.runner.packages import Installation
from elt_assets.runner.process.container import ContainerOptions, Image

Value: TypeAlias = Any
"""The value of the kind's key in the YAML, a string or a list of strings, as `SourceKind.value_type`."""
Command = Callable[[], Sequence[str]]
"""Returns a connector's command line. Called only when the connector starts: it may install a package."""


@dataclass(frozen=True)
class Installed:
    """The directory of installed packages, and how they are installed and used.

    Args:
        folder: the directory.
        options: the options for installing packages.
        trusted: the Python modules and the origins that a manifest may use.
        engine: the engine of a manifest; None for the one that it needs.
    """

    folder: Path
    options: Installation | None = None
    trusted: Sequence[str] = ()
    engine: str | None = None


class SourceKind(ABC):
    """A kind of connector that a connection can use.

    Attributes:
        key: the key in `source` or `destination` in the YAML.
        value_type: the type of its value, for pydantic.
        examples: examples of the YAML, each with a description of what it runs.
        connector_class: the class that runs the connector.
        label: the kind that Dagster shows for the asset.
        is_destination: whether the connector can also be a destination.
        can_change_schema: whether the schema of a stream may change during a read.
        reports_new_data: whether the connector can be probed for new data.
        releases: whether the connector can give up what it keeps on its server.
        lists_partitions: whether the connector may be able to list the partitions of its streams.
        runs_manifests: whether `trust` and `engine` can be written beside the kind's key.
    """

    key: ClassVar[str]
    value_type: ClassVar[Any]
    examples: ClassVar[Sequence[tuple[str, str]]]
    connector_class: ClassVar[type[Connector]] = Connector
    label: ClassVar[str] = "airbyte"
    is_destination: ClassVar[bool] = False
    can_change_schema: ClassVar[bool] = False
    reports_new_data: ClassVar[bool] = False
    releases: ClassVar[bool] = False
    lists_partitions: ClassVar[bool] = True
    runs_manifests: ClassVar[bool] = False

    @abstractmethod
    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        """Return the function that returns the command line, and the connector's name in messages.

        It starts, installs and imports nothing, because it also checks a connection's YAML at load.

        Raises:
            ConfigError: the value cannot be run.
        """

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        """Return the values that are found on this machine, each with the place where it is. Nothing is
        started or imported.

        Args:
            packages: the directory of installed PyPI packages.
        """
        return ()

    def program_module(self, value: Value) -> str | None:
        """Return the module that runs the connector, which tasks on Spark import to read slices of its
        streams; None if its streams have no slices."""
        return None

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        """Return the environment of the process; by default that of a program of this machine, which may
        need the variables of its Python."""
        return Environment(declared, needs=PYTHON_VARIABLES)

    def resolve(self, value: Value, folder: Path) -> Value:
        """Return the value with a path that is relative to the folder of `defs.yaml` as an absolute path."""
        return value

    def display(self, value: Value) -> str:
        """Return the text that represents the value in Dagster."""
        return value if isinstance(value, str) else value[0]

    def package(self, value: Value, engine: str | None = None) -> str | None:
        """Return the PyPI package that the connector needs; None if it needs none, or that is not known yet.

        Args:
            engine: the engine of a manifest, if it is chosen.
        """
        return None

    def image(self, value: Value, options: ContainerOptions | None) -> Image | None:
        """Return the image that runs the connector; None if there is none."""
        return None

    def find_misplaced(self, value: Value, options: set[str]) -> str | None:
        """Return why an option beside the kind's key is not valid for it; None if all are valid."""
        if "install" in options and self.package(value) is None and not self.runs_manifests:
            return (
                "`install` is only for what is installed from PyPI: `package`, `tap: name==version`, and "
                "Airbyte's engine of a `manifest`"
            )
        if "python" in options and self.package(value) is None:
            return "`python` is only for what is installed from PyPI: `package` and `tap: name==version`"
        if "container" in options and self.image(value, None) is None:
            return "`container` is only for `image`"
        for option in sorted({"trust", "engine"} & options):
            if not self.runs_manifests:
                return f"`{option}` is only for `manifest`"
        return None
