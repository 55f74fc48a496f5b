"""Install packages with uv, if this machine has it: the same packages as pip installs, in less time.

uv reads neither `pip.conf` nor `PIP_*`. So the settings of pip that decide from where packages come are
translated for it. With any setting that uv does not have, pip installs.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_LISTS = {
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
}
"""Settings of pip with several values, and the variables of uv that mean the same."""
_VALUES = {
    "index-url": "UV_DEFAULT_INDEX",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "no-cache-dir": "UV_NO_CACHE",
}
"""Settings of pip with one value, likewise."""
_NO_INDEX = "no-index"
_WITHOUT_EFFECT = re.compile(
    "disable-pip-version-check|no-input|quiet|verbose|no-color|progress-bar|cache-dir|prefer-binary|retries"
    "|compile|no-compile|require-virtualenv|root-user-action|no-warn-script-location|config-file"
)
"""Settings of pip that do not decide which packages are installed in an environment."""
_TRUE = ("1", "true", "yes", "on")


def find_uv() -> str | None:
    """Return the path of uv: beside this Python, or on the `PATH`; None if there is none."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")


def uv_environment(variables: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables with which uv installs from where pip would; None if pip must install.

    What the variables of uv itself say stays as it is.

    Args:
        variables: the variables that pip would get.
    """
    settings = _pip_settings(variables)
    supported = {*_LISTS, *_VALUES, _NO_INDEX}
    if any(key not in supported and not _WITHOUT_EFFECT.fullmatch(key) for key in settings):
        return None
    translated: dict[str, str] = {}
    for key, value in settings.items():
        if key in _LISTS:
            parts = [_absolute(part) if key == "find-links" else part for part in value.split()]
            separator = "," if key == "find-links" else " "
            if any(separator in part for part in parts):
                return None
            translated[_LISTS[key]] = separator.join(parts)
        elif key in _VALUES:
            translated[_VALUES[key]] = value
        elif value.lower() in _TRUE:
            # uv has no variable for it; an index without packages leaves the files of `find-links`.
            translated["UV_NO_INDEX"] = "1"
    return {**translated, **variables}


def uv_command(
    uv: str, python: Path, arguments: list[str], variables: Mapping[str, str]
) -> list[str]:
    """Return the command that installs into an environment.

    `--directory` keeps uv from reading the settings of a project in the working directory.

    Args:
        python: the Python of the environment.
        arguments: the arguments for pip that select packages; uv has the same.
        variables: those of `uv_environment`.
    """
    options = ["--quiet", "--no-progress", "--directory=/", "--index-strategy=unsafe-best-match"]
    if variables.get("UV_NO_INDEX"):
        options.append("--no-index")
    return [uv, "pip", "install", *options, f"--python={python}", *arguments]


def _absolute(place: str) -> str:
    return place if ":" in place else str(Path(place).expanduser().absolute())


def _pip_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of pip for an installation, by the names of its options."""
    settings: dict[str, str] = {}
    for path in _pip_files(variables):
        settings |= _read_pip_file(path)
    named = {name: value for name, value in variables.items() if name.startswith("PIP_") and value}
    return settings | {_option(name.removeprefix("PIP_")): value for name, value in named.items()}


def _pip_files(variables: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that pip reads, in its order: a later one takes precedence."""
    named = variables.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path(variables.get("HOME") or "~").expanduser()
    for folder in (variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config", "pip", "pip.conf")
    if named:
        yield Path(named)


def _read_pip_file(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {"unreadable": str(path)}  # so that pip installs, and reports it
    sections = [parser[name] for name in ("global", "install") if parser.has_section(name)]
    return {_option(name): value for section in sections for name, value in section.items()}


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")
