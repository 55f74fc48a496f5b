"""Resolves the references of a manifest.

A reference is a text that starts with "#/", wherever it stands, or a mapping with the key `$ref`; the other
keys of such a mapping replace those of what it refers to. The parts of a path are keys of mappings or indexes
of lists; a key may itself contain a slash.

Spec: the reference resolver of the Airbyte CDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.yaml_text import MAX_VALUES, REFERENCE, Document, path
from elt_assets.errors import ConfigError

_UNRESOLVED = frozenset({"config_overrides"})
"""Fields with values for the config: "#/" has no meaning there."""
_MAX_SHOWN = 6


class _Broken:
    """The type of `BROKEN`."""


BROKEN = _Broken()
"""Stands where a reference could not be resolved. Its problem is reported."""

Place = tuple[Any, ...]
"""A place in the document: the keys and indexes that lead to it."""


def resolve(document: Document, report: Report, *, omitted: str) -> dict[str, Any]:
    """Return the document with its references resolved.

    Parts without references are those of the document itself, and what is referred to several times is one
    object, so nothing in it may be changed.

    Args:
        document: a document whose value is a mapping.
        report: where a reference that is not resolved is reported, as a problem.
        omitted: the key of the part that is left out, which only holds what references point to.

    Raises:
        ConfigError: the resolved document is too large.
    """
    resolver = _Resolver(document, report)
    resolved = {}
    for key, value in document.value.items():
        if key != omitted:
            resolved[key] = resolver.resolve(value, (key,))
    resolver.check_size(resolved)
    return resolved


class _Resolver:
    def __init__(self, document: Document, report: Report):
        self._root = document.value
        self._referring = document.referring
        self._sizes = document.sizes
        self._report = report
        self._resolved: dict[int, Any] = {}
        self._open_references: list[str] = []
        """The references that are being resolved, each within the one before."""

    def resolve(self, value: Any, place: Place) -> Any:
        if isinstance(value, str):
            return self._target(value, place) if value.startswith("#/") else value
        if id(value) not in self._referring:
            return value
        if id(value) in self._resolved:
            return self._resolved[id(value)]
        problems = self._report.number_of_problems
        is_list = isinstance(value, list)
        resolved = (
            self._resolve_list(value, place) if is_list else self._resolve_mapping(value, place)
        )
        if self._report.number_of_problems == problems:
            # A problem counts for each stream that refers to it, so it is reported again there.
            self._resolved[id(value)] = resolved
        return resolved

    def _resolve_list(self, items: list[Any], place: Place) -> list[Any]:
        return [self.resolve(item, (*place, index)) for index, item in enumerate(items)]

    def _resolve_mapping(self, items: dict[str, Any], place: Place) -> Any:
        own = {
            key: value if key in _UNRESOLVED else self.resolve(value, (*place, key))
            for key, value in items.items()
            if key != REFERENCE
        }
        reference = items.get(REFERENCE)
        if REFERENCE not in items:
            return own
        if isinstance(reference, str) and not reference.startswith("#/"):
            return {REFERENCE: reference, **own}  # of a JSON schema, to another document
        target = self.resolve(reference, (*place, REFERENCE))
        return {**target, **own} if isinstance(target, dict) else target

    def _target(self, reference: str, place: Place) -> Any:
        if reference in self._open_references:
            chain = [*self._open_references[self._open_references.index(reference) :], reference]
            steps = " → ".join(chain if len(chain) <= _MAX_SHOWN else [*chain[:_MAX_SHOWN], "…"])
            self._report.add_problem(path(place), f"the reference leads to itself: {steps}")
            return BROKEN
        try:
            target = self._find(reference)
        except (LookupError, RecursionError):
            self._report.add_problem(path(place), f"there is nothing at {reference!r}")
            return BROKEN
        self._open_references.append(reference)
        try:
            return self.resolve(target, place[:-1] if place[-1:] == (REFERENCE,) else place)
        finally:
            self._open_references.pop()

    def _find(self, reference: str) -> Any:
        """Return what a reference points to, not resolved.

        Raises:
            LookupError: there is nothing.
        """
        value, rest = self._root, reference.removeprefix("#/")
        while rest:
            if isinstance(value, dict) and rest in value:
                return value[rest]
            first, _, rest = rest.partition("/")
            value = self._part(value, first)
        return value

    def _part(self, value: Any, part: str) -> Any:
        if isinstance(value, str) and value.startswith("#/"):
            return self._part(self._find(value), part)
        if isinstance(value, dict):
            if part in value:
                return value[part]
            if REFERENCE in value:
                return self._part(value[REFERENCE], part)
        if part.isdecimal() and isinstance(value, (list, dict)):
            return value[int(part)]
        raise LookupError

    def check_size(self, value: Any) -> None:
        """Check how many values there are. A value counts each time that it is referred to.

        Raises:
            ConfigError: they are too many.
        """
        if _size(value, dict(self._sizes)) > MAX_VALUES:
            raise ConfigError(
                f"the manifest has more than {MAX_VALUES} values when its references are resolved"
            )


def _size(value: Any, sizes: dict[int, int]) -> int:
    if isinstance(value, (dict, list)):
        size = sizes.get(id(value))
        if size is None:
            items = value.values() if isinstance(value, Mapping) else value
            size = sizes[id(value)] = 1 + sum(_size(item, sizes) for item in items)
        return size
    return 1
