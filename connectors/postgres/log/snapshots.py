"""Snapshots in which rows of a table were read, and the numbers that changes get after them.

See `connectors.postgres.log.state` for why they are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from connectors.postgres.log.messages import Numbers

_TURN = 1 << 32


@dataclass(frozen=True)
class TableSnapshot:
    """A snapshot in which rows of a table were read.

    `least`, `end`, `running`: as the server describes a snapshot, with numbers of 64 bits. `number`: that of
    its rows in `_ab_cdc_lsn`. `is_partial`: only new partitions were read in it. `replayed`: of a snapshot of
    a standby, which does not name the transactions that are open: it shows commits before this position, and
    later ones count as not shown (`connectors.postgres.replica`).
    """

    least: int
    end: int
    running: frozenset[int]
    number: int
    is_partial: bool = False
    replayed: int = 0

    @classmethod
    def parse(
        cls, text: str, number: int, *, is_partial: bool = False, replayed: int = 0
    ) -> TableSnapshot:
        """Return the snapshot of a text such as `700:705:701,703`."""
        least, end, numbers = text.split(":")
        running = frozenset(map(int, filter(None, numbers.split(","))))
        return cls(int(least), int(end), running, number, is_partial, replayed)

    def to_json(self) -> dict[str, Any]:
        running = ",".join(map(str, sorted(self.running)))
        json = {"transactions": f"{self.least}:{self.end}:{running}", "number": self.number}
        if self.replayed:
            json["replayed"] = self.replayed
        return {**json, "partial": True} if self.is_partial else json

    def shows(self, transaction: int, lsn: int = 0) -> bool:
        """Return whether a transaction had ended.

        Args:
            transaction: the 32 bits of its number that a log has.
            lsn: the position of its commit.
        """
        if self.replayed:
            return lsn < self.replayed
        number = self._extend(transaction)
        return number < self.least or (number < self.end and number not in self.running)

    def has_begun(self, transaction: int) -> bool:
        """Return whether a transaction had a number. `transaction`: 32 bits of it."""
        return self._extend(transaction) < self.end

    def _extend(self, transaction: int) -> int:
        """Return the 64 bits of a number of which 32 are known."""
        distance = (transaction - self.end) % _TURN
        return self.end + (distance if distance < _TURN // 2 else distance - _TURN)


def number_changes(
    snapshots: Sequence[TableSnapshot], transactions: Numbers, lsns: Numbers
) -> Numbers:
    """Return the numbers of changes in `_ab_cdc_lsn`; -1 for those that the first snapshot has shown.

    Args:
        transactions: the number of each change's transaction.
        lsns: the position of its commit.
    """
    numbers: Numbers = lsns.copy()
    if not snapshots:
        return numbers
    distinct, first, inverse = np.unique(transactions, return_index=True, return_inverse=True)
    pairs = list(zip(distinct.tolist(), lsns[first].tolist(), strict=True))
    is_shown = np.array([[snapshot.shows(*pair) for snapshot in snapshots] for pair in pairs])
    least = np.where(is_shown, 0, [snapshot.number + 1 for snapshot in snapshots]).max(axis=1)
    np.maximum(numbers, least[inverse], out=numbers)
    if not snapshots[0].is_partial:
        numbers[is_shown[inverse, 0]] = -1
    return numbers
