"""Select the environment variables of a connector's process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elt_assets.runner.config.credentials import (
    RESERVED,
    may_give_access,
    refuse_reserved,
    secrets_in,
)
from elt_assets.runner.config.secrets import resolve_references

Declared = Mapping[str, Any] | Sequence[str]
"""The `environment` of a connection: values by name, which may be references (`{env: OTHER}`); or a list of
names to pass on if they are set."""

_BASE = re.compile(
    "PATH|HOME|LANG|LC_.*|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|JAVA_HOME"
    "|(?i:(http|https|ftp|all|no)_proxy)"
)
"""Variables that any program may need to run and to reach a network, called the base set. A proxy variable
with a password is not passed on."""
_INSTALLER = re.compile(
    "PIP_.*|UV_.*|XDG_.*|NETRC|CURL_CA_BUNDLE|(?i:(http|https|ftp|all|no)_proxy)"
)
"""Variables that pip and uv may need: options, files, and the access to an index, with proxy passwords."""
_TEXT = {"type": "string"}
"""The schema of a variable's value."""
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True)
class Environment:
    """The environment variables of one kind of connector.

    Args:
        declared: the variables that the connection declares; None if it declares none.
        closed: pass on only the base set, `needs` and declared variables. Always so if `declared` is set.
        needs: matches the names of variables that this kind needs beside the base set.
    """

    declared: Declared | None = None
    closed: bool = False
    needs: re.Pattern[str] = _NOTHING

    @property
    def names(self) -> list[str]:
        """The names of the declared variables; of a list of names, those that are set."""
        if isinstance(self.declared, Mapping):
            return list(self.declared)
        return [name for name in self.declared or () if name in os.environ]

    def variables(self) -> tuple[dict[str, str], list[str]]:
        """Return the variables of the process, and the secrets among their values.

        Raises:
            ConfigError: as `resolve_references`.
        """
        values, secrets = self._resolve_given()
        return {**dict(self._inherit()), **values}, secrets

    def withheld(self) -> list[str]:
        """Return the names of variables that are not passed on only because they may hold a credential."""
        return sorted(
            name
            for name, value in os.environ.items()
            if self._is_for(name) and self._is_unsafe(name, value) and name not in self.names
        )

    def hint(self) -> str | None:
        """Return a sentence that lists the withheld variables; None if there are none."""
        names = self.withheld()
        if not names:
            return None
        return (
            f"variables not passed to the connector, because they may hold credentials: {', '.join(names)}; "
            "declare those that it needs under `environment` in the connection's YAML"
        )

    def _resolve_given(self) -> tuple[dict[str, str], list[str]]:
        values: Any = self.declared
        if not isinstance(self.declared, Mapping):
            for name in self.names:
                refuse_reserved(name, "source.environment")
            values = {name: os.environ.get(name) for name in self.names}
        strings: dict[str, str] = {}
        secrets: list[str] = []
        for name, value in values.items():
            text, texts = resolve_references(
                value, where=f"source.environment.{name}", schema=_TEXT
            )
            strings[name] = str(text)
            secrets += [*texts, *secrets_in(name, strings[name])]
        return strings, secrets

    def _inherit(self) -> Iterator[tuple[str, str]]:
        for name, value in os.environ.items():
            if self._is_for(name) and not self._is_unsafe(name, value):
                yield name, value

    def _is_for(self, name: str) -> bool:
        """Return whether this kind gets a variable of this name, if the variable holds no credential."""
        if _BASE.fullmatch(name) or self.needs.fullmatch(name):
            return True
        return not (self.closed or self.declared is not None or RESERVED.fullmatch(name))

    def _is_unsafe(self, name: str, value: str) -> bool:
        return may_give_access(name, value) and not self.needs.fullmatch(name)


INSTALLER = Environment(closed=True, needs=_INSTALLER)
"""The environment of pip and of uv."""
