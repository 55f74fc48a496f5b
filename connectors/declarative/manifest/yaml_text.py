"""Reads the YAML of a manifest into plain values, within limits.

It differs from `yaml.safe_load` in that dates stay text, that a repeated key is reported, and that a document
cannot grow without bounds through aliases or nesting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from elt_assets.errors import ConfigError

MAX_CHARACTERS = 20_000_000
MAX_VALUES = 3_000_000
"""The number of values in a document, those behind an alias counted each time that it is used."""
MAX_DEPTH = 100

REFERENCE = "$ref"

_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset({"!", *(f"{_TAG}{name}" for name in ("str", "timestamp", "value", "merge"))})
_TYPES = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float"))
_COLLECTIONS = frozenset({None, "!", f"{_TAG}map", f"{_TAG}seq"})
_MAX_CHARACTERS_IN_ERRORS = 50
"""Maximum number of characters of a value in an error."""
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Document:
    """The content of a YAML text.

    Attributes:
        value: the mappings, lists and plain values.
        referring: the ids of the mappings and lists in which a reference is, at any depth.
        sizes: the numbers of values in the mappings and lists, by id.
        repeated: for each repeated key, the path of its mapping, and the key.
    """

    value: Any = None
    referring: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    repeated: list[tuple[str, str]] = field(default_factory=list)


def path(place: Iterable[Any]) -> str:
    """Return a place, which is the keys and indexes that lead to it, as text: "streams[0].retriever"."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def parse(text: str, name: str) -> Document:
    """Return what a YAML text contains.

    Args:
        text: the text.
        name: its name, for errors.

    Raises:
        ConfigError: the text is not YAML, contains objects of a program, or exceeds a limit.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{name} has more than {MAX_CHARACTERS} characters")
    try:
        loader = _Loader(text)
        try:
            return loader.read()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{where} is not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not valid YAML: {error}") from None


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Makes plain values of the parser's events. Nodes between them would take most of the time."""

    def __init__(self, text: str):
        super().__init__(text)
        self._document = Document()
        self._anchors: dict[str, Any] = {}
        self._plain: dict[str, Any] = {}
        self._place: list[Any] = []

    def read(self) -> Document:
        self.get_event()  # of the stream
        if isinstance(self.get_event(), yaml.DocumentStartEvent):
            self._document.value = self._read_value(self.get_event())
            self.get_event()  # of the document's end
            if isinstance(event := self.get_event(), yaml.DocumentStartEvent):
                _refuse(event, "a manifest is a single document")
        return self._document

    def _read_value(self, event: Any, step: Any = None) -> Any:
        """Return the value that begins with an event. `step`: the key or the index that leads to it."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                _refuse(event, f"the alias *{event.anchor} has no complete value before it")
            return self._anchors[event.anchor]
        is_scalar = isinstance(event, yaml.ScalarEvent)
        value = self._read_scalar(event) if is_scalar else self._read_collection(event, step)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _read_scalar(self, event: Any) -> Any:
        is_plain = event.tag is None and event.implicit[0]
        if is_plain and event.value in self._plain:
            return self._plain[event.value]
        tag = event.tag or self.resolve(yaml.ScalarNode, event.value, event.implicit)
        value = event.value if tag in _TEXTS else self._construct_scalar(tag, event)
        if is_plain:
            self._plain[event.value] = value
        return value

    def _construct_scalar(self, tag: str, event: Any) -> Any:
        if tag not in _TYPES:
            _refuse(event, f"a value has the type {tag!r}, which manifests cannot have")
        try:
            return self.construct_object(yaml.ScalarNode(tag, event.value))
        except (ValueError, LookupError):
            _refuse(
                event,
                f"{event.value[:_MAX_CHARACTERS_IN_ERRORS]!r} is not a value of the type {tag!r}",
            )

    def _read_collection(self, event: Any, step: Any) -> Any:
        if len(self._place) >= MAX_DEPTH:
            _refuse(event, f"values are nested more than {MAX_DEPTH} deep")
        if event.tag not in _COLLECTIONS:
            _refuse(event, f"a value has the type {event.tag!r}, which manifests cannot have")
        self._place.append(step)
        if isinstance(event, yaml.MappingStartEvent):
            value = self._read_mapping()
            parts: Collection[Any] = value.values()
        else:
            value = parts = self._read_list()
        self._place.pop()
        self._register(value, parts, event)
        return value

    def _read_mapping(self) -> Any:
        mapping: dict[Any, Any] = {}
        defaults: list[Any] = []
        while not isinstance(event := self.get_event(), yaml.MappingEndEvent):
            key = self._read_value(event)
            if isinstance(key, dict | list):
                _refuse(event, "a key of a mapping is not a plain value")
            value = self._read_value(self.get_event(), key)
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                defaults += value if isinstance(value, list) else [value]
                if not all(isinstance(part, dict) for part in defaults):
                    _refuse(event, "`<<` merges something that is not a mapping")
                continue
            if key in mapping:
                self._document.repeated.append((path(self._place[1:]), str(key)))
            mapping[key] = value
        merged: dict[Any, Any] = {}
        for part in reversed(defaults):
            merged.update(part)
        return {**merged, **mapping}

    def _read_list(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self.get_event(), yaml.SequenceEndEvent):
            items.append(self._read_value(event, len(items)))
        return items

    def _register(self, value: Any, parts: Collection[Any], event: Any) -> None:
        """Note the size of a mapping or a list, and whether a reference is in it."""
        sizes, referring = self._document.sizes, self._document.referring
        sizes[id(value)] = 1 + sum(sizes.get(id(part), 1) for part in parts)
        if sizes[id(value)] > MAX_VALUES:
            _refuse(event, f"the document has more than {MAX_VALUES} values")
        if REFERENCE in value or any(
            _is_reference(part) or id(part) in referring for part in parts
        ):
            referring.add(id(value))


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("#/")


def _refuse(event: Any, problem: str) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, event.start_mark)
