"""Records that lack a value of the primary key or of the replication key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from connectors.sdk.items import Record, Warn
from connectors.sdk.state.bookmark import ERROR, KEEP, SKIP
from elt_assets.errors import SystemFailure

POLICIES = (KEEP, SKIP, ERROR)


class MissingKeys:
    """What becomes of records that lack a value of a key: the field is missing, or null.

    Args:
        policy: KEEP, SKIP or ERROR.
        paths: the paths of the fields.

    Raises:
        SystemFailure: there is no such policy.
    """

    def __init__(self, policy: str, paths: Sequence[Sequence[str]]):
        if policy not in POLICIES:
            raise SystemFailure(
                f"`missing_keys` is {policy!r}", guidance=f"write one of {', '.join(POLICIES)}"
            )
        self._policy = policy
        self._paths = paths
        self._numbers: dict[str, int] = {}

    def leaves_out(self, record: Record) -> bool:
        """Return whether a record is to be left out.

        Raises:
            SystemFailure: it lacks a key, which is an error in this stream.
        """
        for path in self._paths:
            if _lacks(record, path):
                name = ".".join(path)
                if self._policy == ERROR:
                    raise _describe(name, record)
                self._numbers[name] = self._numbers.get(name, 0) + 1
                return self._policy == SKIP
        return False

    def warnings(self) -> Iterator[Warn]:
        """Yield a warning with the number of records for each field that some lack."""
        fate = "left out" if self._policy == SKIP else "kept"
        for name, number in self._numbers.items():
            yield Warn(f"records without a value of the key {name!r}: {number}; they were {fate}")


def _lacks(record: Any, path: Sequence[str]) -> bool:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record is None


def _describe(name: str, record: Record) -> SystemFailure:
    return SystemFailure(
        f"a record has no value of the key {name!r}; it has {', '.join(map(repr, record)) or 'no field'}",
        guidance='choose another key, or set `missing_keys` to "skip" or "keep"',
    )
