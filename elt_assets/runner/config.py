"""Build a connector's config from the written one, its references and the connector's stored changes.

`connector` and `singer_tap` take the config from `Settings`; `pipeline.connectors` chooses where changes are
stored, and `source_kind` remembers it.

First where changes are stored: in memory, a file or the vault; then `ConfigStore`, which stores the changes
that a connector makes to its own config, such as a renewed single-use credential; then `Settings`, the config
that a connector gets.

The store contains only the places that differ from the written config. A reference to an environment variable
stays a reference if the connector did not change its value. Each change has a keyed hash of the value that
was written at its place. If the user writes another value there, or the variable gets another value, the
change no longer applies: the user's value is used.

Spec: Actor Specification; AirbyteControlConnectorConfigMessage: "the orchestrator process should update its
persistence layer".
"""

from __future__ import annotations

import copy
import hmac
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.messages import ConnectorConfig, Control, Log, Message
from elt_assets.protocol.secret_parts import CREDENTIAL
from elt_assets.protocol.specification import Place, as_texts, is_mask
from elt_assets.runner.config_validation import Validation, validate
from elt_assets.runner.locks import exclusive
from elt_assets.runner.references import resolve_references, strings
from elt_assets.runner.vault import VaultEntry
from elt_assets.storage.folders import make_private, sync_folder, write_draft

Compute = Callable[[bytes | None], bytes]
"""Returns the new content, given the stored one; None if nothing is stored."""


class UpdateFile(Protocol):
    """A place for the changes of one connector; its text names the place."""

    def read(self) -> bytes | None:
        """Return the content; None if there is none."""

    def change(self, compute: Compute) -> object:
        """Replace the content; it is durable on return. Several processes may do it at the same time."""


class MemoryFile:
    """A content that lives as long as this object."""

    def __init__(self) -> None:
        self._content: bytes | None = None

    def read(self) -> bytes | None:
        return self._content

    def change(self, compute: Compute) -> None:
        self._content = compute(self._content)


class LocalFile:
    """A file that only this user can read."""

    def __init__(self, path: Path):
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(self, str(error)) from None

    def change(self, compute: Compute) -> None:
        try:
            make_private(self._path.parent)
            self._path.parent.chmod(0o700)
            with exclusive(self._path.with_suffix(".lock")):
                self._write(compute(self.read()))
        except OSError as error:
            raise SystemFailure(
                f"a connector changed its config, but the change cannot be stored in {self._path}: "
                f"{error.strerror}",
                guidance="make the file writable; if the change was a single-use credential, renew the one "
                "in the connection's YAML",
            ) from error

    def remove(self) -> None:
        """Remove the file, if there is one."""
        try:
            for path in (self._path, self._path.with_suffix(".lock")):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise SystemFailure(
                f"{self._path} cannot be removed: {error.strerror}",
                guidance="make its folder writable",
            ) from error

    def _write(self, content: bytes) -> None:
        """Write the file atomically and durably: a rotated credential is stored nowhere else."""
        with write_draft(self._path.parent, content) as draft:
            draft.replace(self._path)
            sync_folder(self._path.parent)


class VaultFile:
    """An entry of the vault. Until it exists, its content is that of the file without a vault."""

    def __init__(self, entry: VaultEntry, former: Path):
        self._entry = entry
        self._former = LocalFile(former)

    def __str__(self) -> str:
        return str(self._entry)

    def read(self) -> bytes | None:
        content = self._entry.read()
        return self._former.read() if content is None else content

    def change(self, compute: Compute) -> None:
        self._entry.change(
            lambda content: compute(self._former.read() if content is None else content)
        )

    def remove(self) -> None:
        """Remove the file without a vault and the entry, if there are any; the file would come back."""
        self._former.remove()
        self._entry.remove()


def unreadable(file: UpdateFile, reason: str) -> ConfigError:
    """Return the error for stored changes that cannot be read."""
    return ConfigError(
        f"the stored config changes of a connector, {file}, cannot be read: {reason}",
        guidance="restore the file from a backup; or remove it, and renew every single-use "
        "credential in the connection's YAML",
    )


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


CONNECTOR_CONFIG = "CONNECTOR_CONFIG"
MAX_CHANGES = 1_000
MAX_CHANGED_CHARACTERS = 1 << 20
"""Maximum number of texts of a config that one message of a connector changes, and of their characters."""


class Settings:
    """The config of one connector.

    Args:
        written: the config as the user wrote it, with references (`{env: NAME}`).
        title: the connector in messages.
        mask: gets every secret in the config.
        store: the file of the connector's changes; None keeps them in memory.
        warn: receives, once each, the parts of the specification that cannot be checked.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        title: str,
        mask: Masker,
        store: Path | UpdateFile | None,
        warn: Callable[[str], None],
    ):
        self._written = config
        self._title = title
        self._mask = mask
        self._path = store
        self._store = ConfigStore(store)
        self._warn = warn
        self._flaw: str | None = None
        self.changed: list[Place] = []
        """The places of the last effective config that the connector has changed."""

    def effective(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config for the next process, validated by a `connectionSpecification`.

        Raises:
            ConfigError: the config violates the specification; lists every violation, but no secret. Or a
                variable is not set.
        """
        plain_config = self.resolve_written(schema)
        changes = self._store.changes(plain_config)
        config = apply_changes(plain_config, changes)
        self.changed = [change.place for change in changes]
        self._mask.add(strings([change.value for change in changes]))
        validation = self._validate(config, schema)
        if validation.violations:
            raise ConfigError(
                f"the config of {self._title} violates its specification:\n"
                f"{_violation_list(validation)}",
                guidance=f"correct `source.config` in the connection's YAML{self._reset_hint(changes)}",
            )
        return config

    def resolve_written(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config as the user wrote it, with its references resolved, but no stored changes."""
        config, secrets = resolve_references(dict(self._written), schema=schema)
        self._mask.add([*secrets, *filter(CREDENTIAL.search, strings(config))])
        return dict(config)

    def apply(self, control: Control, config: dict[str, Any], schema: Mapping[str, Any]) -> Message:
        """Apply a CONTROL message of a process, and store its changes; they are durable on return.

        Args:
            config: the config that the process was started with. It is updated in place.
            schema: the `connectionSpecification`.

        Returns:
            The message to send on. It reports the change without any value.

        Raises:
            SystemFailure: the changed config violates its specification, or the change cannot be stored.
        """
        if control.type != CONNECTOR_CONFIG:
            text = f"ignored a control message of the unknown type {control.type!r}"
            return Message(type="LOG", log=Log(level="WARN", message=text))
        if control.connectorConfig is None:
            raise SystemFailure(
                f"{self._title} sent a {CONNECTOR_CONFIG} message without a config",
                guidance="this is a defect of the connector; the stored config is unchanged",
            )
        self._change(config, control.connectorConfig.config, schema)
        notice = Control(
            type=control.type,
            emitted_at=control.emitted_at,
            connectorConfig=ConnectorConfig(config={}),
        )
        return Message(type="CONTROL", control=notice)

    def _change(
        self, config: dict[str, Any], update: Mapping[str, Any], schema: Mapping[str, Any]
    ) -> None:
        updated = merge_values(config, update)
        changed = dict(differences(config, updated))
        self._check_size(changed)
        self._refuse_masks(changed)
        self._mask.add(strings(list(changed.values())))
        validation = self._validate(updated, schema)
        if validation.violations:
            raise SystemFailure(
                f"{self._title} changed its config to one that violates its specification:\n"
                f"{_violation_list(validation)}",
                guidance="this is a defect of the connector; the stored config is unchanged",
            )
        if changed:
            self._store.keep(self.resolve_written(schema), changed)
            config.clear()
            config.update(updated)

    def _check_size(self, changed: Mapping[Place, Any]) -> None:
        """Check that a change is small enough to be masked in each later text.

        Raises:
            SystemFailure: it has too many values, or they are too long.
        """
        texts = [*strings(list(changed.values()))]
        size = sum(map(len, texts))
        if len(texts) > MAX_CHANGES or size > MAX_CHANGED_CHARACTERS:
            raise SystemFailure(
                f"{self._title} changed {len(texts):,} texts of its config, with {size:,} "
                f"characters; {MAX_CHANGES:,} and {MAX_CHANGED_CHARACTERS:,} are possible",
                guidance="this is a defect of the connector; the stored config is unchanged",
            )

    def _refuse_masks(self, changed: Mapping[Place, Any]) -> None:
        """Check that no value is a mask: a connector that reports one has lost the credential in its place.

        Raises:
            SystemFailure: one is.
        """
        for place, value in changed.items():
            if any(map(is_mask, strings([value]))):
                raise SystemFailure(
                    f"{self._title} changed config.{'.'.join(map(str, place))} to a mask, and the "
                    "credential in its place is not in the message",
                    guidance="this is a defect of the connector; the stored config is unchanged. If the "
                    "former credential is no longer valid, write a new one into the config",
                )

    def _reset_hint(self, changes: Sequence[Change]) -> str:
        if not changes or self._path is None:
            return ""
        return f"; or remove {self._path}, which contains the connector's changes to its config"

    def _validate(self, config: Mapping[str, Any], schema: Mapping[str, Any]) -> Validation:
        """Validate a config, and add its secrets to the mask."""
        validation = validate(config, schema, self._title)
        self._mask.add(as_texts(value for _, value in validation.secrets))
        if validation.flaw is not None and validation.flaw != self._flaw:
            self._flaw = validation.flaw
            self._warn(
                f"the config of {self._title} is not checked: its specification is not valid JSON "
                f"Schema: {validation.flaw}"
            )
        return validation


def _violation_list(validation: Validation) -> str:
    return "\n".join(f"  - {line}" for line in validation.violations)
