"""Texts of erased rows in Dagster's home: in the databases of SQLite, and in the logs of runs.

`erasing` calls `clean_home` before it commits an erasure, so a killed command does it again.

What is looked for are the texts of keys and of the condition (`choose_texts`). An event stays, with the text
replaced in its messages and metadata; examples of rows that failed a rule go if they name an erased key,
whatever its form. Then the database is written again (VACUUM), because its free pages still have what was
replaced, and its write-ahead log is emptied. A log of a run stays too, with the text replaced.

What is not changed is found all the same, and named: other tables, other files of the home, databases that
another process keeps busy. Dagster's storage in another database than SQLite is not looked at (`unerased`).
Test: `tests/cli/test_erased_home.py`
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elt_assets.storage.folders import write_draft

ERASED = "[erased]"
"""What stands in the place of a text."""
_LEAST = 4
"""Characters of the shortest text that is looked for; a shorter one is in too much else."""
_SECONDS = 10.0
"""Time limit for the lock of a database."""
_COLUMNS = {
    "event_logs": ("event",),
    "asset_keys": ("last_materialization", "cached_status_data"),
    "asset_check_executions": ("evaluation_event",),
}
"""The columns of Dagster's tables that have events, as JSON."""
_MESSAGES = ("user_message", "message", "error", "error_info", "cls_name", "stack")
_VALUES = ("text", "data", "md_str", "description")
_STRUCTURE = ("dagster/", "elt/table")
"""The beginnings of the labels of metadata that has no values of rows."""
_EXAMPLES = "examples"
_LOGS, _LOGS_OF_RUN = "storage", "compute_logs"
"""The folder of the home with the logs of runs, and the one of a run wherever they are."""


@dataclass
class CleanedHome:
    """What was done in a home, and where texts are left."""

    events: int = 0
    logs: int = 0  # files
    left: list[str] = field(default_factory=list)  # places, as sentences


Key = tuple[str | None, ...]


@dataclass(frozen=True)
class ErasedTexts:
    """What is looked for."""

    texts: Collection[str]
    keys: Collection[Key]  # as texts
    columns: Sequence[str]  # of the keys

    @property
    def needles(self) -> list[bytes]:
        """The texts as they are in files: plain, and escaped in JSON, once or twice."""
        once = {json.dumps(text)[1:-1] for text in self.texts}
        twice = {json.dumps(text)[1:-1] for text in once}
        return sorted(text.encode() for text in {*self.texts, *once, *twice})

    def is_in(self, content: str) -> bool:
        """Return whether a text is in some content."""
        return any(needle.decode() in content for needle in self.needles)


def choose_texts(texts: Collection[str]) -> set[str]:
    """Return the texts that identify something: those that are no numbers, and not too short."""
    return {
        text
        for text in texts
        if len(text) >= _LEAST and not text.replace(".", "").replace("-", "").isdigit()
    }


def clean_home(folders: Sequence[Path], target: ErasedTexts, skip: Collection[Path]) -> CleanedHome:
    """Replace texts in the databases and the logs of a home.

    Args:
        folders: the home, and folders of Dagster that are not in it.
        skip: folders in the home that are not looked at, such as the lake.
    """
    cleaned = CleanedHome()
    if not target.texts and not target.keys:
        return cleaned
    for path in sorted({path for folder in folders for path in _list_files(folder, skip)}):
        if path.name.endswith(".db"):  # events without a run are in one that is called `.db`
            _clean_database(path, target, cleaned)
        elif not path.name.endswith((".db-wal", ".db-shm")):
            is_log = folders[0] / _LOGS in path.parents or _LOGS_OF_RUN in path.parts
            _clean_file(path, target, cleaned, is_log=is_log)
    return cleaned


def _list_files(home: Path, skip: Collection[Path]) -> Iterator[Path]:
    skipped = {path.resolve() for path in skip}
    for parent, folders, names in os.walk(home):
        folders[:] = [name for name in folders if (Path(parent) / name).resolve() not in skipped]
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


# Databases


def _clean_database(path: Path, target: ErasedTexts, cleaned: CleanedHome) -> None:
    try:
        with closing(sqlite3.connect(path, timeout=_SECONDS)) as database:
            database.execute("PRAGMA secure_delete = ON")
            changed = _clean_events(database, target)
            database.commit()
            cleaned.events += changed
            if changed or _has_text(path, target):
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            cleaned.left += [f"the table {name} of {path}" for name in _find_left(database, target)]
    except sqlite3.Error as error:
        cleaned.left.append(
            f"{path}, which cannot be cleaned ({error}): stop Dagster, and run this again"
        )
        return
    if _has_text(path, target):
        cleaned.left.append(
            f"{path}: another process has it open: stop Dagster, and run this again"
        )


def _has_text(path: Path, target: ErasedTexts) -> bool:
    parts = (path, path.with_name(f"{path.name}-wal"))
    contents = [part.read_bytes() for part in parts if part.exists()]
    return any(needle in content for content in contents for needle in target.needles)


def _list_columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    names = [
        name for (name,) in database.execute("select name from sqlite_master where type = 'table'")
    ]
    return {
        name: [row[1] for row in database.execute(f'pragma table_info("{name}")')] for name in names
    }


def _clean_events(database: sqlite3.Connection, target: ErasedTexts) -> int:
    """Replace texts in the events of a database, and return how many events have changed."""
    changed = 0
    present = _list_columns(database)
    for table, columns in _COLUMNS.items():
        for column in set(columns) & set(present.get(table, ())):
            query = f"select rowid, {column} from {table} where {column} is not null"  # noqa: S608
            rows = database.execute(query).fetchall()
            for row, text in rows:
                new = _clean_event(text, target)
                if new != text:
                    update = f"update {table} set {column} = ? where rowid = ?"  # noqa: S608
                    database.execute(update, (new, row))
                    changed += 1
    return changed


def _find_left(database: sqlite3.Connection, target: ErasedTexts) -> list[str]:
    """Return the tables that still have a text."""
    left = []
    for table, columns in _list_columns(database).items():
        quoted = ", ".join(f'"{column}"' for column in columns)
        for row in database.execute(f'select {quoted} from "{table}"'):  # noqa: S608
            values = [value for value in row if isinstance(value, str)]
            if any(text in value for value in values for text in target.texts):
                left.append(table)
                break
    return left


def _clean_event(text: str, target: ErasedTexts) -> str:
    if not target.is_in(text) and _EXAMPLES not in text:
        return text
    try:
        event = json.loads(text)
    except ValueError:
        return text
    clean = _clean_node(event, target, is_value=False)
    return text if clean == event else json.dumps(clean)


def _clean_node(node: Any, target: ErasedTexts, *, is_value: bool) -> Any:
    """Return a part of an event with texts replaced. `is_value`: it is a message, or a value of metadata."""
    if isinstance(node, str):
        return _replace(node, target) if is_value else node
    if isinstance(node, list):
        return [_clean_node(inner, target, is_value=is_value) for inner in node]
    if not isinstance(node, dict):
        return node
    label = node.get("label")
    if isinstance(label, str) and "entry_data" in node:
        if label.startswith(_STRUCTURE):
            return node
        if label == _EXAMPLES:
            node = {**node, "entry_data": _clean_examples(node["entry_data"], target)}
    return {
        name: _clean_node(inner, target, is_value=is_value or name in _MESSAGES or name in _VALUES)
        for name, inner in node.items()
    }


def _clean_examples(entry: Any, target: ErasedTexts) -> Any:
    """Return the metadata of examples without those of erased keys."""
    examples = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(examples, list):
        return entry
    rest = [
        example
        for example in examples
        if not isinstance(example, dict)
        or tuple(example.get(name) for name in target.columns) not in target.keys
    ]
    return {**entry, "data": rest}


def _replace(text: str, target: ErasedTexts) -> str:
    for erased in sorted(target.texts, key=len, reverse=True):
        for form in {erased, json.dumps(erased)[1:-1]}:
            text = text.replace(form, ERASED)
    return text


# Logs


def _clean_file(path: Path, target: ErasedTexts, cleaned: CleanedHome, *, is_log: bool) -> None:
    """Replace texts in a log of a run; name any other file that has one."""
    content = path.read_bytes()
    needles = target.needles
    if not any(needle in content for needle in needles):
        return
    if not is_log:
        cleaned.left.append(str(path))
        return
    for needle in sorted(needles, key=len, reverse=True):
        content = content.replace(needle, ERASED.encode())
    with write_draft(path.parent, content) as draft:
        draft.replace(path)
    cleaned.logs += 1
