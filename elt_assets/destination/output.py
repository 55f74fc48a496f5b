"""Output of `elt-destination`: messages on stdout."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from elt_assets.protocol import output
from elt_assets.protocol.airbyte.messages import Message, State, StateStats


class Output(output.Output):
    """Messages that are written as soon as they are sent."""

    def send(self, messages: Iterable[Message]) -> None:
        """Write messages.

        Raises:
            OutputClosedError: the reader has closed the output.
        """
        super().send(messages)
        self.flush()


def add_counts(state: State, committed: int, rejected: int) -> State:
    """Return a copy of a state with the counts of its committed and its rejected records.

    Spec: AirbyteStateStats: counts are doubles; `rejectedRecordCount` since 0.18.
    """
    counted = copy.copy(state)
    stats = StateStats() if state.destinationStats is None else copy.copy(state.destinationStats)
    stats.recordCount = float(committed)
    stats.rejectedRecordCount = float(rejected) if rejected else None
    counted.destinationStats = stats
    return counted
