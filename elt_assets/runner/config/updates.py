"""Store the changes that a connector makes to its own config, such as a renewed single-use credential.

The file contains only the places that differ from the written config. A reference to an environment variable
stays a reference if the connector did not change its value. Each change has a keyed hash of the value that
was written at its place. If the user writes another value there, or the variable gets another value, the
change no longer applies: the user's value is used.

Spec: AirbyteControlConnectorConfigMessage: "the orchestrator process should update its persistence layer".
"""

from __future__ import annotations

import contextlib
import copy
import hmac
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.schema_places import Place
from elt_assets.runner.process.locks import exclusive
from elt_assets.storage.directories import make_private

ABSENT = object()
"""Stands for a missing value."""


class Change(msgspec.Struct, frozen=True):
    """A change at one place of a config.

    Args:
        was: keyed hash of the value that was written at the place.
        removed: whether the change removes the value; `value` is None then.
    """

    place: Place
    value: Any
    was: str
    removed: bool = False


class _Stored(msgspec.Struct):
    key: str = msgspec.field(default_factory=lambda: secrets.token_hex(32))
    changes: list[Change] = []

    def hash(self, value: Any) -> str:
        text = "" if value is ABSENT else _canonical(value)
        return hmac.digest(bytes.fromhex(self.key), text.encode(), "sha256").hex()

    def applicable(self, config: Mapping[str, Any]) -> list[Change]:
        """Return the changes at places where the written value is still the same."""
        return [
            change
            for change in self.changes
            if change.was == self.hash(_value_at(config, change.place))
        ]


class ConfigStore:
    """The changes of one connection's config, in a file that only this user can read.

    Args:
        path: the file; None keeps the changes in memory, in this object.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._memory = _Stored()

    def changes(self, config: Mapping[str, Any]) -> list[Change]:
        """Return the changes to apply to a config, in their order.

        Args:
            config: the config as written, with environment variables resolved.

        Raises:
            ConfigError: the file cannot be read.
        """
        return self._load().applicable(config)

    def keep(self, config: Mapping[str, Any], changed: Mapping[Place, Any]) -> None:
        """Add changes, which replace older ones at or within the same places; they are durable on return.

        Stored changes that no longer apply are removed. Several processes may add changes at the same time.

        Args:
            config: the config as written, with environment variables resolved.
            changed: the new values by place, as `differences` returns them.

        Raises:
            ConfigError: the file cannot be read.
            SystemFailure: the file cannot be written.
        """
        with self._report_write_errors():
            stored = self._load()
            remaining = stored.applicable(config)
            remaining = [
                earlier
                for earlier in remaining
                if not any(_is_within(earlier.place, new) for new in changed)
            ]
            for place, value in changed.items():
                remaining.append(change(place, value, stored.hash(_value_at(config, place))))
            stored.changes = remaining
            self._save(stored)

    @contextlib.contextmanager
    def _report_write_errors(self) -> Iterator[None]:
        if self._path is None:
            yield
            return
        try:
            make_private(self._path.parent)
            self._path.parent.chmod(0o700)
            with exclusive(self._path.with_suffix(".lock")):
                yield
        except OSError as error:
            raise SystemFailure(
                f"a connector changed its config, but the change cannot be stored in {self._path}: "
                f"{error.strerror}",
                guidance="make the file writable; if the change was a single-use credential, renew the one "
                "in the connection's YAML",
            ) from error

    def _load(self) -> _Stored:
        if self._path is None:
            return self._memory
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Stored)
        except FileNotFoundError:
            return _Stored()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the stored config changes of a connector, {self._path}, cannot be read: {error}",
                guidance="restore the file from a backup; or remove it, and renew every single-use "
                "credential in the connection's YAML",
            ) from None

    def _save(self, stored: _Stored) -> None:
        """Write the file atomically and durably: a rotated credential is stored nowhere else."""
        if self._path is None:
            return
        draft = self._path.with_suffix(f".{secrets.token_hex(8)}")
        try:
            with os.fdopen(
                os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(msgspec.json.encode(stored))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
            _fsync_folder(self._path.parent)
        finally:
            draft.unlink(missing_ok=True)


def change(place: Place, value: Any, was: str) -> Change:
    """Return the change to a value; for `ABSENT`, the removal of the place."""
    removed = value is ABSENT
    return Change(place, None if removed else value, was, removed)


def apply_changes(config: Mapping[str, Any], changes: list[Change]) -> dict[str, Any]:
    """Return a config with changes applied, except changes inside objects or lists that no longer exist."""
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for change in changes:
        *outer, last = change.place
        inner = _value_at(changed, tuple(outer))
        if isinstance(inner, dict) and change.removed:
            inner.pop(last, None)
        elif isinstance(inner, dict) or _value_at(inner, (last,)) is not ABSENT:
            inner[last] = copy.deepcopy(change.value)
    return changed


def merge_values(config: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config in which each property of `update` replaces the property of the same name as a whole.

    Spec: AirbyteControlConnectorConfigMessage: "the config items … to update"; all other properties stay.
    """
    return {**config, **update}


def differences(old: Any, new: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the outermost places where two values differ, with their value in `new` or `ABSENT`.

    Lists of the same length are compared item by item.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, value in new.items():
            yield from differences(old.get(name, ABSENT), value, (*place, name))
        yield from (((*place, name), ABSENT) for name in old if name not in new)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*place, position))
    elif old is ABSENT or _canonical(old) != _canonical(new):
        yield place, new


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, except the names of properties."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def _value_at(config: Any, place: Place) -> Any:
    for step in place:
        is_there = isinstance(config, Mapping) and step in config
        if not is_there and not (
            isinstance(config, list) and isinstance(step, int) and step < len(config)
        ):
            return ABSENT
        config = config[step]
    return config


def _is_within(place: Place, outer: Place) -> bool:
    return place[: len(outer)] == outer


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
