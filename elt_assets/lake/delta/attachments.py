"""Attachments: large values of a commit's metadata in separate files, so that the log stays small.

`commits` writes them; `commit_metadata` reads them, and `publish.iceberg` the state among them.

A shared state of a megabyte, or the list of a refresh's files, would otherwise be repeated in the log at
every checkpoint. The file is written before the commit that refers to it. Vacuum removes the file when no
version within the retention refers to it.

A kill at ATTACHMENT_WRITTEN leaves a file to which no commit refers. The next run writes another one.
`tests/lake/test_crash_points.py::test_attached_states_survive_a_kill_at_any_point`
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elt_assets.errors import SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.storage import HIDDEN, TableStorage

LIMITS = {"elt.state": 256 << 10, "elt.refresh": 4 << 10, "elt.tombstones": 4 << 10}
"""Maximum bytes of a value in the commit itself, by its key. A larger value is written to a file."""
REPEATED = 2 << 10
"""Maximum bytes of a value that is in the commit itself although the commit before it has the same."""
SUFFIX = "_file"
"""Suffix of the key of an attachment's path: `elt.state_file` replaces `elt.state` in the commit."""


@dataclass(frozen=True)
class Attachment:
    """A value of a commit's metadata and the path of its file under the table's root."""

    path: str
    value: str


def detach(
    storage: TableStorage,
    metadata: Mapping[str, str],
    previous: Mapping[str, Attachment],
    before: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, Attachment]]:
    """Move large values of a commit's metadata to files.

    Args:
        previous: attachments of the previous commit; a value that has not changed keeps its file.
        before: the metadata of the previous commit. A value that it has too is written to a file from
            `REPEATED` bytes on: the commits of rows between two states do not repeat the state.

    Returns:
        The metadata for the commit, and the attachments that it refers to.
    """
    attached = {
        key: _attachment(storage, value, previous.get(key))
        for key, value in metadata.items()
        if key in LIMITS
        and len(value.encode())
        > (min(LIMITS[key], REPEATED) if before.get(key) == value else LIMITS[key])
    }
    small = {key: value for key, value in metadata.items() if key not in attached}
    return {
        **small,
        **{key + SUFFIX: attachment.path for key, attachment in attached.items()},
    }, attached


def paths(entry: Mapping[str, Any]) -> list[str]:
    """Return the paths of the files that a commit's metadata refers to."""
    return [entry[key + SUFFIX] for key in LIMITS if key + SUFFIX in entry]


def read(storage: TableStorage, entry: Mapping[str, Any]) -> dict[str, Attachment]:
    """Return the attachments of a commit.

    Raises:
        SystemFailure: a file is missing.
    """
    return {
        key: Attachment(entry[key + SUFFIX], _value(storage, entry[key + SUFFIX], key))
        for key in LIMITS
        if key + SUFFIX in entry
    }


def _attachment(storage: TableStorage, value: str, previous: Attachment | None) -> Attachment:
    if previous is not None and previous.value == value:
        return previous
    path = f"{HIDDEN}/metadata/{uuid.uuid4().hex}.json"
    storage.write_text(path, value)
    reach(Failpoint.ATTACHMENT_WRITTEN)
    return Attachment(path, value)


def _value(storage: TableStorage, path: str, key: str) -> str:
    text = storage.read_text(path)
    if text is None:
        raise SystemFailure(
            f"the file {path} of the table {storage.uri}, with the value {key} of a commit, is missing",
            guidance="restore it from a backup, or move the table away to read the stream from the beginning",
        )
    return text
