"""Table and column names that every engine accepts, made from names that may be any UTF-8 text.

The rule: letters, digits and underscores stay (of any script); every other character becomes an
underscore; an empty name becomes one underscore; what is longer than `LONGEST` bytes is cut and
ended by a hash of the whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from elt_assets.errors import ConfigError

LONGEST = 200
"""Bytes of UTF-8: what is left of a file system's 255 for suffixes such as `_dead_letter`."""
RESERVED = ("_airbyte_", "_elt_", "_delta_log", "_valid_from", "_valid_to", "_is_current")

_OTHER = re.compile(r"\W")


def clean(name: str) -> str:
    """The table or column name for a stream's or field's name."""
    cleaned = _OTHER.sub("_", name.encode("utf-8", "replace").decode()) or "_"
    if len(cleaned.encode()) > LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
        head = cleaned.encode()[: LONGEST - 13].decode("utf-8", "ignore")
        cleaned = f"{head}_{digest}"
    return cleaned


def clean_all(names: Iterable[str], what: str) -> dict[str, str]:
    """Names → cleaned names.

    Raises:
        ConfigError: two names become one (case aside), or one becomes a name this project uses.
    """
    cleaned: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name in names:
        target = clean(name)
        other = owners.setdefault(target.casefold(), name)
        if other != name:
            raise ConfigError(f"{what} {other!r} and {name!r} would both become {target!r}")
        if target.lower().startswith(RESERVED):
            raise ConfigError(f"{what} {name!r} would become {target!r}, a name this project uses")
        cleaned[name] = target
    return cleaned
