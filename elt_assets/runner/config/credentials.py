"""Detect environment variables and fields that may hold a credential, by name or by value."""

from __future__ import annotations

import os
import re

from elt_assets.errors import ConfigError
from elt_assets.protocol.secret_parts import CREDENTIAL

RESERVED = re.compile("(ELT|DAGSTER)_.*")
"""Matches the names of this project's own variables and of Dagster's, which are reserved."""
ALLOWED = "ELT_ALLOW_REFERENCES"
"""The variable that lists the reserved names to which connections may refer."""

HIDDEN_ENDING = (
    r"(?i)(passw(or)?d|passphrase|passcode|(?<!by)(?<!com)pass|pwd|secret|token|credential|webhook(_?url)?"
    r"|(api|access|private|secret|signing|encryption)[_-]?key)s?$"
)
"""Pattern of the ends of names whose values are secret, also within one word: `DBPASS`, `clientSecret`."""
_ENDS_SECRET = re.compile(HIDDEN_ENDING)
_SECRET_NAME = re.compile(
    r"(?i)(.*_)?(SECRET|TOKEN|CREDENTIAL|CRED|SALT|PAT|DSN|JWT|APIKEY|WEBHOOK)S?(_.*)?"
    r"|(.*_)?(API|ACCESS|PRIVATE|SECRET)_KEYS?(_.*)?"
    r"|.*(PASSWORD|PASSWD|PASSPHRASE)S?(_.*)?"
    r"|.*_AUTH"
)
"""Matches names of variables that have a word of secrets."""
_SHELL_NAMES = ("PWD", "OLDPWD")
"""Variables of any shell, which end like those of secrets."""
_ACCESS_NAME = re.compile(
    r"(?i)(.*_)?(KEYS?|CONNECTION_STR(ING)?|COOKIES?)(_FILE|_PATH)?"
    r"|(.*_)?(DATABASE|DB|POSTGRES(QL)?|MYSQL|MONGO(DB)?|REDIS|AMQP|BROKER|WEBHOOK)_UR[IL]"
    r"|SSH_.*|GPG_.*|GNUPGHOME|KRB5.*|(GIT|SUDO)_ASKPASS|DBUS_SESSION_BUS_ADDRESS"
    r"|PGPASSFILE|PGSERVICEFILE|NETRC|KUBECONFIG|BOTO_CONFIG|AWS_CONFIG_FILE|CLOUDSDK_CONFIG|IDENTITY_HEADER"
    r"|DOCKER_CONFIG|(.*_)?AUTH_CONFIG"
)
"""Matches names of variables whose value gives access to a secret (a file, an agent, an address with a
password), or is often a secret itself."""
_SWITCH = re.compile("(?i:true|false|yes|no|on|off|null|none|)")
"""Matches values that reveal nothing, and that a log is full of."""
_HARMLESS = re.compile(
    r"(?i:true|false|yes|no|on|off|null|none|)"
    r"|[+-]?\d{1,5}(\.\d{1,5})?"  # a port, a number of rows
    r"|[a-z]{1,12}|[A-Z][a-z]{1,11}|[A-Z]{1,12}"  # info, production
    r"|https?://[A-Za-z0-9.-]+(:\d+)?/?"  # an origin; a path may be a webhook's
    r"|(/[A-Za-z0-9._-]{1,19})+/?"  # a path; a longer part may be a token
)
"""Matches the forms of values that are shown: a word, a short number, a path, the origin of a URL."""


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name has a secret value: API_KEY, PG_PASSWORD_2."""
    if name.upper() in _SHELL_NAMES:
        return False
    return bool(_SECRET_NAME.fullmatch(name) or _ENDS_SECRET.search(name))


def may_give_access(name: str, value: str) -> bool:
    """Return whether a variable may hold a credential or give access to one."""
    named = looks_secret(name) or _ACCESS_NAME.fullmatch(name)
    return bool(named or CREDENTIAL.search(value))


def secrets_in(name: str, value: str) -> list[str]:
    """Return a variable's value if it is secret or contains a secret; the mask finds its parts."""
    is_named = looks_secret(name) and not _SWITCH.fullmatch(value)
    return [value] if CREDENTIAL.search(value) or is_named else []


def secrets_in_declared(name: str, value: str) -> list[str]:
    """Return the value of a variable that a connection declares, unless it is known to be no secret: no
    list has all names of secrets, so only values of a harmless form are shown."""
    return secrets_in(name, value) or ([] if _HARMLESS.fullmatch(value) else [value])


def refuse_reserved(name: str, where: str) -> None:
    """Refuse a reference to a variable of this project or of Dagster, such as the salt of hashed fields.

    Args:
        where: the place of the reference, for the error.

    Raises:
        ConfigError: the variable is reserved and not listed in `ALLOWED`.
    """
    if RESERVED.fullmatch(name) and name not in re.split(r"[\s,]+", os.environ.get(ALLOWED, "")):
        raise ConfigError(
            f"{where} refers to the environment variable {name}; variables named ELT_… and DAGSTER_… "
            "are not passed to connectors",
            guidance=f"use a variable of another name, or set {ALLOWED}={name} where Dagster runs",
        )
