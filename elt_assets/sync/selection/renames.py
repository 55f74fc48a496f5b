"""The new names of a stream's top-level fields: of its schema, key and cursor, and of its records.

All rules for fields, keys and cursors name them as the source does. What is stored has the new names.
A field of a record whose name differs from a renamed one in case only is that field, as everywhere
(`lake.schema.names`), unless the catalog declares it beside the other one.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from elt_assets.protocol.catalog import ConfiguredStream

T = TypeVar("T")
_OPTIONS = ("oneOf", "anyOf")


@dataclass(frozen=True)
class Renames:
    """The new names of fields."""

    names: Mapping[str, str]  # the new name of each field that has one, by its name in the source
    declared: Collection[str] = ()  # the fields that the catalog declares

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        """The renamed fields by their names in lower case."""
        return {name.lower(): name for name in reversed(list(self.names))}

    @cached_property
    def _targets(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.names.values())

    def __getitem__(self, name: str) -> str:
        """Return the name under which a declared field is stored."""
        return self.names.get(name, name)

    def rename_fields(self, fields: Mapping[str, T]) -> dict[str, T]:
        """Return the fields of an object by their new names, in the same order.

        An undeclared field that has the new name of another one is left out: it would be taken for that one.
        """
        renamed = ((self._name_in(fields, name), value) for name, value in fields.items())
        return {name: value for name, value in renamed if name is not None}

    def _name_in(self, fields: Mapping[str, object], name: str) -> str | None:
        if name in self.names:
            return self.names[name]
        if name in self.declared:
            return name
        source = self._sources.get(name.lower())
        if source is not None and source not in fields:
            return self.names[source]
        return None if name.lower() in self._targets else name

    def rename_path(self, path: str) -> str:
        """Return the path of a field, with dots between its names, by the new names."""
        if path in self.names:
            return self.names[path]
        first, dot, rest = path.partition(".")
        return f"{self[first]}{dot}{rest}"

    def rename_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of an object with the new names of its fields."""
        renamed = dict(schema)
        if isinstance(inner := schema.get("properties"), Mapping):
            renamed["properties"] = self.rename_fields(inner)
        if isinstance(required := schema.get("required"), list):
            renamed["required"] = [
                self[name] if isinstance(name, str) else name for name in required
            ]
        for key in _OPTIONS:
            if isinstance(options := schema.get(key), list):
                renamed[key] = [
                    self.rename_schema(option) if isinstance(option, dict) else option
                    for option in options
                ]
        return renamed

    def rename_stream(self, stream: ConfiguredStream) -> ConfiguredStream:
        """Return a stream as it is stored: its schema, key and cursor have the new names."""
        renamed, described = copy.copy(stream), copy.copy(stream.stream)
        described.json_schema = self.rename_schema(described.json_schema)
        described.default_cursor_field = self._rename_steps(described.default_cursor_field)
        described.source_defined_primary_key = self._rename_all(
            described.source_defined_primary_key
        )
        renamed.stream = described
        renamed.cursor_field = self._rename_steps(stream.cursor_field)
        renamed.primary_key = self._rename_all(stream.primary_key)
        return renamed

    def _rename_steps(self, path: list[str] | None) -> list[str] | None:
        return path and [self[path[0]], *path[1:]]

    def _rename_all(self, paths: Sequence[list[str]] | None) -> list[list[str]] | None:
        return None if paths is None else [self._rename_steps(path) or [] for path in paths]
