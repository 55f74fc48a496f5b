"""The head of a stream in its table's log: the state that belongs to the data.

Each commit carries it as custom metadata: `elt.state`, `elt.sequence`, `elt.generation`, `elt.run_id`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from elt_assets.errors import SystemFailure

_FEW = 5
"""Commits that nearly always hold what is looked for."""


@dataclass(frozen=True)
class Head:
    """What the table's newest commit of ours says. `state`: JSON as received, None if there is none."""

    sequence: int
    generation: int
    state: str | None
    run_id: str | None = None

    def metadata(self) -> dict[str, str]:
        """For the commit."""
        return {
            "elt.state": self.state or "",
            "elt.sequence": str(self.sequence),
            "elt.generation": str(self.generation),
            "elt.run_id": self.run_id or "",
        }


def read_head(delta: DeltaTable | None, app_id: str) -> Head:
    """From the newest commit of ours at or below the version that the data is of.

    A restore brings older data back without saying its state; the state that belongs to it is
    that of the restored version.

    Raises:
        SystemFailure: there was a state, and the log no longer tells it, or not which one.
    """
    if delta is None:
        return Head(sequence=0, generation=0, state=None)
    newest = delta.transaction_version(app_id) or 0
    for entry in _in_force(delta):
        if "elt.sequence" in entry:
            return Head(
                sequence=max(int(entry["elt.sequence"]), newest),
                generation=int(entry["elt.generation"]),
                state=entry.get("elt.state") or None,
                run_id=entry.get("elt.run_id") or None,
            )
    if newest and int(delta.history()[-1]["version"]) > 0:
        raise SystemFailure(
            f"the table {delta.table_uri} had a state, but its log no longer holds the commit of it",
            guidance="move the table away to read the stream anew, or keep the log longer "
            "(delta.logRetentionDuration)",
        )
    return Head(newest, 0, None)


def _in_force(delta: DeltaTable) -> Iterable[dict[str, Any]]:
    """Commits from the newest down, those that a restore took back left out."""
    ceiling: int | None = None
    for entry in _recent(delta):
        if ceiling is not None and int(entry["version"]) > ceiling:
            continue
        if entry.get("operation") == "RESTORE":
            ceiling = _restored(delta, entry)
        else:
            yield entry


def _restored(delta: DeltaTable, entry: dict[str, Any]) -> int:
    """The version that a restore went back to.

    One by time does not say it, and what a time means differs by engine: then it is the oldest
    version that held the same files, whose state is sure not to be ahead of them.
    """
    given = str((entry.get("operationParameters") or {}).get("version"))
    if given.isdigit():
        return int(given)
    restored, found = _files(delta, int(entry["version"])), None
    for version in range(int(entry["version"]) - 1, -1, -1):
        same = _files(delta, version) == restored
        if found is not None and not same:
            break
        found = version if same else found
    if found is None:
        raise SystemFailure(
            f"the table {delta.table_uri} was restored (version {entry['version']}), but to which "
            "version cannot be found",
            guidance="restore it again by version, so that the state that belongs to it can be found",
        )
    return found


def _files(delta: DeltaTable, version: int) -> set[str]:
    return set(DeltaTable(delta.table_uri, version=version).file_uris())


def _recent(delta: DeltaTable) -> Iterable[dict[str, Any]]:
    few = delta.history(_FEW)
    yield from few
    if len(few) == _FEW:
        yield from delta.history()[_FEW:]
