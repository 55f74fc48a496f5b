"""Detect environment variables that may hold a credential, by name or by value."""

from __future__ import annotations

import os
import re

from elt_assets.errors import ConfigError
from elt_assets.protocol.secret_parts import CREDENTIAL

RESERVED = re.compile("(ELT|DAGSTER)_.*")
"""Matches the names of this project's own variables and of Dagster's, which are reserved."""
ALLOWED = "ELT_ALLOW_REFERENCES"
"""The variable that lists the reserved names to which connections may refer."""

_SECRET_NAME = re.compile(
    r"(?i)(.*_)?(SECRET|TOKEN|CREDENTIAL|CRED|SALT|PAT|DSN|JWT|APIKEY|(API|ACCESS|PRIVATE|SECRET)_KEY)S?(_.*)?"
    r"|.*(PASSWORD|PASSWD|PASSPHRASE)S?(_.*)?"
    r"|.*_(PASS|PWD|AUTH)"
)
"""Matches names of variables whose value is a secret."""
_ACCESS_NAME = re.compile(
    r"(?i)(.*_)?(KEYS?|CONNECTION_STR(ING)?|COOKIES?)(_FILE|_PATH)?"
    r"|(.*_)?(DATABASE|DB|POSTGRES(QL)?|MYSQL|MONGO(DB)?|REDIS|AMQP|BROKER|WEBHOOK)_UR[IL]"
    r"|SSH_.*|GPG_.*|GNUPGHOME|KRB5.*|(GIT|SUDO)_ASKPASS|DBUS_SESSION_BUS_ADDRESS"
    r"|PGPASSFILE|PGSERVICEFILE|NETRC|KUBECONFIG|BOTO_CONFIG|AWS_CONFIG_FILE|CLOUDSDK_CONFIG|IDENTITY_HEADER"
    r"|DOCKER_CONFIG|(.*_)?AUTH_CONFIG"
)
"""Matches names of variables whose value gives access to a secret (a file, an agent, an address with a
password), or is often a secret itself."""


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name has a secret value: API_KEY, PG_PASSWORD_2."""
    return _SECRET_NAME.fullmatch(name) is not None


def may_give_access(name: str, value: str) -> bool:
    """Return whether a variable may hold a credential or give access to one."""
    named = looks_secret(name) or _ACCESS_NAME.fullmatch(name)
    return bool(named or CREDENTIAL.search(value))


def secrets_in(name: str, value: str) -> list[str]:
    """Return a variable's value if it is secret or contains a secret; the mask finds its parts."""
    return [value] if CREDENTIAL.search(value) or looks_secret(name) else []


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
