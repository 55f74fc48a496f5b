"""Definition files without a stream, or without a connection; every other byte stays as it is.

`elt remove` (`cli.commands.remove`) plans the changes of all files of a connection with it, and makes them.

Only lines of what is removed are cut: comments before it and behind it stay, those between its own lines go
with it. What is left is read again, and must be what the file held before, without what is removed. Otherwise
the file is left alone with an error, for example if another stream uses an anchor of the removed one.
Test: `tests/connection/test_cutting.py::test_only_the_removed_stream_is_cut`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elt_assets.connection.files import children_of
from elt_assets.connection.places import ConnectionPlace
from elt_assets.connection.yaml_files import YAML_ERRORS, describe_unreadable
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId
from elt_assets.storage.folders import replace_text


@dataclass(frozen=True)
class FileChange:
    """What becomes of a file of a connection."""

    path: Path
    text: str | None
    """Its new text; None if the file is removed."""

    def make(self) -> None:
        """Change or remove the file; nothing happens if that was done before."""
        if self.text is None:
            self.path.unlink(missing_ok=True)
        else:
            replace_text(self.path, self.text)


def plan_without_stream(place: ConnectionPlace, stream: StreamId) -> list[FileChange]:
    """Return the changes of the files of a connection that remove a stream: of overlays first, since one may
    add a stream that `defs.yaml` does not have.

    Raises:
        ConfigError: a file does not have the stream as an item of its own, or what is left would not be the
            same.
    """
    changes = []
    for path in list_overlays(place):
        text = _cut_stream(path, _select_in_overlay(place), stream)
        if text is not None:
            changes.append(FileChange(path, text))
    text = _cut_stream(place.file, _select_in_definition(place), stream)
    if text is None and not changes:
        raise ConfigError(
            f"{place.file} does not have the stream {str(stream)!r} in its `streams`",
            guidance="remove it where it is written: in a template or an anchor",
        )
    return changes if text is None else [*changes, FileChange(place.file, text)]


def plan_without_connection(place: ConnectionPlace) -> list[FileChange]:
    """Return the changes of files that remove a connection: of its overlays, its definition, and its catalog,
    without which what the connection has is not known.

    Raises:
        ConfigError: what is left of a file would not be the same.
    """
    changes = []
    for path in list_overlays(place):
        if place.is_alone:
            changes.append(FileChange(path, None))
        elif (text := _cut_document(path, _select_in_overlay(place))) is not None:
            changes.append(FileChange(path, text))
    text = None if place.is_alone else _cut_document(place.file, _select_in_definition(place))
    return [*changes, FileChange(place.file, text), FileChange(place.catalog, None)]


def list_overlays(place: ConnectionPlace) -> list[Path]:
    """Return the overlays beside a definition file, of all environments."""
    return sorted(place.folder.glob(f"{place.file.stem}.*{place.file.suffix}"))


_Selection = Callable[[int, Any], bool]
"""Whether a document of a file, by its number and its value, is of the connection."""


def _select_in_definition(place: ConnectionPlace) -> _Selection:
    return lambda number, _: number == place.document


def _select_in_overlay(place: ConnectionPlace) -> _Selection:
    def is_own(_: int, document: Any) -> bool:
        attributes = document.get("attributes") if isinstance(document, Mapping) else None
        name = attributes.get("name") if isinstance(attributes, Mapping) else None
        return name == place.name or (name is None and place.is_alone)

    return is_own


def _cut_stream(path: Path, is_own: _Selection, stream: StreamId) -> str | None:
    """Return the text of a file without a stream; None if it does not have the stream."""
    text = _read(path)
    values, nodes = _load(text), list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    for number, value in enumerate(values):
        streams = _list_streams(value) if is_own(number, value) else []
        position = next((i for i, item in enumerate(streams) if _id_of(item) == stream), None)
        if position is None:
            continue
        node: yaml.Node | None = nodes[number]
        for key in ("attributes", "streams"):
            _, node = children_of(node).get(key, (None, None))
        assert isinstance(node, yaml.SequenceNode)
        del streams[position]
        return _verify(path, _cut_item(text, node, position), values)
    return None


def _list_streams(document: Any) -> list[Any]:
    attributes = document.get("attributes") if isinstance(document, Mapping) else None
    streams = attributes.get("streams") if isinstance(attributes, Mapping) else None
    return streams if isinstance(streams, list) else []


def _id_of(stream: Any) -> StreamId | None:
    if not isinstance(stream, Mapping) or not isinstance(stream.get("name"), str):
        return None
    return StreamId(stream["name"], stream.get("namespace"))


def _cut_item(text: str, node: yaml.SequenceNode, position: int) -> str:
    """Return a text without an item of a sequence of it."""
    if node.flow_style:
        return _cut_flow_item(text, node, position)
    tokens = list(yaml.scan(text))
    column, start, end = node.start_mark.column, node.start_mark.index, node.end_mark.index
    items = [
        token.start_mark.index
        for token in tokens
        if isinstance(token, yaml.BlockEntryToken)
        and token.start_mark.column == column
        and start <= token.start_mark.index < end
    ]
    first = items[position]
    limit = items[position + 1] if position + 1 < len(items) else end
    # The sequence ends where the next token begins: comments before that are not the item's.
    last = max(
        token.end_mark.index
        for token in tokens
        if first <= token.start_mark.index < max(limit, first + 1)
        and token.end_mark.index > token.start_mark.index
    )
    if len(items) == 1:
        return f"{text[:first]}  []{text[_end_of_content(text, last) :]}"
    begin = text.rfind("\n", 0, first) + 1
    if text[begin:first].strip():  # it begins in the line of its key
        raise ConfigError(
            "the stream begins in the line of another key", guidance="write it in a line of its own"
        )
    return text[:begin] + text[_end_of_line(text, last) :]


def _cut_flow_item(text: str, node: yaml.SequenceNode, position: int) -> str:
    items = [(item.start_mark.index, item.end_mark.index) for item in node.value]
    begin, end = items[position]
    if position + 1 < len(items):
        end = items[position + 1][0]
    elif position:
        begin = items[position - 1][1]
    return text[:begin] + text[end:]


def _end_of_content(text: str, position: int) -> int:
    """Return the end of a value, without the line break that ends a block of text."""
    while position and text[position - 1] in "\r\n":
        position -= 1
    return position


def _end_of_line(text: str, position: int) -> int:
    """Return the beginning of the line after a value."""
    end = _end_of_content(text, position)
    line = text.find("\n", end)
    return len(text) if line < 0 else line + 1


def _cut_document(path: Path, is_own: _Selection) -> str | None:
    """Return the text of a file without a document; None if it has no such document."""
    text = _read(path)
    values = _load(text)
    own = [number for number, value in enumerate(values) if is_own(number, value)]
    if not own:
        return None
    nodes = [node.start_mark.index for node in yaml.compose_all(text, Loader=yaml.SafeLoader)]
    marks = [
        token.start_mark.index
        for token in yaml.scan(text)
        if isinstance(token, yaml.DocumentStartToken)
    ]
    # A document begins at its mark, or without one (the first) at its value.
    starts = [max((mark for mark in marks if mark < node), default=node) for node in nodes]
    (number,) = own
    begin = text.rfind("\n", 0, starts[number]) + 1
    end = starts[number + 1] if number + 1 < len(starts) else len(text)
    del values[number]
    return _verify(path, text[:begin] + text[end:], values)


def _verify(path: Path, text: str, expected: Sequence[Any]) -> str:
    """Return the text of a file if it is what is expected.

    Raises:
        ConfigError: it is not.
    """
    try:
        left = list(yaml.safe_load_all(text))
    except YAML_ERRORS:
        left = None
    if left != list(expected):
        raise ConfigError(
            f"it cannot be cut out of {path} alone: another part of the file needs it, for example an anchor",
            guidance="remove it from the file yourself, then run the command again; nothing was changed",
        )
    return text


def _load(text: str) -> list[Any]:
    """Return the documents of a text, without objects that several places share: one is changed alone."""
    return [_copy(document) for document in yaml.safe_load_all(text)]


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:  # its line breaks stay
            return file.read()
    except OSError as error:
        raise describe_unreadable(path, error) from error
