"""Run uv, with which `packages` installs connectors, with the settings of pip that this machine has.

uv reads neither `pip.conf` nor `PIP_*`. So the settings of pip that decide which packages are installed, and
from where, are translated for it, and one that uv does not have is refused. What the variables of uv itself
(`UV_*`) say takes precedence.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.masking import Masker
from elt_assets.runner.environment import INSTALLER
from elt_assets.runner.process import Process
from elt_assets.runner.references import secrets_in

_DEFAULTS = {
    "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip: the newest version of all indexes
    "UV_NATIVE_TLS": "true",  # as pip: the certificates of the system, such as those of a company
    "UV_PYTHON_PREFERENCE": "system",  # a Python on the `PATH` before those that uv brought
    "UV_NO_WRAP": "1",  # its errors are searched for texts
}
_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "constraint": "UV_CONSTRAINT",
    "build-constraint": "UV_BUILD_CONSTRAINT",
    "require-hashes": "UV_REQUIRE_HASHES",
    "uploaded-prior-to": "UV_EXCLUDE_NEWER",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "no-cache-dir": "UV_NO_CACHE",
}
"""Settings of pip, and the variables of uv that mean the same."""
_PATHS = ("find-links", "constraint", "build-constraint", "cert", "client-cert")
"""Settings that may be relative to the working directory, which uv does not get."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_REFUSED = re.compile(
    "abi|all-releases|editable|group|ignore-requires-python|implementation|no-build-isolation|no-deps"
    "|only-deps|only-final|platform|prefix|python|python-version|requirement|root|target"
)
"""Settings of pip that decide what is installed, and that uv does not have. `no-binary` has no effect: the
connection alone decides what is built from source."""
_TRUE = ("1", "y", "yes", "t", "true", "on")
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*?"
_NEWER_NAMES = {"UV_INDEX_URL": "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL": "UV_INDEX"}
"""The names that uv gave to variables of indexes, by their older names, which it reads too."""
_MISSING = re.compile(
    rf"(?P<name>{_NAME})(==\S+)? (has no |was not found)|no versions? of (?P<version_of>{_NAME})(?=[=<>!~\s])"
)
"""Finds the package without which there is no solution."""
_HASHES = re.compile("Hash mismatch for|In `--require-hashes` mode")
_MAX_DETAIL = 2_000
"""Maximum number of characters of uv's stderr in an error. The last ones are kept."""


@dataclass(frozen=True)
class UvResult:
    """The result of one call of uv."""

    code: int
    """The exit code."""
    stdout: str
    stderr: str
    """The last lines of stderr, without secrets."""

    @property
    def has_no_solution(self) -> bool:
        """Whether uv reached the indexes, and they do not have packages that fit."""
        return "No solution found" in self.stderr

    @property
    def detail(self) -> str:
        """The end of stderr, for an error."""
        return self.stderr[-_MAX_DETAIL:]


def run_uv(arguments: Sequence[str], deadline: float, stdin: Sequence[bytes] = ()) -> UvResult:
    """Run uv to its end. It gets no more variables than an installer needs.

    Args:
        arguments: its arguments; the first is the command: `venv`, or `pip`.
        deadline: the time at which it must have ended, by `time.monotonic`.
        stdin: the lines of its stdin.

    Raises:
        ConfigError: pip has a setting that uv does not have.
        TransientError: it did not end before the deadline.
    """
    variables, options = uv_settings(INSTALLER.variables()[0])
    # `--directory` keeps uv from reading the settings of a project in the working directory.
    command = [find_uv_bin(), "--quiet", "--no-progress", "--directory=/", *arguments]
    if arguments[0] == "pip":
        command += options
    with Process(command, environment=variables, deadline=deadline, lines=stdin or None) as process:
        stdout = b"\n".join(process.lines()).decode()
        code = process.wait()
    named = [*os.environ.items(), *variables.items()]
    mask = Masker(text for name, value in named for text in secrets_in(name, value))
    return UvResult(code, stdout, mask(process.stderr_tail))


def installation_failure(requirement: str, result: UvResult) -> ConfigError | TransientError:
    """Return the error for a failed installation of a package, written as `name==version`."""
    message = f"installing {requirement} failed"
    missing = _MISSING.search(result.stderr)
    if result.has_no_solution and missing is not None:
        name = missing["name"] or missing["version_of"]
        return ConfigError(
            f"{message}: there is no compatible wheel of {name}",
            guidance="correct the version; or, if there is only a source distribution and you trust it, "
            f"allow uv to build it: `install: {{source_distributions: [{name}]}}` beside the package in the "
            "YAML",
            detail=result.detail,
        )
    if result.has_no_solution:
        return ConfigError(
            f"{message}: its requirements exclude each other",
            guidance="the details name them: correct the version, `install: {packages: …}` or constraints",
            detail=result.detail,
        )
    if _HASHES.search(result.stderr):
        return ConfigError(
            f"{message}: the packages do not match the lock file",
            guidance="create the lock file again, with a hash for every required package",
            detail=result.detail,
        )
    return TransientError(
        message,
        guidance="check the network and the package index; the details contain the output of uv",
        detail=result.detail,
    )


def uv_settings(variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the options with which uv installs what pip would.

    Args:
        variables: the variables that pip would get.

    Raises:
        ConfigError: uv does not have a setting of pip, or a file of settings cannot be read.
    """
    translated, options = _defaults(variables), []
    for key, value in _pip_settings(variables).items():
        if _REFUSED.fullmatch(key):
            raise ConfigError(
                f"uv, which installs connectors, does not have pip's setting `{key}` (in pip.conf or "
                f"PIP_{key.upper().replace('-', '_')})",
                guidance="remove it where Dagster runs; with PIP_CONFIG_FILE=/dev/null, no pip.conf is read, "
                "and variables UV_… set the same for uv",
            )
        if key in _VARIABLES:
            translated[_VARIABLES[key]] = _uv_value(key, value)
        elif key == "proxy":
            translated |= dict.fromkeys(_PROXIES, value)
        elif key == "keyring-provider" and value == "subprocess":
            translated["UV_KEYRING_PROVIDER"] = value
        elif key == "pre" and value.lower() in _TRUE:
            translated["UV_PRERELEASE"] = "allow"
        elif key == "no-index" and value.lower() in _TRUE:
            options.append("--no-index")
        elif key == "only-binary":
            options += [f"--only-binary={name}" for name in re.split(r"[\s,]+", value)]
    # uv takes its newer name of an index before the older one, so the older one of these is renamed: else
    # pip's setting would take precedence over uv's own. An empty variable counts as not set, as for uv.
    own = {
        _NEWER_NAMES.get(name, name): value
        for name, value in sorted(variables.items(), key=lambda item: item[0] not in _NEWER_NAMES)
        if name.startswith("UV_") and value
    }
    others = {name: value for name, value in variables.items() if not name.startswith("UV_")}
    return {**others, **translated, **own}, options


def _defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which uv, without any setting, does as pip does."""
    defaults = dict(_DEFAULTS)
    ca = variables.get("REQUESTS_CA_BUNDLE") or variables.get("CURL_CA_BUNDLE")
    if ca and "SSL_CERT_FILE" not in variables:
        defaults["SSL_CERT_FILE"] = ca
    cache = Path(variables.get("XDG_CACHE_HOME") or _home(variables) / ".cache", "uv")
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if not os.access(cache, os.W_OK):  # without this, uv would fail
        defaults["UV_NO_CACHE"] = "true"
    return defaults


def _uv_value(key: str, value: str) -> str:
    """Return the value of a setting of pip, which may be a list, as uv's variable needs it."""
    parts = [value] if key in ("cert", "client-cert") else value.split()
    if key in _PATHS:
        parts = [part if ":" in part else str(Path(part).expanduser().absolute()) for part in parts]
    return ("," if key == "find-links" else " ").join(parts)


def _pip_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of pip for an installation, by the names of its options."""
    settings: dict[str, str] = {}
    for path in _pip_files(variables):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (UnicodeDecodeError, configparser.Error) as error:
            raise ConfigError(
                f"the settings of pip in {path} cannot be read: {error}",
                guidance="correct the file",
            ) from None
        for section in ("global", "install"):
            if parser.has_section(section):
                settings |= {_option(name): value for name, value in parser[section].items()}
    named = {name: value for name, value in variables.items() if name.startswith("PIP_")}
    settings |= {_option(name.removeprefix("PIP_")): value for name, value in named.items()}
    return {name: value for name, value in settings.items() if value}


def _pip_files(variables: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that pip reads, in its order: a later one takes precedence."""
    named = variables.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = _home(variables)
    for folder in (variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config", "pip", "pip.conf")
    if named:
        yield Path(named)


def _home(variables: Mapping[str, str]) -> Path:
    return Path(variables.get("HOME") or "~").expanduser()


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")
