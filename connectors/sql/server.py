"""Parts of the configs of sources that read databases: certificates, and patterns of tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, SecretStr

_PEM = re.compile(r"\s*-----BEGIN [A-Z ]+-----.*-----END [A-Z ]+-----\s*", re.DOTALL)


def _check_certificate(value: str) -> str:
    if not _PEM.fullmatch(value):
        raise ValueError("it is no certificate in the form PEM (-----BEGIN CERTIFICATE-----)")
    return value


def _check_key(value: SecretStr) -> SecretStr:
    if not _PEM.fullmatch(value.get_secret_value()):
        raise ValueError("it is no key in the form PEM (-----BEGIN PRIVATE KEY-----)")
    return value


Certificate = Annotated[str, AfterValidator(_check_certificate)]
"""A certificate as PEM."""
PrivateKey = Annotated[SecretStr, AfterValidator(_check_key)]
"""The key of a certificate as PEM."""


def is_chosen(include: Sequence[str], exclude: Sequence[str], namespace: str, table: str) -> bool:
    """Return whether patterns of `TABLE` or `NAMESPACE.TABLE` choose a table; no `include` chooses all."""

    def matches(patterns: Sequence[str]) -> bool:
        names = (table, f"{namespace}.{table}")
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

    return (not include or matches(include)) and not matches(exclude)
