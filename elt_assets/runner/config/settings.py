"""A connector's config: as written, its environment variables in it, and what the connector changed.

spec: Actor Specification; AirbyteControlConnectorConfigMessage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.messages import ConnectorConfig, Control, Log, Message
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.specification import as_texts
from elt_assets.runner.config.secrets import resolve_environment
from elt_assets.runner.config.updates import (
    Change,
    ConfigStore,
    changed_config,
    differences,
    merged,
    strings,
)
from elt_assets.runner.config.validation import Validation, validate

CONNECTOR_CONFIG = "CONNECTOR_CONFIG"


class Settings:
    """The config of one connector; every secret that it meets is made known to `mask`.

    Args:
        written: by the user, `{env: NAME}` included.
        name: of the connector, for messages.
        store: the file of what the connector changed; None keeps that in memory.
        warn: takes what of the specification could not be checked, once each.
    """

    def __init__(
        self,
        written: Mapping[str, Any],
        name: str,
        mask: Masker,
        store: Path | None,
        warn: Callable[[str], None],
    ):
        self._written = written
        self._name = name
        self._mask = mask
        self._path = store
        self._store = ConfigStore(store)
        self._warn = warn
        self._unchecked: set[str] = set()

    def in_force(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The config to start with now, valid by a `connectionSpecification`.

        Raises:
            ConfigError: every violation, without any value of a secret; or a variable is not set.
        """
        written, secrets = resolve_environment(dict(self._written), schema=schema)
        changes = self._store.changes(written)
        config = changed_config(written, changes)
        self._mask.add([*secrets, *strings([change.value for change in changes])])
        found = self._validated(config, schema)
        if found.violations:
            raise ConfigError(
                f"the config of connector {self._name} breaks its specification:\n{_listed(found)}",
                guidance=f"correct `source.config` in the connection's YAML{self._or_forget(changes)}",
            )
        return config

    def obey(self, control: Control, config: dict[str, Any], schema: Mapping[str, Any]) -> Message:
        """Carry out a CONTROL message of a process that was started with `config`, which is brought up to
        date; what is changed is durable when this returns.

        Returns:
            The message to send on: it says that there was a change, and no value.

        Raises:
            SystemFailure: the config would break its specification, or cannot be kept.
        """
        if control.type != CONNECTOR_CONFIG:
            text = f"ignored a control message of the unknown type {control.type!r}"
            return Message(type="LOG", log=Log(level="WARN", message=text))
        if control.connectorConfig is None:
            raise SystemFailure(f"connector {self._name} sent a change of its config without one")
        self._change(config, control.connectorConfig.config, schema)
        told = Control(
            type=control.type,
            emitted_at=control.emitted_at,
            connectorConfig=ConnectorConfig(config={}),
        )
        return Message(type="CONTROL", control=told)

    def _change(
        self, config: dict[str, Any], update: Mapping[str, Any], schema: Mapping[str, Any]
    ) -> None:
        updated = merged(config, update)
        changed = dict(differences(config, updated))
        self._mask.add(strings(list(changed.values())))
        found = self._validated(updated, schema)
        if found.violations:
            raise SystemFailure(
                f"connector {self._name} changed its config to one that breaks its specification:\n"
                f"{_listed(found)}",
                guidance="this is a defect of the connector; the config is kept as it was",
            )
        if changed:
            written, _ = resolve_environment(dict(self._written), schema=schema)
            self._store.keep(written, changed)
            config.clear()
            config.update(updated)

    def _or_forget(self, changes: Sequence[Change]) -> str:
        if not changes or self._path is None:
            return ""
        return f"; or remove {self._path}, which holds what the connector changed in its config"

    def _validated(self, config: Mapping[str, Any], schema: Mapping[str, Any]) -> Validation:
        """A config held against the specification; its secrets are masked from here on."""
        found = validate(config, schema, self._name)
        self._mask.add(as_texts(value for _, value in found.secrets))
        for line in found.unchecked:
            if line not in self._unchecked:
                self._unchecked.add(line)
                self._warn(f"the specification of connector {self._name}: {line}")
        return found


def _listed(found: Validation) -> str:
    return "\n".join(f"  - {line}" for line in found.violations)
