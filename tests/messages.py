"""Collects the messages of errors from the sources; `python -m tests.messages` writes docs/messages.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.language import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "messages.md"
ERRORS = {
    "ConfigError": "config_error",
    "MissingPartition": "config_error",
    "TransientError": "transient_error",
    "ConcurrentSync": "transient_error",
    "Superseded": "transient_error",
    "SystemFailure": "system_error",
    "UnsupportedTable": "config_error",
    "ValueError": "config_error",
}
"""The type of each class of error. A `ValueError` is a line of a larger message where a file is validated."""
FAULT = "_Fault"
"""The entries of the table of faults of a machine: their class, text and guidance."""
VALIDATED = "connection"
ROOMS = {
    "connection": "Connections: defs.yaml and catalog.json",
    "cli": "Command line",
    "runner": "Connectors: processes, packages, images, config",
    "protocol": "Messages of connectors, and schemas",
    "sync": "Records and states of a sync",
    "pipeline": "Starting a sync",
    "lake": "Tables",
    "orchestration": "Dagster: assets, partitions, sensors, jobs",
    "destination": "elt-destination and target-elt",
    "storage": "Directories, and the options of object stores",
    "": "Settings, and faults of the machine",
}
INTRODUCTION = """\
# Messages

Every error of this project, by where it comes from, with what to do. `{name}` stands for a value of the case,
and `…` for a text. The causes of the most frequent errors: [troubleshooting.md](troubleshooting.md).

The types are `config_error` (you must change something), `transient_error` (the same may succeed later) and
`system_error` (the connector, the lake or this project failed). Messages of the first section are lines of an
error that names the file, and the place in it.

This page is generated from the sources by `python -m tests.messages`.
"""


@dataclass(frozen=True, order=True)
class Message:
    """An error as the sources have it: its text, its guidance if it has one, and its type."""

    text: str
    guidance: str
    kind: str


def messages(folder: Path) -> Iterator[tuple[str, Message]]:
    """The messages of all modules below a folder, each with its room."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        room = parts[0] if len(parts) > 1 else ""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = _constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == FAULT and isinstance(node.args[0], ast.Name):
                    text, step = (_cell(_text(word, constants)) for word in node.args[1:3])
                    yield room, Message(f"{text} …", step, ERRORS[node.args[0].id])
                is_line = node.func.id == "ValueError" and room != VALIDATED
                kind = None if is_line else ERRORS.get(node.func.id)
                text = _text(node.args[0], constants) if kind and node.args else ""
                if kind and text.strip(" …\n"):
                    given = {word.arg: word.value for word in node.keywords}
                    guidance = given.get("guidance")
                    step = "" if guidance is None else _text(guidance, constants)
                    yield room, Message(_cell(text), _cell(step), kind)


def document() -> str:
    """The whole document."""
    found: dict[str, set[Message]] = {room: set() for room in ROOMS}
    for room, message in messages(REPOSITORY / "elt_assets"):
        found.setdefault(room, set()).add(message)
    sections = [INTRODUCTION]
    for room, title in ROOMS.items():
        if found[room]:
            rows = [f"| {m.text} | {m.guidance} | `{m.kind}` |" for m in sorted(found[room])]
            sections.append(
                "\n".join(
                    [f"## {title}\n", "| message | what to do | type |", "|---|---|---|", *rows, ""]
                )
            )
    return "\n".join(sections)


def _constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module gives names to."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    """A text as the sources have it, `…` for what is known at run time alone."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _name(part.value) if isinstance(part, ast.FormattedValue) else _text(part, constants)
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, constants) + _text(node.right, constants)
    if isinstance(node, ast.Name):
        return constants.get(node.id, "…")
    if isinstance(node, ast.IfExp):
        return _text(node.body, constants)
    return "…"


def _name(value: ast.expr) -> str:
    """Return the text for a value in a message: its name in the sources, if that is one word."""
    if isinstance(value, ast.Call) and value.args:
        return _name(value.args[0])
    if isinstance(value, (ast.Name, ast.Attribute)):
        word = value.id if isinstance(value, ast.Name) else value.attr
        return f"{{{word.strip('_').lower()}}}"
    return "…"


def _cell(text: str) -> str:
    """A text for a cell of a table."""
    plain = re.sub(r"\s+", " ", text).strip()
    return plain.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
