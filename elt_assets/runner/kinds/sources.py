"""The kinds of source that a connection may name, each as the command that runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.runner.config.environment import Declared, environment_of
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import Hear, ignore
from elt_assets.runner.failures import DEADLINES
from elt_assets.runner.kinds.package import Installation, install, is_installed, package_name
from elt_assets.runner.kinds.tap import SingerTap
from elt_assets.runner.process.container import ContainerOptions, Image

_BUILT_IN = "connectors"
_NO_CONNECTOR = ("sdk",)

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "connector: faker": "one that is built in",
        "command: [source-x, --flag]": "any program that speaks the Airbyte Protocol",
        "package: airbyte-source-faker==7.2.1": "a program of a package from PyPI, installed on first use",
        "image: airbyte/source-faker:6.2.0": "a container, by docker or a client like it",
        "tap: [tap-x, --flag]": "any program that is a Singer tap",
        "tap: meltanolabs-tap-postgres==0.10.0": "a tap of a package from PyPI, installed on first use",
    }
)
"""What a connection's `source` may say, and what that runs."""

Command = Callable[[], Sequence[str]]


def open_connector(
    kind: str,
    value: str | Sequence[str],
    config: Mapping[str, Any],
    workdir: Path,
    packages: Path,
    heartbeat: float | None = None,
    store: Path | None = None,
    environment: Declared | None = None,
    installation: Installation | None = None,
    container: ContainerOptions | None = None,
    user: str | None = None,
    hear: Hear = ignore,
    deadlines: Mapping[str, float] = DEADLINES,
) -> Connector:
    """The connector that a connection's `source` names; nothing is started or installed yet.

    Args:
        kind: which key of `source` is set; `value`: what it says.
        workdir: for private files while the connector runs.
        packages: where PyPI packages are installed.
        heartbeat: seconds for which it may say nothing; None for ever.
        store: the file that keeps what the connector changes in its config; None: nothing outlives it.
        environment: what `source.environment` declares, if it does.
        installation: how a package is installed.
        container: how an image is run.
        user: of this machine, that it runs as; default this process's.
        hear, deadlines: as of `Connector`.

    Raises:
        ConfigError: as `resolve`.
    """
    command, name = resolve(kind, value, packages, installation)
    variables = environment_of(kind, value, environment)
    image = Image(name, container or ContainerOptions()) if kind == "image" else None
    cls = SingerTap if kind == "tap" else Connector
    return cls(
        command,
        config,
        workdir,
        name,
        heartbeat,
        image,
        store,
        variables,
        user=user,
        hear=hear,
        deadlines=deadlines,
    )


def resolve(
    kind: str,
    value: str | Sequence[str],
    packages: Path,
    installation: Installation | None = None,
) -> tuple[Command, str]:
    """How to find a connector's command when it is needed, and what to call it in messages.

    Starts, installs and imports nothing.

    Raises:
        ConfigError: there is no such built-in connector, a package has no exact version, the reference of an
            image is not valid, or the kind is not supported.
    """
    if kind == "connector" and isinstance(value, str):
        known = built_in()
        if value not in known:
            raise ConfigError(
                f"there is no built-in connector {value!r}",
                guidance=f"built in: {', '.join(known)}; others run by `command:` or `package:`",
            )
        return lambda: [sys.executable, "-m", f"{_BUILT_IN}.{value}"], value
    if kind in ("package", "tap") and isinstance(value, str):
        package_name(value)  # refused here, when definitions load, rather than at the first run
        return lambda: [str(install(value, packages, installation))], value
    if kind == "image" and isinstance(value, str):
        Image(value)
        return lambda: [value], value
    if kind in ("command", "tap") and not isinstance(value, str):
        return lambda: value, Path(value[0]).name
    raise ConfigError(
        f"`source.{kind}` is not supported by this version",
        guidance="use `connector:`, `command:`, `package:`, `image:` or `tap:`",
    )


def to_install(
    kind: str,
    value: str | Sequence[str],
    packages: Path,
    installation: Installation | None = None,
) -> str | None:
    """The package that starting a connector would install first; None if it would install nothing."""
    if kind not in ("package", "tap") or not isinstance(value, str):
        return None
    return None if is_installed(value, packages, installation) else value


def built_in() -> list[str]:
    """The names of the connectors that come with this project; none of them is imported."""
    spec = find_spec(_BUILT_IN)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(m.name for m in iter_modules(places) if m.name not in _NO_CONNECTOR)
