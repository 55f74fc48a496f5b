"""What a connector changed in its own config: a credential that it may use once, say.

spec: AirbyteControlConnectorConfigMessage: "the orchestrator process should update its persistence layer".

The file holds what differs from the config as written, leaf by leaf; a reference to a variable whose value
the connector did not change stays a reference. Beside each leaf stands a keyed hash of what was written
there: once somebody writes something else, or the variable that it comes from changes, the newer value is
theirs, and it wins.
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
from elt_assets.protocol.config_places import Place
from elt_assets.runner.process.locks import exclusive
from elt_assets.storage.directories import make_private

ABSENT = object()
"""In place of a value: there is none."""


class Change(msgspec.Struct, frozen=True):
    """`was`: the keyed hash of what was written at the place; `removed`: nothing is there any more."""

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

    def in_force(self, written: Mapping[str, Any]) -> list[Change]:
        """The changes of what is still written as it was."""
        return [one for one in self.changes if one.was == self.hash(_at(written, one.place))]


class ConfigStore:
    """The changes of one connection's config, in a file that only this user can read.

    Args:
        path: None keeps them in memory, for as long as this lives.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._memory = _Stored()

    def changes(self, written: Mapping[str, Any]) -> list[Change]:
        """What is to be changed in a config as written, environment variables in it, in this order.

        Raises:
            ConfigError: the file cannot be read.
        """
        return self._load().in_force(written)

    def keep(self, written: Mapping[str, Any], changed: Mapping[Place, Any]) -> None:
        """Add changes, in the place of older ones; durable when this returns. Safe beside others that
        add theirs.

        Args:
            changed: as `differences` gives them.

        Raises:
            ConfigError: the file cannot be read.
            SystemFailure: it cannot be written.
        """
        with self._writing():
            stored = self._load()
            kept = stored.in_force(written)
            kept = [one for one in kept if not any(_within(one.place, new) for new in changed)]
            for place, value in changed.items():
                kept.append(change(place, value, stored.hash(_at(written, place))))
            stored.changes = kept
            self._save(stored)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
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
                f"a connector changed its config, which cannot be kept in {self._path}: {error.strerror}",
                guidance="make it possible to write there; if what was changed is a credential that can be "
                "used once, the one in the connection's YAML must be renewed",
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
                f"what connectors changed in their config, {self._path}, cannot be read: {error}",
                guidance="bring it back from a backup; or remove it, and renew in the connection's YAML "
                "any credential that can be used once",
            ) from None

    def _save(self, stored: _Stored) -> None:
        """Whole or not at all, and on the disk: a credential that was rotated is nowhere else."""
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
            _sync(self._path.parent)
        finally:
            draft.unlink(missing_ok=True)


def change(place: Place, value: Any, was: str) -> Change:
    """A change to a value, or, where that is `ABSENT`, the removal of the place."""
    removed = value is ABSENT
    return Change(place, None if removed else value, was, removed)


def changed_config(config: Mapping[str, Any], changes: list[Change]) -> dict[str, Any]:
    """The config with changes made; one whose surroundings are gone is left out."""
    found: dict[str, Any] = copy.deepcopy(dict(config))
    for each in changes:
        *outer, last = each.place
        inner = _at(found, tuple(outer))
        if isinstance(inner, dict) and each.removed:
            inner.pop(last, None)
        elif isinstance(inner, dict) or _at(inner, (last,)) is not ABSENT:
            inner[last] = copy.deepcopy(each.value)
    return found


def merged(config: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the properties of `update` in place of those of the same name, whole.

    spec: AirbyteControlConnectorConfigMessage: "the config items … to update"; what it does not name stays.
    """
    return {**config, **update}


def differences(old: Any, new: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """What `new` has that `old` has not, or has otherwise: the outermost places where they part, with their
    value in `new`, or `ABSENT`. Items of lists of one length are compared one by one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, value in new.items():
            yield from differences(old.get(name, ABSENT), value, (*at, name))
        yield from (((*at, name), ABSENT) for name in old if name not in new)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*at, position))
    elif old is ABSENT or _canonical(old) != _canonical(new):
        yield at, new


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, names of properties aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def _at(config: Any, place: Place) -> Any:
    for step in place:
        is_there = isinstance(config, Mapping) and step in config
        if not is_there and not (
            isinstance(config, list) and isinstance(step, int) and step < len(config)
        ):
            return ABSENT
        config = config[step]
    return config


def _within(place: Place, outer: Place) -> bool:
    return place[: len(outer)] == outer


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
