"""Build a connector's config from the written config, environment variables and the connector's own changes.

Spec: Actor Specification; AirbyteControlConnectorConfigMessage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.messages import ConnectorConfig, Control, Log, Message
from elt_assets.protocol.secret_parts import CREDENTIAL
from elt_assets.protocol.specification import Place, as_texts, is_mask
from elt_assets.runner.config.references import strings
from elt_assets.runner.config.secrets import resolve_references
from elt_assets.runner.config.update_files import UpdateFile
from elt_assets.runner.config.updates import (
    Change,
    ConfigStore,
    apply_changes,
    differences,
    merge_values,
)
from elt_assets.runner.config.validation import Validation, validate

CONNECTOR_CONFIG = "CONNECTOR_CONFIG"
MAX_CHANGES = 1_000
MAX_CHANGED_CHARACTERS = 1 << 20
"""Maximum number of texts of a config that one message of a connector changes, and of their characters."""


class Settings:
    """The config of one connector.

    Args:
        written: the config as the user wrote it, with references (`{env: NAME}`).
        name: the connector's name in messages.
        mask: gets every secret in the config.
        store: the file of the connector's changes; None keeps them in memory.
        warn: receives, once each, the parts of the specification that cannot be checked.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        name: str,
        mask: Masker,
        store: Path | UpdateFile | None,
        warn: Callable[[str], None],
    ):
        self._written = config
        self._name = name
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
                f"the config of connector {self._name} violates its specification:\n"
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
                f"connector {self._name} sent a {CONNECTOR_CONFIG} message without a config",
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
                f"connector {self._name} changed its config to one that violates its specification:\n"
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
                f"connector {self._name} changed {len(texts):,} texts of its config, with {size:,} "
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
                    f"connector {self._name} changed config.{'.'.join(map(str, place))} to a mask, and the "
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
        validation = validate(config, schema, self._name)
        self._mask.add(as_texts(value for _, value in validation.secrets))
        if validation.flaw is not None and validation.flaw != self._flaw:
            self._flaw = validation.flaw
            self._warn(
                f"the config of connector {self._name} is not checked: its specification is not valid JSON "
                f"Schema: {validation.flaw}"
            )
        return validation


def _violation_list(validation: Validation) -> str:
    return "\n".join(f"  - {line}" for line in validation.violations)
