"""Limits of the YAML of connections, checked before a file is loaded.

A small file can stand for a document of any size, because an alias repeats what its anchor has, aliases
included. The parser's events have neither this size nor this depth yet, so they are counted on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import yaml

from elt_assets.errors import ConfigError
from elt_assets.paths import DEFINITION_FILE

MAX_VALUES = 500_000
"""Maximum number of values in a file; what an alias repeats counts again each time."""
MAX_DEPTH = 100
"""Maximum depth of values in values, also behind aliases."""
COMPONENT_FILES = (DEFINITION_FILE, "defs.yml", "component.yaml")
FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Several times faster, where PyYAML has the one in C."""


def check_limits(path: Path) -> None:
    """Check that a file, with all its aliases replaced by what they repeat, is within the limits.

    Raises:
        ConfigError: it is not.
        yaml.YAMLError: it is not YAML.
        UnicodeDecodeError: it is not UTF-8 text.
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8") as file:
        problem = _problem(file)
    if problem is not None:
        raise ConfigError(
            f"{path} cannot be loaded: it {problem}",
            guidance="write what is needed without these aliases or levels, or split the file",
        )


def _problem(file: IO[str]) -> str | None:
    """Return what exceeds a limit; None if nothing does."""
    size = _Size()
    for event in yaml.parse(file, FAST_LOADER):
        if isinstance(event, yaml.AliasEvent) and event.anchor not in size.anchored:
            return f"has the alias *{event.anchor} without a complete value before it"
        size.count_event(event)
        if size.values > MAX_VALUES:
            return f"stands for more than {MAX_VALUES:,} values"
        if len(size.outer) + size.depth > MAX_DEPTH:
            return f"has values in values more than {MAX_DEPTH} levels deep"
    return None


class _Size:
    """Number of values and depth of the collection that the parser is in."""

    def __init__(self) -> None:
        self.anchored: dict[str, tuple[int, int]] = {}
        self.outer: list[tuple[str | None, int, int]] = []
        self.anchor: str | None = None
        self.values = self.depth = 0

    def count_event(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.CollectionStartEvent):
            self.outer.append((self.anchor, self.values, self.depth))
            self.anchor, self.values, self.depth = event.anchor, 1, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            inner = self.anchor, self.values, self.depth + 1
            self.anchor, self.values, self.depth = self.outer.pop()
            self._add(*inner)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(event.anchor, 1, 1)
        elif isinstance(event, yaml.AliasEvent):
            self._add(None, *self.anchored[str(event.anchor)])

    def _add(self, anchor: str | None, values: int, depth: int) -> None:
        if anchor is not None:
            self.anchored[anchor] = values, depth
        self.values, self.depth = self.values + values, max(self.depth, depth)
