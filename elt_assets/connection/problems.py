"""The collector of the problems of a connection, which are reported in one error with the lines of its files.

Each problem is a text that begins with its place, `stream 'users': fields.hash: …`. Whatever finds it, the
models, the comparison with the catalog or a check of columns, it is located here by this beginning.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import yaml

from elt_assets.connection.overlays import overlay_file
from elt_assets.connection.yaml_files import YAML_ERRORS
from elt_assets.connection.yaml_limits import FAST_LOADER
from elt_assets.errors import Problems
from elt_assets.paths import DEFINITION_FILE
from elt_assets.protocol.catalog import StreamId


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
