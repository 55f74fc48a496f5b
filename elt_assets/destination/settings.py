"""Configs of `elt-destination` and `target-elt`: their specifications and their settings.

Used by `entry` and `target`, and by what they run.

First the settings of the Meltano SDK's targets, which are translated to those of this project; then the
specifications, and `Settings`, the settings of a valid config.

Spec: Meltano SDK, target settings: https://sdk.meltano.com
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.protocol.config_check import violations
from elt_assets.sync.field_selection import OnSchemaChange
from elt_assets.sync.session import Threshold

APPEND_ONLY = "append_only"
KEEPS_DELETED = "keeps_deleted"
NAMESPACE_PATTERN = "^[A-Za-z0-9_]+$"
"""Pattern of the first level of the table paths under the lake."""

MELTANO_SETTINGS: dict[str, Any] = {
    "load_method": {
        "title": "Load method",
        "description": "upsert: the latest row of each key; append-only: every record is a row.",
        "type": "string",
        "default": "upsert",
    },
    "batch_size_rows": {
        "title": "Rows of a commit",
        "description": "The same as `checkpoint.rows`.",
        "type": "integer",
        "minimum": 1,
    },
    "batch_wait_limit_seconds": {
        "title": "Seconds between commits",
        "description": "The same as `checkpoint.seconds`.",
        "type": "number",
        "exclusiveMinimum": 0,
    },
    "default_target_schema": {
        "title": "Schema",
        "description": "The same as `namespace`.",
        "type": "string",
        "pattern": NAMESPACE_PATTERN,
    },
    "add_record_metadata": {"title": "Metadata columns", "type": "boolean"},
    "validate_records": {"title": "Validation", "type": "boolean"},
    "flattening_enabled": {"title": "Flattening", "type": "boolean"},
    "hard_delete": {
        "title": "Deletes",
        "description": "true: a record with _sdc_deleted_at removes the row of its key; false: it stays, "
        "with the time of the delete in _deleted_at.",
        "type": "boolean",
        "default": True,
    },
    "process_activate_version_messages": {"title": "ACTIVATE_VERSION", "type": "boolean"},
}
"""JSON schemas of the settings that are accepted. Those in `_ONLY` support one value only."""

_ONLY: Mapping[str, tuple[bool, str]] = {
    "add_record_metadata": (
        False,
        "there are no _sdc_ columns; each row has _airbyte_extracted_at, _airbyte_raw_id and _airbyte_meta",
    ),
    "validate_records": (
        False,
        "a value that does not fit its schema becomes null, and is recorded in _airbyte_meta",
    ),
    "flattening_enabled": (False, "an object is one column, which contains its fields"),
    "process_activate_version_messages": (True, "an activated version replaces all other rows"),
}
_REFUSED: Mapping[str, str] = {
    "flattening_max_depth": "nothing is flattened",
    "flattening_max_key_length": "nothing is flattened",
    "stream_maps": "records are loaded as they come",
    "stream_map_config": "records are loaded as they come",
    "faker_config": "records are loaded as they come",
    "batch_config": "the target writes no batches; `batch_roots` lists the folders from which they are read",
}
_SAME_AS = {
    "batch_size_rows": ("checkpoint", "rows"),
    "batch_wait_limit_seconds": ("checkpoint", "seconds"),
}
_APPEND_ONLY = "append-only"


def refuse_unsupported(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of the SDK, or its value, is not supported.

    Raises:
        ConfigError: lists each such setting, and what the target does instead.
    """
    problems = [f"{name}: not supported: {why}" for name, why in _REFUSED.items() if name in config]
    for name, (value, why) in _ONLY.items():
        if isinstance(config.get(name), bool) and config[name] is not value:
            problems.append(f"{name}: {str(not value).lower()} is not supported: {why}")
    method = config.get("load_method", "upsert")
    if method not in ("upsert", _APPEND_ONLY):
        problems.append(
            f"load_method: {method!r} is not supported: write upsert or append-only; a tap that sends "
            "ACTIVATE_VERSION replaces the rows of a table"
        )
    if problems:
        raise ConfigError(
            "the config has settings of the Meltano SDK that this target does not support:\n"
            + "\n".join(f"  - {problem}" for problem in problems),
            guidance="remove them; docs/singer.md lists the supported settings",
        )


def translate_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a valid config with `MELTANO_SETTINGS` translated; this project's own settings win."""
    settings = {name: value for name, value in config.items() if name not in MELTANO_SETTINGS}
    for name, (outer, inner) in _SAME_AS.items():
        if name in config:
            settings[outer] = {inner: config[name], **settings.get(outer, {})}
    if "default_target_schema" in config:
        settings.setdefault("namespace", config["default_target_schema"])
    if config.get("load_method") == _APPEND_ONLY:
        settings[APPEND_ONLY] = True
    if config.get("hard_delete") is False:
        settings[KEEPS_DELETED] = True
    return settings


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
    keeps_deleted: bool = False  # whether rows stay that the source has deleted

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
            keeps_deleted=config.get(KEEPS_DELETED, False),
        )


def _refuse_invalid(config: Mapping[str, Any], specification: Mapping[str, Any]) -> None:
    lines = violations(config, specification)
    if lines:
        raise ConfigError(
            "the config does not match the specification:\n" + "\n".join(lines),
            guidance="docs/destination.md lists the valid settings",
        )
