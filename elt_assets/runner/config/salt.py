"""The salt of hashed fields: in the variable `ELT_HASH_SALT`, in the vault, or in a file of the home."""

from __future__ import annotations

import os
import secrets

from elt_assets import paths
from elt_assets.runner.config.vault import open_vault

_salts: dict[str, bytes] = {}
"""The salts that this process has read from vaults: a salt never changes."""


def hash_salt() -> bytes:
    """Return the salt. In a vault it is created on first use: with the salt in the home if there is one, so
    that hashes stay the same, and otherwise with 32 random bytes in hex.

    Raises:
        EltError: as `paths.hash_salt`, `open_vault` and `VaultEntry.change`.
    """
    vault = None if os.environ.get(paths.SALT_VARIABLE) else open_vault()
    if vault is None:
        return paths.hash_salt()
    entry = vault.entry(paths.SALT_FILE)
    if str(entry) not in _salts:
        salt = entry.read()
        if salt is None:
            has_file = (paths.home() / paths.SALT_FILE).is_file()
            new = paths.hash_salt() if has_file else secrets.token_hex(32).encode()
            salt = entry.change(lambda content: new if content is None else content)
        _salts[str(entry)] = salt
    return _salts[str(entry)]
