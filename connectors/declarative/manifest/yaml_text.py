"""Reads the YAML of a manifest into plain values, within limits.

It differs from `yaml.safe_load` in that dates stay text, that a repeated key is reported, and that a document
cannot grow without bounds through aliases or nesting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from elt_assets.errors import ConfigError

MAX_CHARACTERS = 20_000_000
MAX_VALUES = 3_000_000
"""The number of values in a document, those behind an alias counted each time that it is used."""
MAX_DEPTH = 100

REFERENCE = "$ref"

_TAG = "tag:yaml.org,2002:"
_COLLECTIONS = frozenset({None, "!", f"{_TAG}map", f"{_TAG}seq"})
_BOOLEANS = yaml.constructor.SafeConstructor.bool_values
_NUMBERS = yaml.constructor.SafeConstructor()
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
        return _Reader().read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{where} is not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not valid YAML: {error}") from None
    except _Refused as refused:
        raise ConfigError(f"{name}{refused.where}: {refused}") from None


class _Refused(Exception):
    """Something in a document that is not read."""

    def __init__(self, what: str, event: yaml.Event | None = None):
        super().__init__(what)
        mark = event.start_mark if event is not None else None
        self.where = f", line {mark.line + 1}" if mark is not None else ""


class _Special:
    """The type of values that have a meaning only for the reader."""


_MERGE = _Special()
_NO_KEY = _Special()


class _Collection:
    """A mapping or a list that is being read.

    Attributes:
        value: what was read.
        size: the number of values in it, itself included.
        refers: whether a reference is in it.
        key: the key or the index of what comes next.
        merged: the mappings that it takes missing keys from.
        is_open: whether it is not complete.
    """

    __slots__ = ("is_open", "key", "merged", "refers", "size", "value")

    def __init__(self, value: Any, refers: bool = False):
        self.value = value
        self.size = 1
        self.refers = refers
        self.key: Any = 0 if isinstance(value, list) else _NO_KEY
        self.merged: list[dict[Any, Any]] = []
        self.is_open = True


class _Reader:
    """Reads the events of a parser, without recursion, so that deep nesting cannot crash the program."""

    def __init__(self) -> None:
        self._document = Document()
        self._open: list[_Collection] = []
        self._anchors: dict[str | None, _Collection] = {}
        self._plain: dict[str, Any] = {"<<": _MERGE}

    def read(self, text: str) -> Document:
        documents = 0
        for event in _events(text):
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _Refused("a manifest is a single document", event)
        return self._document

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        tag, text = event.tag, event.value
        if tag is None and event.implicit[0]:
            value = self._plain.get(text, _NO_KEY)
            if value is _NO_KEY:
                value = self._plain[text] = _typed(_tag_of(text), text, event)
        else:
            value = text if tag is None or tag == "!" else _typed(tag, text, event)
        if event.anchor:
            anchored = self._anchors[event.anchor] = _Collection(value)
            anchored.is_open = False
        self._add(value, event)

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _Refused(f"values are nested more than {MAX_DEPTH} deep", event)
        if event.tag not in _COLLECTIONS:
            raise _Refused(
                f"a value has the type {event.tag!r}, which manifests cannot have", event
            )
        if self._open and self._open[-1].key is _NO_KEY:
            raise _Refused("a key of a mapping is not a plain value", event)
        collection = _Collection({} if isinstance(event, yaml.MappingStartEvent) else [])
        if event.anchor:
            self._anchors[event.anchor] = collection
        self._open.append(collection)

    def _end(self, event: yaml.Event) -> None:
        ended = self._open.pop()
        ended.is_open = False
        for mapping in ended.merged:
            for key, value in mapping.items():
                ended.value.setdefault(key, value)
        self._add(ended.value, event, ended)

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _Refused(f"the alias {event.anchor!r} has no anchor", event)
        if anchored.is_open:
            raise _Refused("an alias points to a value that contains it", event)
        if (
            self._open
            and self._open[-1].key is _NO_KEY
            and isinstance(anchored.value, (dict, list))
        ):
            raise _Refused("a key of a mapping is not a plain value", event)
        self._add(anchored.value, event, anchored)

    def _add(self, value: Any, event: yaml.Event, read: _Collection | None = None) -> None:
        """Put a value where it belongs: it is a key, or the value of one, or an item of a list."""
        size = 1 if read is None else read.size
        if read is not None and isinstance(value, (dict, list)):
            self._document.sizes[id(value)] = size
            if read.refers:
                self._document.referring.add(id(value))
            if size > MAX_VALUES:
                raise _Refused(f"the document has more than {MAX_VALUES} values", event)
        if not self._open:
            self._document.value = value if value is not _MERGE else "<<"
            return
        within = self._open[-1]
        key = within.key
        if key is _NO_KEY:
            within.key = value
            within.refers |= value == REFERENCE
            return
        within.size += size
        within.refers |= _refers(value) if read is None else read.refers
        if isinstance(within.value, list):
            within.value.append(value if value is not _MERGE else "<<")
            within.key += 1
        else:
            self._set(within, key, value, event)

    def _set(self, within: _Collection, key: Any, value: Any, event: yaml.Event) -> None:
        within.key = _NO_KEY
        if key is _MERGE:
            several = value if isinstance(value, list) else [value]
            if not all(isinstance(each, dict) for each in several):
                raise _Refused("`<<` merges something that is not a mapping", event)
            within.merged += several
            return
        if key in within.value:
            place = path(each.key for each in self._open[:-1])
            self._document.repeated.append((place, str(key)))
        within.value[key] = value if value is not _MERGE else "<<"


def _refers(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("#/")


def _events(text: str) -> Iterator[yaml.Event]:
    loader = _LOADER(text)
    try:
        while True:
            event = loader.get_event()
            if event is None or type(event) is yaml.StreamEndEvent:
                return
            yield event
    finally:
        loader.dispose()


def _tag_of(text: str) -> str:
    """Return the tag of a plain text."""
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    for tag, pattern in [*resolvers.get(text[:1], []), *resolvers.get(None, [])]:
        if pattern.match(text):
            return str(tag)
    return f"{_TAG}str"


def _typed(tag: str, text: str, event: yaml.Event) -> Any:
    kind = tag.removeprefix(_TAG)
    if kind in ("str", "timestamp", "value", "merge"):
        return text
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    try:
        if kind == "int":
            return _NUMBERS.construct_yaml_int(yaml.ScalarNode(tag, text))
        if kind == "float":
            return _NUMBERS.construct_yaml_float(yaml.ScalarNode(tag, text))
    except ValueError:
        raise _Refused(f"{text!r} is not a number", event) from None
    raise _Refused(f"a value has the type {tag!r}, which manifests cannot have", event)
