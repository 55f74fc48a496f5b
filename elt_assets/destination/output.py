"""The destination's messages on stdout, each written when it is given."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from elt_assets.protocol import output
from elt_assets.protocol.airbyte.messages import Message, State, StateStats


class Output(output.Output):
    """Messages, each written when it is given."""

    def send(self, messages: Iterable[Message]) -> None:
        """
        Raises:
            OutputClosedError: nobody reads any more.
        """
        super().send(messages)
        self.flush()


def counted(state: State, committed: int, rejected: int) -> State:
    """A state as received, and what became of its records.

    spec: AirbyteStateStats: counts are doubles; `rejectedRecordCount` since 0.18.
    """
    told = copy.copy(state)
    stats = StateStats() if state.destinationStats is None else copy.copy(state.destinationStats)
    stats.recordCount = float(committed)
    stats.rejectedRecordCount = float(rejected) if rejected else None
    told.destinationStats = stats
    return told
