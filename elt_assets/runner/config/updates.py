"""Store the changes that a connector makes to its own config, such as a renewed single-use credential.

The file contains only the places that differ from the written config. A reference to an environment variable
stays a reference if the connector did not change its value. Each change has a keyed hash of the value that
was written at its place. If the user writes another value there, or the variable gets another value, the
change no longer applies: the user's value is used.

Spec: AirbyteControlConnectorConfigMessage: "the orchestrator process should update its persistence layer".
"""

from __future__ import annotations

import copy
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from elt_assets.protocol.specification import Place
from elt_assets.runner.config.update_files import LocalFile, MemoryFile, UpdateFile, unreadable

ABSENT = object()
"""Stands for a missing value."""


class Change(msgspec.Struct, frozen=True):
    """A change at one place of a config."""

    place: Place
    value: Any
    was: str
    """Keyed hash of the value that was written at the place: the change applies as long as that stays."""
    removed: bool = False
    """Whether the change removes the value; `value` is None then."""


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
    """The changes of one connector's config.

    Args:
        store: the file that has them, which may be in the vault; None keeps them in memory, in this object.
    """

    def __init__(self, store: Path | UpdateFile | None):
        self._file = LocalFile(store) if isinstance(store, Path) else store or MemoryFile()

    def changes(self, config: Mapping[str, Any]) -> list[Change]:
        """Return the changes to apply to a config, in their order.

        Args:
            config: the config as written, with references resolved.

        Raises:
            EltError: they cannot be read.
        """
        return self._decode(self._file.read()).applicable(config)

    def keep(self, config: Mapping[str, Any], changed: Mapping[Place, Any]) -> None:
        """Add changes, which replace older ones at or within the same places; they are durable on return.

        Stored changes that no longer apply are removed. Several processes may add changes at the same time.

        Args:
            config: the config as written, with references resolved.
            changed: the new values by place, as `differences` returns them.

        Raises:
            EltError: the stored changes cannot be read, or the new ones cannot be stored.
        """

        def add(content: bytes | None) -> bytes:
            stored = self._decode(content)
            remaining = [
                earlier
                for earlier in stored.applicable(config)
                if not any(earlier.place[: len(new)] == new for new in changed)
            ]
            for place, value in changed.items():
                removed = value is ABSENT
                was = stored.hash(_value_at(config, place))
                remaining.append(Change(place, None if removed else value, was, removed))
            stored.changes = remaining
            return msgspec.json.encode(stored)

        self._file.change(add)

    def _decode(self, content: bytes | None) -> _Stored:
        if content is None:
            return _Stored()
        try:
            return msgspec.json.decode(content, type=_Stored)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable(self._file, str(error)) from None


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


def _value_at(config: Any, place: Place) -> Any:
    for step in place:
        is_there = isinstance(config, Mapping) and step in config
        if not is_there and not (
            isinstance(config, list) and isinstance(step, int) and step < len(config)
        ):
            return ABSENT
        config = config[step]
    return config


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
