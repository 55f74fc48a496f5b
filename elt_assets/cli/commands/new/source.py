"""The source of a connection that `elt new`, `init` or `import` creates, and its given config.

First the check of the config, and its secrets, which become references; then `choose_source`, from the
options of `elt new`.
"""

from __future__ import annotations

import copy
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.cli.output import Output
from elt_assets.connection import check_trusted_name
from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import Place
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import (
    KINDS,
    TAP_NAME,
    Package,
    Program,
    Tap,
    list_built_in,
    open_connector,
)
from elt_assets.runner.manifests import MANIFEST_FILE, Manifest, find_manifest, is_in_package
from elt_assets.runner.packages import newest_version
from elt_assets.runner.references import RESERVED, is_reference, resolve_references
from elt_assets.runner.singer_tap import SingerTap
from elt_assets.runner.source_kind import ConnectorSpec


def check_config(connector: Connector, config: Mapping[str, Any]) -> None:
    """Check a config against the specification of its connector.

    Raises:
        ConfigError: required config is missing, an environment variable is not set, or a value is not valid.
    """
    schema = connector.specification.connectionSpecification
    properties = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or [] if name not in config]
    if missing:
        lines = "\n".join(f"  - {name}{about(properties.get(name))}" for name in missing)
        raise ConfigError(
            f"{connector.name} needs config that is not given:\n{lines}",
            guidance="add it with --config JSON or --config @FILE; write a secret as "
            '{"env": "NAME"}, the name of an environment variable',
        )
    resolve_references(config)
    try:
        _ = connector.config
    except ConfigError as error:
        error.guidance = "correct --config"
        raise


def about(schema: Any) -> str:
    """Return the type and the title of a field from its specification."""
    if not isinstance(schema, Mapping):
        return ""
    words = [str(schema["type"])] if isinstance(schema.get("type"), str) else []
    words += ["secret"] if schema.get("airbyte_secret") else []
    kind = f" ({', '.join(words)})" if words else ""
    title = schema.get("title") or schema.get("description")
    return f"{kind}: {title}" if title else kind


def replace_secrets(
    config: Mapping[str, Any],
    secrets: Iterable[tuple[Place, Any]],
    name: str,
    taken: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the config with each secret value replaced by a reference to an environment variable.

    Args:
        name: the name of the connection, with which the names of the variables begin.
        taken: the names of variables that are used already.

    Returns:
        The config, and for each environment variable the field of the config that it replaces.

    Raises:
        ConfigError: a secret is not text.
    """
    public = copy.deepcopy(dict(config))
    variables: dict[str, str] = {}
    for place, value in secrets:
        if value is None or isinstance(value, bool) or value == "":
            continue
        parent: Any = public
        for step in place[:-1]:
            parent = parent[step]
        dotted = ".".join(map(str, place))
        if is_reference(parent) or is_reference(value):
            continue
        if not isinstance(value, str):
            raise ConfigError(
                f"config.{dotted} is a secret and is not a text, and only a text can be read from "
                "an environment variable",
                guidance="write the defs.yaml of the connection without `elt new`, with this value in "
                "`source.config`",
            )
        # A secret that several forms of the schema list is replaced only once.
        if parent[place[-1]] == value:
            variable = variable_name([name, *map(str, place)], {*taken, *variables})
            parent[place[-1]] = {"env": variable}
            variables[variable] = f"config.{dotted}"
    return public, variables


def variable_name(words: Sequence[str], taken: Collection[str]) -> str:
    """Return a name for an environment variable, made of the words, that is not among the taken names."""
    first = name = re.sub(r"\W", "_", "_".join(words), flags=re.ASCII).upper()
    if RESERVED.fullmatch(first):
        first = name = f"SOURCE_{first}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}_{number}"
    return name


_PACKAGE = re.compile(r"[A-Za-z0-9._-]*(?:^|-)(?:source|tap)-[A-Za-z0-9._-]+")
"""Pattern of the names of connectors' packages, such as `airbyte-source-x` or `meltanolabs-tap-x`."""
_SOURCE_NAME = re.compile(r"(?:^|-)(?:source|airbyte)-")
"""Pattern of the names of programs that are Airbyte sources."""
_FORMS = (Tap.key, Package.key, Program.key)
"""The kinds that can be written before a source, with a colon."""
_SCHEMAS = "schemas"
"""The folder beside a manifest with the JSON schemas of its streams, if they are not in the manifest."""
_OF_PYTHON = ("components.py", "spec.yaml", "spec.json")
"""The files beside a manifest for Airbyte's engine: components in Python, and a specification."""


@dataclass(frozen=True)
class ChosenSource:
    """The source of a new connection."""

    kind: str  # the key of its kind
    value: str | list[str]  # the value of that key in `defs.yaml`
    trusted: Sequence[str] = ()  # the Python modules and the origins that a manifest may use
    engine: str | None = None  # the engine of a manifest; None for the one that it needs
    # A folder with copies of the files that the connection's folder gets; None if there are none.
    folder: Path | None = None
    original: Path | None = None  # the file of which the value is a copy in this folder

    @property
    def current(self) -> str | list[str]:
        """The value with which the connector can be started before the connection is written."""
        return self.value if self.folder is None else str(self.folder / str(self.value))

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the source in `defs.yaml`, without its config."""
        options = {"trust": list(self.trusted), "engine": self.engine}
        return {self.kind: self.value, **{name: value for name, value in options.items() if value}}

    def name_original(self, text: str) -> str:
        """Return a text that names the original file instead of its copy."""
        return (
            text if self.original is None else text.replace(str(self.current), str(self.original))
        )

    def open(self, config: Mapping[str, Any], out: Output) -> Connector:
        """Return the connector, not started."""
        spec = ConnectorSpec(
            KINDS[self.kind],
            self.current,
            config,
            paths.staging(),
            paths.packages(),
            on_log=lambda level, text: out.log(level, self.name_original(text)),
            trusted=self.trusted,
            engine=self.engine,
        )
        return open_connector(spec)


def choose_source(source: str, out: Output) -> ChosenSource:
    """Return the source that `--source` names. A package without a version gets its newest version.

    Raises:
        ConfigError: there is no such connector, package or program.
        TransientError: the package index, which names the newest version of a package, cannot be reached.
    """
    if source in list_built_in():
        return ChosenSource("connector", source)
    try:
        words = shlex.split(source)
    except ValueError as error:
        raise ConfigError(
            f"--source {source!r}: {error}",
            guidance='correct the quotes; a command is written as "PROGRAM ARGUMENT …"',
        ) from None
    kind, _, rest = source.partition(":")
    if kind in _FORMS and rest.strip():
        return _choose_by_form(kind, shlex.split(rest), out)
    if len(words) == 1 and "==" in source:
        return ChosenSource("tap" if TAP_NAME.search(source) else "package", words[0])
    if words and shutil.which(words[0]):
        return ChosenSource(_kind_of_program(words, out), words)
    if len(words) == 1 and _PACKAGE.fullmatch(source):
        pinned = f"{source}=={newest_version(source)}"
        out.note(f"the newest version is {pinned}")
        return choose_source(pinned, out)
    raise _unknown_source(words[0] if words else source)


def _unknown_source(name: str) -> ConfigError:
    return ConfigError(
        f"--source: there is no connector and no program {name!r}",
        guidance=f"built in: {', '.join(list_built_in())}; write a package as PACKAGE==VERSION, "
        'or as its name alone (airbyte-source-x, tap-x), a command as "PROGRAM ARGUMENT …", a tap with any '
        'other name as "tap:PROGRAM" or "tap:PACKAGE==VERSION", and a manifest with --manifest FILE',
    )


def _choose_by_form(kind: str, words: list[str], out: Output) -> ChosenSource:
    """Return the source that is written as `tap:…`, `package:…` or `command:…`, whatever its name is."""
    is_program = shutil.which(words[0]) is not None
    if kind != Program.key and len(words) == 1 and not is_program:
        name, _, version = words[0].partition("==")
        if not version:
            version = newest_version(name)
            out.note(f"the newest version is {name}=={version}")
        return ChosenSource(kind, f"{name}=={version}")
    if kind == Package.key or not is_program:
        raise _unknown_source(words[0])
    return ChosenSource(kind, words)


def _kind_of_program(words: list[str], out: Output) -> str:
    """Return `tap` or `command`. A program whose name does not tell is asked for its help."""
    name = Path(words[0]).name
    if TAP_NAME.match(name):
        return Tap.key
    if _SOURCE_NAME.match(name):
        return Program.key
    out.note(f"asking {name} whether it is a Singer tap: {name} --help")
    tap = SingerTap(ConnectorSpec(Tap(), words, {}, paths.staging(), paths.packages()))
    return Tap.key if tap.is_tap else Program.key


def choose_manifest(
    location: str, trusted: Sequence[str], engine: str | None, folder: Path
) -> ChosenSource:
    """Return the source that `--manifest` names: a file, or `PACKAGE:FILE`.

    A file is copied into `folder`, which must not exist, with the folder of JSON schemas beside it, and, if
    something is trusted, what belongs to its components in Python.

    Raises:
        ConfigError: there is no such file, it cannot be read, or a name in `trusted` is not valid.
    """
    try:
        list(map(check_trusted_name, trusted))
    except ValueError as error:
        raise ConfigError(f"--trust: {error}", guidance="correct --trust") from None
    source = find_manifest(location)
    if is_in_package(location):
        return ChosenSource(Manifest.key, location, trusted, engine)
    try:
        folder.mkdir()
        shutil.copyfile(source, folder / MANIFEST_FILE)
        if (source.parent / _SCHEMAS).is_dir():
            shutil.copytree(source.parent / _SCHEMAS, folder / _SCHEMAS)
        for name in _OF_PYTHON if trusted else ():
            if (source.parent / name).is_file():
                shutil.copyfile(source.parent / name, folder / name)
    except OSError as error:
        raise ConfigError(
            f"--manifest: {source} cannot be copied: {error.strerror or error}",
            guidance="make the file readable, and make room on the disk",
        ) from error
    return ChosenSource(Manifest.key, MANIFEST_FILE, trusted, engine, folder, source)
