"""Select the environment variables of a process: of a connector by its kind, and of uv.

For the kinds of source (`source_kind`, `kinds`), and for `uv`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elt_assets.protocol.secret_parts import CREDENTIAL
from elt_assets.runner.references import (
    RESERVED,
    may_give_access,
    refuse_reserved,
    resolve_references,
    secrets_in,
    secrets_in_declared,
)

Declared = Mapping[str, Any] | Sequence[str]
"""The `environment` of a connection: values by name, which may be references (`{env: OTHER}`); or a list of
names to pass on if they are set."""

_PROXIES = "(?i:(http|https|ftp|all|no)_proxy)"
_BASE = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|XDG_.*|LD_LIBRARY_PATH|JAVA_HOME"
    f"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|{_PROXIES}"
)
"""Variables that any program may need to run and to reach a network, called the base set. One whose value
contains a password, such as a proxy, is not passed on."""
PYTHON_VARIABLES = re.compile("PYTHONPATH|VIRTUAL_ENV")
"""Matches the variables that a program of this machine's Python needs beside the base set."""
_INSTALLER = re.compile(f"PIP_.*|UV_.*|NETRC|{_PROXIES}")
"""Variables that uv may need, and those of pip, which are translated: options, files, and the access to an
index, with proxy passwords."""
_SAYS_MISSING = re.compile("environ|credential", re.IGNORECASE)
"""Matches the text of a failure that a variable may explain."""
_MIN_NAME = 4
"""Minimum characters of the name of a variable that is searched for in the text of a failure."""
_TEXT = {"type": "string"}
"""The schema of a variable's value."""
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True)
class Environment:
    """The environment variables of one kind of connector: the base set, and those that are listed.

    No list can have the names of all secrets, so what is not listed is not passed on.
    """

    declared: Declared | None = None
    """The variables that the connection declares; None if it declares none."""
    needs: re.Pattern[str] = _NOTHING
    """Matches the names of variables that this kind needs beside the base set."""
    of_container: bool = False
    """Whether these are the variables of the program that starts a container, to which it passes on those
    that are declared."""

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
        inherited = dict(self._inherit())
        for name, value in inherited.items():
            secrets += secrets_in(name, value)
        return {**inherited, **values}, secrets

    def hint(self, text: str, in_config: Collection[str] = ()) -> str | None:
        """Return what a failed connector may lack: variables that are set and not passed on.

        Args:
            text: the text of the failure. Only variables that it names are listed: most have nothing to do
                with the connector. If it only speaks of its environment, the sentence names none.
            in_config: names of variables whose values the connector has in its config.
        """
        names = [name for name in sorted(os.environ) if self._may_lack(name, text)]
        names = [name for name in names if name not in in_config]
        how = "declare those that it needs under `environment` in the connection's YAML"
        if names:
            return f"variables that are set, and not passed to the connector: {', '.join(names)}; {how}"
        if _SAYS_MISSING.search(text):
            base = "only" if self.of_container else "a base set of variables and"
            return f"the connector gets {base} those that are declared: {how}"
        return None

    def _may_lack(self, name: str, text: str) -> bool:
        if len(name) < _MIN_NAME or name not in text or RESERVED.fullmatch(name):
            return False
        is_passed = name in self.names or (not self.of_container and name in dict(self._inherit()))
        return not is_passed and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None

    def _resolve_given(self) -> tuple[dict[str, str], list[str]]:
        values: Any = self.declared
        if not isinstance(self.declared, Mapping):
            for name in self.names:
                refuse_reserved(name, "environment")
            values = {name: os.environ.get(name) for name in self.names}
        strings: dict[str, str] = {}
        secrets: list[str] = []
        for name, value in values.items():
            text, texts = resolve_references(value, where=f"environment.{name}", schema=_TEXT)
            strings[name] = str(text)
            secrets += texts
            if not _BASE.fullmatch(name) or CREDENTIAL.search(strings[name]):
                secrets += secrets_in_declared(name, strings[name])
        return strings, secrets

    def _inherit(self) -> Iterator[tuple[str, str]]:
        for name, value in os.environ.items():
            is_safe = _BASE.fullmatch(name) and not may_give_access(name, value)
            if is_safe or self.needs.fullmatch(name):
                yield name, value


INSTALLER = Environment(needs=_INSTALLER)
"""The environment of uv."""
