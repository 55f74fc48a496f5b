"""Loading and saving of a connection's files, its definition and its catalog, and the lines of problems.

Used by `resolution`, `pipeline.stream`, `orchestration` and the commands of `elt`.

First `collect_problems`, then the files, and at the end `replace_package`, which changes the version of a
package and nothing else of a definition's text, for `elt upgrade`.

Each problem is a text that begins with its place, `stream 'users': fields.hash: …`. Whatever finds it, the
models, the comparison with the catalog or a check of columns, it is located here by this beginning.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from elt_assets.connection.connection import Connection
from elt_assets.connection.connector import FOLDER
from elt_assets.connection.overlays import apply_overlay, overlay_file, read_overlay
from elt_assets.connection.places import ConnectionPlace, definition_file, place_in
from elt_assets.connection.templates import (
    check_post_processing,
    load_variables,
    resolve_attributes,
)
from elt_assets.connection.yaml_files import (
    FAST_LOADER,
    YAML_ERRORS,
    describe_unreadable,
    read_components,
)
from elt_assets.errors import ConfigError, Problems
from elt_assets.paths import DEFINITION_FILE
from elt_assets.protocol.catalog import Catalog, StreamId
from elt_assets.storage.folders import replace_text


def collect_problems(connection: str, definition: Path | None = None) -> Problems:
    """Return a collector of what is not valid in a connection that is joined with its catalog.

    Args:
        connection: its name.
        definition: its file, whose lines are named; None if it has none.
    """
    return Problems(
        f"these settings in {DEFINITION_FILE} of connection {connection!r} are not valid",
        f"correct them in {DEFINITION_FILE}; if the source has changed, run `elt discover`",
        lambda problem: "" if definition is None else locate(problem, connection, definition),
    )


def locate(problem: str, connection: str, definition: Path) -> str:
    """Return the line of a problem, as ` (line 12)`; an empty text if no key of a file is its place.

    The overlay of this environment is named if it has all the keys; otherwise the definition.
    """
    problem = re.sub(r"^streams\[(\d+)\]: ", r"streams.\1.", problem)
    overlay = overlay_file(definition)
    for file in filter(None, (overlay, definition)):
        for attributes in _read_attributes(file, connection):
            line, is_whole = _find_line(problem, attributes)
            if line is not None and (is_whole or file is definition):
                return f" ({f'{file.name}, ' if file is overlay else ''}line {line})"
    return ""


def _read_attributes(file: Path, connection: str) -> list[yaml.Node]:
    """Return the attributes of a connection in a file, as nodes of YAML; none if it is not YAML."""
    with contextlib.suppress(OSError, *YAML_ERRORS), file.open(encoding="utf-8") as text:
        documents = map(children_of, yaml.compose_all(text, FAST_LOADER))
        attributes = [keys["attributes"][1] for keys in documents if "attributes" in keys]
        return [node for node in attributes if _read_text(node, "name") in (None, connection)]
    return []


def _find_line(problem: str, node: yaml.Node) -> tuple[int | None, bool]:
    """Return the line of the last key of a place that the YAML has, and whether it has all keys."""
    line = None
    _, streams = children_of(node).get("streams", (None, None))
    for key, stream in children_of(streams).values():
        stream_id = StreamId(_read_text(stream, "name") or "", _read_text(stream, "namespace"))
        prefix = f"stream {str(stream_id)!r}: "
        if problem.startswith(prefix):
            problem, node, line = problem.removeprefix(prefix), stream, key.start_mark.line + 1
            break
    for name in problem.partition(": ")[0].split("."):
        child, value = children_of(node).get(name, (None, None))
        if child is None or value is None:
            return line, False
        line, node = child.start_mark.line + 1, value
    return line, True


def children_of(node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Return the keys of a mapping or the numbers of a list, each with the node of its line and its value."""
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): (key, value) for key, value in node.value}
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    return {str(number): (item, item) for number, item in enumerate(items)}


def _read_text(node: yaml.Node, key: str) -> str | None:
    _, value = children_of(node).get(key, (None, None))
    return str(value.value) if isinstance(value, yaml.ScalarNode) else None


AnyConnection = TypeVar("AnyConnection", bound=Connection)
Where = ConnectionPlace | Path
"""Where a connection is defined, or the folder of one connection."""


def load_connection(where: Where) -> Connection:
    """Read the definition of a connection, with the overlay of this environment.

    A connection whose `type` is a subclass of the component is returned as an object of this class.

    Raises:
        ConfigError: the file is missing, not YAML, or not a connection; names the file and the field.
    """
    place = _place_at(where)
    try:
        documents = read_components(place.file)
    except FileNotFoundError:
        raise ConfigError(f"{place.file} does not exist", guidance="create it again") from None
    content = documents[place.document] if place.document < len(documents) else {}
    check_post_processing(content.get("post_processing"), place.file)
    model = place.load_model()
    variables = load_variables(model, content.get("template_vars_module"), place.file)
    return parse_connection(content.get("attributes"), place.file, model, variables)


def parse_connection(
    attributes: Any,
    path: Path,
    model: type[AnyConnection],
    variables: Mapping[str, Any] | None = None,
) -> AnyConnection:
    """Return the connection that the attributes of the file `path` describe, with those of its overlay.

    Args:
        variables: the template variables of the component.

    Raises:
        ConfigError: the attributes are not valid. The error lists every problem, and quotes no value, since a
            value may be a secret.
    """
    if not isinstance(attributes, Mapping):
        raise ConfigError(
            f"{path}: `attributes` is missing",
            guidance="write `attributes` with `name`, `source` and `streams`",
        )
    attributes = resolve_attributes(apply_overlay(attributes, path), path, variables or {})
    overlay, name = overlay_file(path), str(attributes.get("name"))
    problems = Problems(
        f"{path if overlay is None else f'{path} with {overlay.name}'} is not valid",
        "correct each of these places; docs/connections.md lists the keys",
        lambda problem: locate(problem, name, path),
    )
    try:
        connection = model.model_validate(attributes, context={FOLDER: path.parent})
    except ValidationError as error:
        problems.add(
            _place(_find_yaml_path(problem, attributes), attributes)
            + problem["msg"].removeprefix("Value error, ")
            for problem in error.errors(include_url=False, include_input=False)
        )
    problems.raise_all()
    return connection


def _find_yaml_path(error: ErrorDetails, attributes: Any) -> list[str | int]:
    """Return the path of an error in the YAML: without the names that pydantic gives the kinds of a value."""
    path, value = [], attributes
    for number, part in enumerate(error["loc"], 1):
        is_missing = error["type"] == "missing" and number == len(error["loc"])
        if isinstance(value, Mapping) and part not in value and not is_missing:
            continue
        path.append(part)
        is_list = isinstance(value, list) and isinstance(part, int)
        value = value[part] if is_list else value.get(part) if isinstance(value, Mapping) else None
    return path


def _place(path: Sequence[str | int], attributes: Mapping[str, Any]) -> str:
    """Return the prefix of an error message: the place in the YAML, with the name of the stream."""
    stream, keys = "", list(path)
    if len(keys) > 1 and keys[0] == "streams":
        settings = attributes["streams"][keys[1]]
        stream, keys = f"streams[{keys[1]}]: ", keys[2:]
        if isinstance(settings, Mapping) and settings.get("name") is not None:
            name, namespace = settings["name"], settings.get("namespace")
            name = str(StreamId(name, namespace)) if isinstance(name, str) else name
            stream = f"stream {name!r}: "
    return stream + (f"{'.'.join(map(str, keys))}: " if keys else "")


def load_catalog(where: Where) -> Catalog:
    """Read the catalog of a connection, which `elt discover` writes.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not a catalog.
    """
    place = _catalog_place(where)
    path, remedy = place.catalog, f"write it with `elt discover {place.name}`"
    try:
        return Catalog.from_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", guidance=remedy) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a valid catalog: {error}", guidance=remedy) from error
    except OSError as error:
        raise describe_unreadable(path, error) from error


def save_catalog(where: Where, catalog: Catalog) -> Path:
    """Write the catalog of a connection atomically, and return its path.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = _catalog_place(where).catalog
    text = json.dumps(json.loads(catalog.to_json()), indent=2, ensure_ascii=False)
    replace_text(path, f"{text}\n")
    return path


def _catalog_place(where: Where) -> ConnectionPlace:
    """Return the place of a connection; of a folder without a definition, the place that it will have."""
    if isinstance(where, Path) and definition_file(where) is None:
        return ConnectionPlace(where / DEFINITION_FILE, where.name)
    return _place_at(where)


def _place_at(where: Where) -> ConnectionPlace:
    return where if isinstance(where, ConnectionPlace) else place_in(where)


def replace_package(place: ConnectionPlace, kind: str, old: str, new: str) -> str:
    """Return the text of the definition file with another value of `source.<kind>`; comments stay.

    Raises:
        ConfigError: the value is not in this file, or not only: an overlay or a template names it.
    """
    overlay = overlay_file(place.file)
    contents = [] if overlay is None else read_overlay(overlay)
    sources = [
        content.get("source")
        for content in contents
        if content.get("name", place.name) == place.name
    ]
    if any(isinstance(source, Mapping) and kind in source for source in sources):
        raise ConfigError(
            f"{overlay} names the `{kind}` of this environment, so a change of {place.file} has no effect",
            guidance="change the version in the overlay, then run `elt discover`",
        )
    with place.file.open(encoding="utf-8", newline="") as file:  # its line breaks stay
        text = file.read()
    documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    node: yaml.Node | None = documents[place.document]
    for key in ("attributes", "source", kind):
        _, node = children_of(node).get(key, (None, None))
    if not isinstance(node, yaml.ScalarNode) or node.value != old:
        raise ConfigError(
            f"{place.file} does not have `{kind}: {old}` in its `source`",
            guidance="change the version where it is written: in an overlay, an anchor or a template",
        )
    start, end = node.start_mark.index, node.end_mark.index
    return text[:start] + text[start:end].replace(old, new) + text[end:]
