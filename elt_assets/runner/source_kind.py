"""What a connector is, before it runs: its kind, a key of `source` in a connection's YAML, and its spec.

`kinds` and `manifests` have the kinds; `connection.connector` looks them up; `pipeline.connectors` and `elt`
make specs; `connector` calls `start`, and `singer_tap` writes private files.

First the private files in a connector's arguments, which are removed when it ends; then `SourceKind` and
`ConnectorSpec`; then `start`, which makes a running process of a spec. A package adds a kind by the
entry-point group `elt_assets.source_kinds`, with a subclass of `SourceKind`. It needs no more than `key`,
`value_type`, `examples` and `command`.

Spec: Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from elt_assets.errors import EltError, TransientError
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.messages import State
from elt_assets.runner.config import UpdateFile
from elt_assets.runner.connector_log import LogFunction, ignore
from elt_assets.runner.container import ContainerOptions, Image
from elt_assets.runner.environment import PYTHON_VARIABLES, Declared, Environment
from elt_assets.runner.failures import DEADLINES
from elt_assets.runner.packages import Installation
from elt_assets.runner.process import Process
from elt_assets.runner.references import walk_references
from elt_assets.storage.folders import scratch

_LEGACY = (None, "LEGACY")


@contextlib.contextmanager
def private_files(workdir: Path, files: Mapping[str, Any]) -> Iterator[list[str]]:
    """Write each value to a file that only this user can read, and yield the arguments `--<name> <path>`."""
    if not files:
        yield []
        return
    with scratch(workdir, "private") as folder:
        arguments = []
        for name, value in files.items():
            path = folder / f"{name}.json"
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(content)
            arguments += [f"--{name}", str(path)]
        yield arguments


def state_file(states: Sequence[State]) -> bytes | None:
    """Return the content of the file for `read --state`; None if there is no state.

    STREAM and GLOBAL states become a list of the messages' bodies. A LEGACY state becomes its `data` alone,
    because old connectors support no other form.

    Spec: State & Checkpointing.
    """
    legacy = [state for state in states if _is_legacy(state)]
    if len(legacy) < len(states):
        typed = (state.to_json() for state in states if not _is_legacy(state))
        return b"[" + b",".join(typed) + b"]"
    if not legacy or legacy[-1].data is None:
        return None
    return bytes(legacy[-1].data)


def _is_legacy(state: State) -> bool:
    return state.type in _LEGACY and state.stream is None and state.global_ is None


Value: TypeAlias = Any
"""The value of the kind's key in the YAML, a string or a list of strings, as `SourceKind.value_type`."""


class SourceKind(ABC):
    """A kind of connector that a connection can use."""

    key: ClassVar[str]
    """The key in `source` or `destination` in the YAML."""
    value_type: ClassVar[Any]
    """The type of its value, for pydantic."""
    examples: ClassVar[Sequence[tuple[str, str]]]
    """Examples of the YAML, each with a description of what it runs."""
    label: ClassVar[str] = "airbyte"
    """The kind that Dagster shows for the asset."""
    is_destination: ClassVar[bool] = False
    """Whether the connector can also be a destination."""
    is_tap: ClassVar[bool] = False
    """Whether the program speaks Singer: it may also change the schema of a stream during a read."""
    reports_new_data: ClassVar[bool] = False
    """Whether the connector can be probed for new data."""
    follows: ClassVar[bool] = False
    """Whether the connector may know a request to follow its log."""
    releases: ClassVar[bool] = False
    """Whether the connector can give up what it keeps on its server."""
    lists_partitions: ClassVar[bool] = True
    """Whether the connector may be able to list the partitions of its streams."""
    runs_manifests: ClassVar[bool] = False
    """Whether `trust` and `engine` can be written beside the kind's key."""

    @abstractmethod
    def command(self, spec: ConnectorSpec) -> Sequence[str]:
        """Return the program and its first arguments. Called only when the connector starts, because it may
        install a package."""

    def check(self, value: Value) -> None:  # noqa: B027 - a value of most kinds can be run
        """Refuse a value that cannot be run. This starts, installs and imports nothing, because it also
        checks a connection's YAML at load.

        Raises:
            ConfigError: the value cannot be run.
        """

    def name(self, value: Value) -> str:
        """Return the connector's own name."""
        return self.display(value)

    def display(self, value: Value) -> str:
        """Return the text that represents the value in Dagster."""
        return value if isinstance(value, str) else value[0]

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

    def package(self, value: Value, engine: str | None = None) -> str | None:
        """Return the PyPI package that the connector needs; None if it needs none, or that is not known yet.

        Args:
            engine: the engine of a manifest, if it is chosen.
        """
        return None

    def image(self, value: Value, options: ContainerOptions | None) -> Image | None:
        """Return the image that is run instead of `command`; None if there is none."""
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


@dataclass(frozen=True)
class ConnectorSpec:
    """One connector: what is run, with which config and variables, and within which limits."""

    kind: SourceKind
    value: Value
    config: Mapping[str, Any]
    """The config as the user wrote it, with references (`{env: NAME}`)."""
    workdir: Path
    """The parent directory of the private files of a running process."""
    packages: Path
    """The directory of installed PyPI packages."""
    installation: Installation | None = None
    """The options for installing a package."""
    environment: Declared | None = None
    """The variables in `source.environment`, if it is set."""
    container: ContainerOptions | None = None
    """The options for running an image."""
    trusted: Sequence[str] = ()
    """The Python modules and the origins that a manifest may use."""
    engine: str | None = None
    """The engine of a manifest; None for the one that it needs."""
    store: Path | UpdateFile | None = None
    """The file of the config changes that the connector makes; None keeps them in memory."""
    heartbeat: float | None = None
    """Maximum seconds without output; None for no limit."""
    deadlines: Mapping[str, float] = field(default_factory=lambda: DEADLINES)
    """The time limit of each verb in seconds."""
    connection: str | None = None
    """The connection that it belongs to; None if it is only tried."""
    on_log: LogFunction = ignore
    """Receives the log lines of all verbs but `read` and `write`, which yield them as messages, and warnings
    about parts of the specification that cannot be checked."""

    @property
    def name(self) -> str:
        """The connector's own name."""
        return self.kind.name(self.value)

    @property
    def title(self) -> str:
        """The connector in messages: its connection tells it from others, and its program may be `python`."""
        if self.connection is None:
            return f"connector {self.name}"
        return f"the connector of {self.connection}"

    @property
    def image(self) -> Image | None:
        """The image that is run; None for a program of this machine."""
        return self.kind.image(self.value, self.container)

    @property
    def variables(self) -> Environment:
        """The environment of the process."""
        return self.kind.environment(self.value, self.environment)

    def explain_failure(self, error: EltError) -> str | None:
        """Return which variables of this process the program may lack; None if there are none.

        An error that passes by itself is not for lack of a variable, and the variables in the config are not
        lacking.
        """
        if isinstance(error, TransientError):
            return None
        references = walk_references(self.config, "")
        names = {name for _, reference in references for name in reference.variables}
        return self.variables.hint(str(error), names)


def start(
    spec: ConnectorSpec,
    arguments: Sequence[str],
    mask: Masker,
    private: Path | None,
    folders: Mapping[str, Path],
    **options: Any,
) -> Process:
    """Start the process of a connector.

    Args:
        arguments: the further arguments of its program.
        mask: gets the secrets in its environment.
        private: the folder of the private files in `arguments`.
        folders: folders into which it puts files, or from which it takes them, by the variables that name
            them.
        options: those of `Process`.
    """
    command = spec.kind.command(spec)
    removal: Sequence[str] = ()
    variables, secrets = spec.variables.variables()
    mask.add(secrets)
    variables |= {name: str(folder) for name, folder in folders.items()}
    if spec.image is not None:
        names = [*spec.variables.names, *folders]
        container = spec.image.container(private, names, folders=[*folders.values()])
        command, removal = container.command, container.removal
    return Process(
        [*command, *arguments],
        environment=variables,
        removal=removal,
        heartbeat=spec.heartbeat,
        **options,
    )
