"""The streams that the `select` and the `metadata` of a Meltano extractor configure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from elt_assets.cli.commands.importing.draft import Json
from elt_assets.connection.default_attributes import overwrite_attributes, stream_attributes
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.protocol.catalog import AirbyteStream, Catalog

_WILDCARD = re.compile(r"[*?\[]")
_DOT = re.compile(r"(?<!\\)\.")
_KEYS = (
    "replication-method",
    "replication-key",
    "table-key-properties",
    "view-key-properties",
    "selected",
)


@dataclass(frozen=True)
class Selection:
    """The selection of an extractor.

    Args:
        patterns: `select`: STREAM.FIELD, with wildcards; with ! before it, what is not selected.
        metadata: the metadata of streams, by patterns of their names.
    """

    patterns: Sequence[str] | None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_catalog(self) -> bool:
        """Return whether the names of the streams are known to the tap alone."""
        return any(_WILDCARD.search(stream) for is_out, stream, _ in self._rules if not is_out)

    @property
    def _rules(self) -> list[tuple[bool, str, str]]:
        """The patterns: whether they exclude, and their patterns of streams and of fields."""
        rules = []
        for pattern in self.patterns or ["*.*"]:
            stream, *rest = _DOT.split(pattern.removeprefix("!"), maxsplit=1)
            fields = rest[0] if rest else "*"
            rules.append((pattern.startswith("!"), stream.replace("\\.", "."), fields))
        return rules

    def configure(self, catalog: Catalog | None, notes: list[str]) -> list[Json]:
        """Return the settings of the selected streams.

        Args:
            catalog: the catalog of the tap; None if it is not known.
            notes: gets a line for each part that has no counterpart.
        """
        by_name = {stream.name: stream for stream in catalog.streams} if catalog is not None else {}
        names = list(by_name) or [stream for is_out, stream, _ in self._rules if not is_out]
        streams = (self._stream(name, by_name.get(name), notes) for name in dict.fromkeys(names))
        notes += [
            f"metadata.{pattern}"
            for pattern in self.metadata
            if not any(fnmatchcase(name, pattern) for name in names)
        ]
        return [stream for stream in streams if stream is not None]

    def _stream(self, name: str, stream: AirbyteStream | None, notes: list[str]) -> Json | None:
        rules = [
            (out, fields) for out, pattern, fields in self._rules if fnmatchcase(name, pattern)
        ]
        included = [fields for is_out, fields in rules if not is_out]
        excluded = [fields for is_out, fields in rules if is_out]
        metadata = self._metadata_of(name)
        if not included or metadata.get("selected") is False or "*" in excluded:
            return None
        settings = self._replication(name, stream, metadata, notes)
        available = list((stream.json_schema.get("properties") or {}) if stream is not None else {})
        fields: Json = {}
        if "*" not in included:
            # What a sync needs is stored as well, as the tap marks it `automatic`.
            needed = [".".join(path) for path in settings.get("primary_key", [])]
            needed += [".".join(settings["cursor_field"])] if "cursor_field" in settings else []
            selected = _expand(included, available, f"{name}: select", notes)
            # An exclusion always takes precedence over what is included: meltano#6401
            selected = [
                path for path in selected if not any(fnmatchcase(path, out) for out in excluded)
            ]
            fields["include"] = list(dict.fromkeys([*selected, *needed]))
        elif excluded:
            fields["exclude"] = _expand(excluded, available, f"{name}: select", notes)
        notes += [f"stream {name}: metadata.{key}" for key in metadata if key not in _KEYS]
        return {**settings, "fields": fields} if any(fields.values()) else settings

    def _metadata_of(self, name: str) -> Json:
        """Return the metadata of a stream; those of an exact name take precedence."""
        matches = [pattern for pattern in self.metadata if fnmatchcase(name, pattern)]
        merged: Json = {}
        for pattern in sorted(matches, key=lambda pattern: not _WILDCARD.search(pattern)):
            merged |= self.metadata[pattern] or {}
        return {key: value for key, value in merged.items() if value is not None}

    @staticmethod
    def _replication(
        name: str, stream: AirbyteStream | None, metadata: Json, notes: list[str]
    ) -> Json:
        method, cursor = metadata.get("replication-method"), metadata.get("replication-key")
        keys = metadata.get("table-key-properties") or metadata.get("view-key-properties") or []
        has_key = bool(keys or (stream is not None and stream.source_defined_primary_key))
        settings = overwrite_attributes(name, stream.namespace if stream is not None else None)
        if method is None and cursor is None:
            own = stream_attributes(stream, check_columns) if stream is not None else None
            if own is None:
                notes.append(f"stream {name}: no replication method is written; it is read whole")
            settings = own or settings
        elif method != "FULL_TABLE":
            settings |= {
                "sync_mode": "incremental",
                "destination_sync_mode": "append_dedup" if has_key else "append",
            }
            settings |= {"replication_method": method} if method == "LOG_BASED" else {}
            settings |= {"cursor_field": [cursor]} if cursor and method != "LOG_BASED" else {}
        if keys and settings["destination_sync_mode"].endswith("dedup"):
            settings["primary_key"] = [[key] for key in keys]
        return settings


def _expand(
    patterns: Sequence[str], available: Sequence[str], place: str, notes: list[str]
) -> list[str]:
    """Return the fields that patterns match; a pattern of fields that are not known is a note."""
    result: list[str] = []
    for pattern in patterns:
        if not _WILDCARD.search(pattern):
            result.append(pattern)
        elif available:
            result += [name for name in available if fnmatchcase(name, pattern)]
        else:
            notes.append(f"stream {place}: the fields of {pattern!r} are not known")
    return list(dict.fromkeys(result))
