"""Which environment variables a connector's process is given."""

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
from elt_assets.runner.config.secrets import resolve_environment

Declared = Mapping[str, Any] | Sequence[str]
"""What a connection says: values by name, `{env: OTHER}` among them; or names to pass on, where set."""

_BASE = re.compile(
    "PATH|HOME|LANG|LC_.*|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|JAVA_HOME"
    "|(?i:(http|https|ftp|all|no)_proxy)"
)
"""What any program may need to run here, and to reach a network; a proxy's password is left out."""
_INSTALLER = re.compile("PIP_.*|XDG_.*|NETRC|CURL_CA_BUNDLE|(?i:(http|https|ftp|all|no)_proxy)")
"""What pip may need: its options, its own files, and the way to an index, a proxy's password too."""
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
            ConfigError: a variable that is referred to is not set, or may not be passed on.
        """
        given, secrets = self._given()
        return {**dict(self._inherited()), **given}, secrets

    def withheld(self) -> list[str]:
        """The names of the variables that this kind would be given, and is not, since they may hold a
        credential."""
        return sorted(
            name
            for name, value in os.environ.items()
            if self._is_for(name) and self._is_unsafe(name, value) and name not in self.names
        )

    def hint(self) -> str | None:
        """A sentence that says what was withheld, for somebody whose connector lacks it."""
        names = self.withheld()
        if not names:
            return None
        return (
            f"not passed to the connector, since they may hold credentials: {', '.join(names)}; "
            "declare those that it needs under `environment` in the connection's YAML"
        )

    def _given(self) -> tuple[dict[str, str], list[str]]:
        values: Any = self.declared
        if not isinstance(self.declared, Mapping):
            for name in self.names:
                refuse_reserved(name, "source.environment")
            values = {name: os.environ.get(name) for name in self.names}
        resolved, secrets = resolve_environment(values, where="source.environment")
        given = {name: str(value) for name, value in resolved.items()}
        found = (text for name, value in given.items() for text in secrets_in(name, value))
        return given, [*secrets, *found]

    def _inherited(self) -> Iterator[tuple[str, str]]:
        for name, value in os.environ.items():
            if self._is_for(name) and not self._is_unsafe(name, value):
                yield name, value

    def _is_for(self, name: str) -> bool:
        """Whether this kind is given a variable of that name, unless it may hold a credential."""
        if _BASE.fullmatch(name) or self.needs.fullmatch(name):
            return True
        return not (self.closed or self.declared is not None or RESERVED.fullmatch(name))

    def _is_unsafe(self, name: str, value: str) -> bool:
        return may_give_access(name, value) and not self.needs.fullmatch(name)


INSTALLER = Environment(closed=True, needs=_INSTALLER)
"""The variables that pip is given."""
