"""Configs of `elt-destination` and `target-elt`: their specifications and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from elt_assets import paths
from elt_assets.destination.meltano import (
    APPEND_ONLY,
    MELTANO_SETTINGS,
    NAMESPACE_PATTERN,
    refuse_unsupported,
    translate_settings,
)
from elt_assets.errors import ConfigError
from elt_assets.protocol.config_check import violations
from elt_assets.sync.selection.schema_changes import OnSchemaChange
from elt_assets.sync.session import Threshold

NAMESPACE = "destination"
"""Default of `namespace`."""
_DEFAULTS = Threshold()

SPECIFICATION: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Spark lake",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "lake": {
            "title": "Lake",
            "description": "The root of the tables: a path, or a URI of an object store (docs/storage.md). "
            "Default: ELT_LAKE, or `lake` in DAGSTER_HOME.",
            "type": "string",
            "minLength": 1,
            "order": 0,
        },
        "namespace": {
            "title": "Namespace",
            "description": "The first level under the lake.",
            "type": "string",
            "pattern": NAMESPACE_PATTERN,
            "default": NAMESPACE,
            "order": 1,
        },
        "on_schema_change": {
            "title": "When a stream's schema changes",
            "description": "evolve: the table follows; freeze: new fields are left out; fail: an error.",
            "type": "string",
            "enum": list(get_args(OnSchemaChange)),
            "default": "evolve",
            "order": 2,
        },
        "history": {
            "title": "History",
            "description": "Also keep every version of every row of deduplicated streams, in "
            "<table>_history.",
            "type": "boolean",
            "default": False,
            "order": 3,
        },
        "checkpoint": {
            "title": "Checkpoint",
            "description": "A commit is due at the first state after any of these is reached.",
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "rows": {"type": "integer", "minimum": 1, "default": _DEFAULTS.rows},
                "megabytes": {
                    "type": "integer",
                    "minimum": 1,
                    "default": _DEFAULTS.bytes >> 20,
                },
                "seconds": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "default": _DEFAULTS.seconds,
                },
            },
            "order": 4,
        },
        "spark": {
            "title": "Spark settings",
            "description": "A file in the format of spark-defaults.conf. Default: ELT_SPARK, or "
            "`spark-defaults.conf` in DAGSTER_HOME, if it is there.",
            "type": "string",
            "minLength": 1,
            "order": 5,
        },
    },
}
"""JSON schema of the config of `elt-destination`.

Spec: Actor Specification, `connectionSpecification`.
"""
TARGET_SPECIFICATION: dict[str, Any] = {
    **SPECIFICATION,
    "properties": {
        **SPECIFICATION["properties"],
        "batch_roots": {
            "title": "Folders of batches",
            "description": "Paths; a file of a BATCH is read only if it is in one of them. Default: none.",
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "order": 6,
        },
        **MELTANO_SETTINGS,
    },
}
"""JSON schema of the config of `target-elt`."""


@dataclass(frozen=True)
class Settings:
    """The settings of a valid config."""

    lake: str  # without a slash at its end
    namespace: str  # first level of the table paths under the lake
    on_schema_change: OnSchemaChange
    history: bool
    threshold: Threshold
    spark: Path | Mapping[str, str] | None  # file of Spark settings
    batch_roots: Sequence[Path] = ()  # folders whose batch files may be read
    append_only: bool = False  # whether primary keys are ignored

    @classmethod
    def from_target_config(cls, config: Mapping[str, Any]) -> Settings:
        """Return the settings of `target-elt`.

        Raises:
            ConfigError: as for `from_config`; or a setting of the Meltano SDK is not supported.
        """
        refuse_unsupported(config)
        _refuse_invalid(config, TARGET_SPECIFICATION)
        return cls._from_valid(translate_settings(config))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """Return the settings of `elt-destination`.

        Raises:
            ConfigError: the config does not match the specification; lists every violation.
        """
        _refuse_invalid(config, SPECIFICATION)
        return cls._from_valid(config)

    @classmethod
    def _from_valid(cls, config: Mapping[str, Any]) -> Settings:
        checkpoint = config.get("checkpoint", {})
        spark = config.get("spark")
        return cls(
            lake=config.get("lake", "").rstrip("/") or paths.lake(),
            namespace=config.get("namespace", NAMESPACE),
            on_schema_change=config.get("on_schema_change", "evolve"),
            history=config.get("history", False),
            threshold=Threshold(
                rows=checkpoint.get("rows", _DEFAULTS.rows),
                bytes=checkpoint.get("megabytes", _DEFAULTS.bytes >> 20) << 20,
                seconds=checkpoint.get("seconds", _DEFAULTS.seconds),
            ),
            spark=Path(spark).expanduser() if spark is not None else paths.spark_settings(),
            batch_roots=[Path(root).expanduser() for root in config.get("batch_roots", [])],
            append_only=config.get(APPEND_ONLY, False),
        )


def _refuse_invalid(config: Mapping[str, Any], specification: Mapping[str, Any]) -> None:
    lines = violations(config, specification)
    if lines:
        raise ConfigError(
            "the config does not match the specification:\n" + "\n".join(lines),
            guidance="docs/destination.md lists the valid settings",
        )
