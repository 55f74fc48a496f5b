"""The vault of a project: an encrypted store of rotated credentials and of the salt, which outlives a pod.

`pipeline.connectors` opens it for the changes in `config`; `pipeline.stream` takes the salt.

The setting `vault` is a path or URI, for example in the lake's bucket, and `vault_key` its key. Without the
setting, both are in files of `DAGSTER_HOME`. The content is encrypted by Fernet (AES and HMAC), with the name
of its entry, so that nobody can put one entry in place of another. A new key is written before the former
ones: the first encrypts, each decrypts. Entries are versioned files, so no change of a process is lost, and
a process that is killed leaves the former entry or the new one.

The salt of hashed fields is in the variable `ELT_HASH_SALT`, in the vault, or in a file of the home.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elt_assets import paths
from elt_assets.errors import ConfigError, SystemFailure, TransientError
from elt_assets.paths import own_place
from elt_assets.runner.references import Reference
from elt_assets.settings import settings
from elt_assets.storage.location import Location
from elt_assets.storage.versioned_file import VersionedFile

_KEY = "the setting `vault_key` (ELT_VAULT_KEY)"
_NEW_KEY = (
    'create one with `python -c "from cryptography.fernet import Fernet; '
    'print(Fernet.generate_key().decode())"`, and keep a copy of it'
)


@dataclass(frozen=True)
class Vault:
    """A vault that is open."""

    place: Location
    """The location of its folder."""
    cipher: Any
    """Encrypts with the current key, and decrypts with any of the keys."""
    current: Any
    """Encrypts and decrypts with the current key."""

    def entry(self, *names: str) -> VaultEntry:
        """Return an entry, which need not exist; `names` has one name per level."""
        return VaultEntry(self, names)


@dataclass(frozen=True)
class VaultEntry:
    """An entry of a vault."""

    vault: Vault
    names: tuple[str, ...]

    def __str__(self) -> str:
        return str(self._file.folder)

    @property
    def _file(self) -> VersionedFile:
        return VersionedFile(self.vault.place.child(*self.names))

    def read(self) -> bytes | None:
        """Return the content; None if the entry does not exist.

        An entry that was encrypted with a former key is encrypted again with the current one.

        Raises:
            ConfigError: the keys do not fit, or the entry is not one of this vault.
            TransientError: the store cannot be read.
        """
        try:
            stored = self._file.read()
        except OSError as error:
            raise TransientError(
                f"the vault entry {self} cannot be read: {error.strerror}",
                guidance="check the setting `vault`, and the credentials of its store",
            ) from error
        if stored is None:
            return None
        content = self._decrypt(stored)
        if not self._is_current(stored):
            with contextlib.suppress(
                SystemFailure
            ):  # it can be read, and the next reader tries again
                self.change(lambda newest: content if newest is None else newest)
        return content

    def change(self, compute: Callable[[bytes | None], bytes]) -> bytes:
        """Replace the content by what is computed from it, and return it; it is durable on return.

        Args:
            compute: returns the new content. It is called again if another process was faster.

        Raises:
            ConfigError: as `read`.
            SystemFailure: the store cannot be written.
        """

        def compute_stored(stored: bytes | None) -> bytes:
            content = None if stored is None else self._decrypt(stored)
            new = compute(content)
            is_same = stored is not None and new == content and self._is_current(stored)
            return stored if stored is not None and is_same else self._encrypt(new)

        try:
            return self._decrypt(self._file.change(compute_stored))
        except OSError as error:
            raise SystemFailure(
                f"the vault entry {self} cannot be written: {error.strerror}",
                guidance="check the setting `vault`, and the credentials of its store; if a connector had "
                "renewed a single-use credential, renew the one in the connection's YAML",
            ) from error

    def remove(self) -> bool:
        """Remove the entry, and return whether there was one.

        Raises:
            SystemFailure: the store cannot be read or written.
        """
        try:
            return self._file.remove()
        except OSError as error:
            raise SystemFailure(
                f"the vault entry {self} cannot be removed: {error.strerror}",
                guidance="check the setting `vault`, and the credentials of its store",
            ) from error

    def _is_current(self, stored: bytes) -> bool:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - only a vault needs it

        try:
            self.vault.current.decrypt(stored)
        except InvalidToken:
            return False
        return True

    def _encrypt(self, content: bytes) -> bytes:
        return bytes(self.vault.cipher.encrypt(self._label + content))

    def _decrypt(self, stored: bytes) -> bytes:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - only a vault needs it

        try:
            content: bytes = self.vault.cipher.decrypt(stored)
        except InvalidToken:
            content = b""
        if not content.startswith(self._label):
            raise ConfigError(
                f"the vault entry {self} cannot be decrypted with {_KEY}",
                guidance="add the key that it was written with after the current one, separated by a comma; "
                "the entry is unchanged",
            )
        return content.removeprefix(self._label)

    @property
    def _label(self) -> bytes:
        return f"{'/'.join(self.names)}\n".encode()


def open_vault() -> Vault | None:
    """Return the vault of the project; None if the setting `vault` is not set. Nothing in it is read.

    Raises:
        ConfigError: the key is missing or not valid, or the location is not supported. The error has no key.
    """
    configured = settings()
    if configured.vault is None:
        return None
    text = _read_key(configured.vault_key)
    from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - only a vault needs it

    try:
        keys = [Fernet(key) for key in re.split(r"[\s,]+", text.strip())]
    except ValueError:
        raise ConfigError(
            f"{_KEY} is not a key of the vault",
            guidance=f"{_NEW_KEY}; several keys are separated by commas",
        ) from None
    return Vault(Location.parse(own_place("vault", configured.vault)), MultiFernet(keys), keys[0])


def _read_key(configured: str | Mapping[str, str] | None) -> str:
    if isinstance(configured, str):
        return configured
    if configured is None:
        raise ConfigError(
            f"the setting `vault` is set, and {_KEY} is not: rotated credentials are stored only encrypted",
            guidance=_NEW_KEY,
        )
    reference = Reference.parse(configured)
    if reference is None:
        raise ConfigError(
            f"{_KEY} is not a reference",
            guidance='write {env = "NAME"}, {file = "PATH"} or {secret = "NAME"}',
        )
    return str(reference.read("vault_key")[0])


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
