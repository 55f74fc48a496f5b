"""A connector's config: as written, its environment variables in it, and what the connector changed.

spec: Actor Specification; AirbyteControlConnectorConfigMessage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.messages import ConnectorConfig, Control, Log, Message
from elt_assets.protocol.specification import secret_values, violations
from elt_assets.runner.config_store import (
    ConfigStore,
    changed_config,
    differences,
    merged,
    strings,
)
from elt_assets.runner.secrets import Masker, resolve_environment

CONNECTOR_CONFIG = "CONNECTOR_CONFIG"


class Settings:
    """The config of one connector; every secret that it meets is made known to `mask`.

    Args:
        written: by the user, `{env: NAME}` included.
        name: of the connector, for messages.
        store: the file of what the connector changed; None keeps that in memory.
    """

    def __init__(self, written: Mapping[str, Any], name: str, mask: Masker, store: Path | None):
        self._written = written
        self._name = name
        self._mask = mask
        self._store = ConfigStore(store)

    def in_force(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The config to start with now, valid by a `connectionSpecification`.

        Raises:
            ConfigError: every violation, without any value of a secret; or a variable is not set.
        """
        written, secrets = resolve_environment(dict(self._written))
        changes = self._store.changes(written)
        config = changed_config(written, changes)
        changed = strings([change.value for change in changes])
        self._mask.add([*secrets, *changed, *secret_values(config, schema)])
        validate_config(config, schema, self._name)
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
            text = f"ignored a control message of the unknown type {control.type[:100]!r}"
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
        self._mask.add([*strings(list(changed.values())), *secret_values(updated, schema)])
        broken = _violations(updated, schema, self._name)
        if broken:
            raise SystemFailure(
                f"connector {self._name} changed its config to one that breaks its specification:\n{broken}",
                guidance="this is a defect of the connector; the config is kept as it was",
            )
        if changed:
            written, _ = resolve_environment(dict(self._written))
            self._store.keep(written, changed)
            config.update(updated)


def validate_config(config: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> None:
    """Check a config against a `connectionSpecification`.

    Raises:
        ConfigError: lists every violation, and shows no value of the config.
        SystemFailure: the specification is no JSON schema.
    """
    broken = _violations(config, schema, name)
    if broken:
        raise ConfigError(
            f"the config of connector {name} breaks its specification:\n{broken}",
            guidance="correct `source.config` in the connection's YAML",
        )


def _violations(config: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> str:
    """A line each."""
    try:
        return "\n".join(f"  - {line}" for line in violations(config, schema))
    except ValueError as error:
        raise SystemFailure(
            f"the specification of connector {name} is no JSON schema: {error}"
        ) from None
