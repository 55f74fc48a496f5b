"""Large values of a commit's metadata, kept as files of their own, so that the log stays small.

A commit that carries a shared state of a megabyte, or the list of a refresh's files, would otherwise repeat
it in the log at every checkpoint. The file is written before the commit that names it. Vacuum removes it
once no version within the retention names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.files import HIDDEN, Files

LIMITS = {"elt.state": 256 << 10, "elt.refresh": 4 << 10, "elt.tombstones": 4 << 10}
"""Bytes of a value up to which it stands in the commit itself."""
SUFFIX = "_file"
"""In place of the value of `elt.state`, the commit has the path of its file as `elt.state_file`."""


@dataclass(frozen=True)
class Attachment:
    """A value of a commit's metadata and the path of its file under the table's root."""

    path: str
    value: str


def detach(
    storage: Files, metadata: Mapping[str, str], known: Mapping[str, Attachment]
) -> tuple[dict[str, str], dict[str, Attachment]]:
    """Move large values of a commit's metadata to files.

    Args:
        known: attachments of the commit before; a value that has not changed keeps its file.

    Returns:
        The metadata for the commit, and the attachments that it names.
    """
    attached = {
        key: _attachment(storage, value, known.get(key))
        for key, value in metadata.items()
        if len(value.encode()) > LIMITS.get(key, len(value.encode()))
    }
    small = {key: value for key, value in metadata.items() if key not in attached}
    return {**small, **{key + SUFFIX: one.path for key, one in attached.items()}}, attached


def paths(entry: Mapping[str, Any]) -> list[str]:
    """Return the paths of the files that a commit's metadata names."""
    return [entry[key + SUFFIX] for key in LIMITS if key + SUFFIX in entry]


def read(storage: Files, entry: Mapping[str, Any]) -> dict[str, Attachment]:
    """Return the attachments of a commit.

    Raises:
        SystemFailure: a file is missing.
    """
    return {
        key: Attachment(entry[key + SUFFIX], _value(storage, entry[key + SUFFIX], key))
        for key in LIMITS
        if key + SUFFIX in entry
    }


def _attachment(storage: Files, value: str, known: Attachment | None) -> Attachment:
    if known is not None and known.value == value:
        return known
    path = f"{HIDDEN}/metadata/{uuid.uuid4().hex}.json"
    storage.write_text(path, value)
    return Attachment(path, value)


def _value(storage: Files, path: str, key: str) -> str:
    text = storage.read_text(path)
    if text is None:
        raise SystemFailure(
            f"the file {path} of the table {storage.uri}, which holds {key} of a commit, is missing",
            guidance="restore it from a backup, or move the table away to read the stream again",
        )
    return text
