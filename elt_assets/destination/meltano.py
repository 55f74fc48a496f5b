"""Settings of the Meltano SDK's targets, translated to the settings of this project.

Spec: Meltano SDK, target settings: https://sdk.meltano.com
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elt_assets.errors import ConfigError

APPEND_ONLY = "append_only"
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
    "hard_delete": {"title": "Deletes", "type": "boolean"},
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
    "hard_delete": (True, "a record with _sdc_deleted_at removes the row of its key"),
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
    return settings
