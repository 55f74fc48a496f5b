"""Which environment variables a connector's process is given."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elt_assets.runner.secrets import resolve_environment

Declared = Mapping[str, Any] | Sequence[str]
"""What a connection says: values by name, `{env: OTHER}` among them; or names to pass on, where set."""

_BASE = re.compile(
    "PATH|HOME|LANG|LC_.*|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|JAVA_HOME"
    "|(?i:(http|https|ftp|all|no)_proxy)"
)
"""What any program may need to run here, and to reach a network."""
_PYTHON = re.compile("PYTHONPATH|VIRTUAL_ENV")
_CLIENT = re.compile("(DOCKER|CONTAINERD?|CONTAINERS|BUILDKIT|NERDCTL|PODMAN|XDG)_.*")
"""What a client of containers may need; its containers get none of it."""
_OURS = re.compile("(ELT|DAGSTER)_.*")
_SECRET = re.compile(
    "(?i)(.*_)?(PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|APIKEY|(API|ACCESS|PRIVATE|SECRET)_KEY)S?(_.*)?"
)
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True)
class Environment:
    """The variables of one kind of connector.

    Args:
        declared: by the connection; None where it says nothing.
        closed: whether nothing but the base set is passed on that is not declared.
        needs: what this kind needs beside the base set.
    """

    declared: Declared | None = None
    closed: bool = False
    needs: re.Pattern[str] = _NOTHING

    @property
    def names(self) -> list[str]:
        """Of what is declared; of names alone, those that are set."""
        if isinstance(self.declared, Mapping):
            return list(self.declared)
        return [name for name in self.declared or () if name in os.environ]

    def variables(self) -> tuple[dict[str, str], list[str]]:
        """All that the process is given, and what of it must not be shown.

        Raises:
            ConfigError: a variable that is referred to is not set.
        """
        given, secrets = self._given()
        return {**dict(self._inherited()), **given}, secrets

    def _given(self) -> tuple[dict[str, str], list[str]]:
        values: Any = {name: os.environ.get(name) for name in self.names}
        if isinstance(self.declared, Mapping):
            values = self.declared
        resolved, secrets = resolve_environment(values, where="source.environment")
        given = {name: str(value) for name, value in resolved.items()}
        return given, [*secrets, *(value for name, value in given.items() if looks_secret(name))]

    def _inherited(self) -> Iterator[tuple[str, str]]:
        strict = self.closed or self.declared is not None
        for name, value in os.environ.items():
            needed = _BASE.fullmatch(name) or self.needs.fullmatch(name)
            if needed or not (strict or looks_secret(name) or _OURS.fullmatch(name)):
                yield name, value


def environment_of(
    kind: str, value: str | Sequence[str], declared: Declared | None = None
) -> Environment:
    """The environment of a kind of source: of what comes from elsewhere (a package, an image), it is closed.

    Args:
        kind: which key of `source` is set; `value`: what it says.
    """
    if kind == "image":
        return Environment(declared, closed=True, needs=_CLIENT)
    if kind == "package" or (kind == "tap" and isinstance(value, str)):
        return Environment(declared, closed=True)
    return Environment(declared, needs=_NOTHING if kind in ("command", "tap") else _PYTHON)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name may be one whose value must not be shown: API_KEY, PG_PASSWORD_2."""
    return _SECRET.fullmatch(name) is not None
