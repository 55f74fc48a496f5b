"""What writers of a folder put there to attack its reader, and what comes of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROW = '{"n": 2}\n'
NAMES = ("a\nb.jsonl", "\x1b[31m.jsonl", "\u202e.jsonl", " .jsonl", "%2e%2e.jsonl", "a#b?c.jsonl")


@dataclass(frozen=True)
class Attack:
    """What is put into a folder, which has one good file.

    Attributes:
        put: writes it.
        error: pattern of the error; None if the folder is read.
        rows: the records of the other files.
    """

    put: Callable[[Path], object]
    error: str | None = None
    rows: int = 0


def put_names(folder: Path) -> None:
    for name in NAMES:
        (folder / name).write_text(ROW)


def put_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "x.jsonl"))


def put_pipe_behind_a_link(folder: Path) -> None:
    os.mkfifo(folder.parent / "pipe")
    (folder / "x.jsonl").symlink_to(folder.parent / "pipe")


def put_loop(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to(folder)


def put_links_that_multiply(folder: Path) -> None:
    """Twenty folders, each with two links to the next one, have a million paths."""
    for number in range(20):
        (folder.parent / f"{number}").mkdir()
        for name in "ab":
            (folder.parent / f"{number}" / name).symlink_to(folder.parent / f"{number + 1}")
    (folder.parent / "20").mkdir()
    (folder / "first").symlink_to(folder.parent / "0")


def put_linked_folder(folder: Path, parent: str = ".") -> None:
    other = folder / parent / "other"
    other.mkdir()
    (other / "x.jsonl").write_text(ROW)
    for name in "ab":
        (folder / name).symlink_to(other)


ATTACKS: Mapping[str, Attack] = {
    "pipe": Attack(lambda folder: os.mkfifo(folder / "x.jsonl")),
    "pipe_behind_a_link": Attack(put_pipe_behind_a_link),
    "device": Attack(lambda folder: (folder / "x.jsonl").symlink_to("/dev/zero")),
    "socket": Attack(put_socket),
    "link_to_nothing": Attack(lambda folder: (folder / "x.jsonl").symlink_to(folder / "gone")),
    "names_of_any_text": Attack(put_names, rows=len(NAMES)),
    "name_that_is_no_text": Attack(
        lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/\xff.jsonl")).write_text(ROW),
        error=r"has a file whose name is not UTF-8: b'\\xff.jsonl'",
    ),
    "folder_in_itself": Attack(put_loop, error="sub/up contains itself by a link"),
    "links_that_multiply": Attack(
        put_links_that_multiply, error="more than 1,000 folders below links"
    ),
    "linked_folder": Attack(put_linked_folder, rows=3),
    "linked_folder_elsewhere": Attack(
        lambda folder: put_linked_folder(folder, ".."), error=r"/x\.jsonl is a link that leaves"
    ),
    "link_to_a_file_elsewhere": Attack(
        lambda folder: (folder / "x.jsonl").symlink_to("/etc/passwd"),
        error=r"x\.jsonl is a link that leaves",
    ),
}
