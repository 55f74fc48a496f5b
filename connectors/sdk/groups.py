"""Streams that are read together, because their source has one state for all of them.

A log of changes has one position for all tables. A source gives such streams the same `group`. A read then
calls `StreamGroup.read` once for all streams of the group that are read incrementally, and sends GLOBAL
states. `read_together: true` lets a connection read its streams in one process.

Spec: Airbyte Protocol, State & Checkpointing, V2: GLOBAL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.sdk.items import Estimate, Measure, Page, Slice, Wait, Warn
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId


@dataclass(frozen=True)
class GroupState:
    """The state of a group.

    Attributes:
        shared: of all its streams.
        streams: what each of them has beside that.
        is_independent: what a stream has holds for it alone, and states whose `shared` is the same may be
            combined. The lake then commits the rows and the state of each table at once; else a sync that is
            killed between the commits of two tables repeats rows.
    """

    shared: Mapping[str, Any] = field(default_factory=dict)
    streams: Mapping[StreamId, Mapping[str, Any]] = field(default_factory=dict)
    is_independent: bool = False


@dataclass(frozen=True)
class StreamPart:
    """An item of one stream of a group."""

    stream: StreamId
    item: Page | Slice | Estimate | Warn | Measure


@dataclass(frozen=True)
class GroupCheckpoint:
    """A state that covers all items of all streams so far."""

    state: GroupState


@dataclass(frozen=True)
class StreamFailure:
    """The error that ends the read of one stream of a group, while the others go on.

    The states that follow have of the stream what the last one before it had.
    """

    stream: StreamId
    error: EltError


GroupItem = StreamPart | StreamFailure | GroupCheckpoint | Wait


class StreamGroup(ABC):
    """The base class of groups of streams."""

    @abstractmethod
    def read(
        self,
        members: Sequence[ConfiguredStream],
        state: GroupState | None,
        *,
        is_acknowledged: bool,
    ) -> Iterator[GroupItem]:
        """Yield the items of the streams, and a `GroupCheckpoint` wherever a later read can go on.

        An error that is raised ends the read of all streams; a `StreamFailure` that of one.

        Args:
            members: the streams to read.
            state: that of the last acknowledged checkpoint; None if there is none. A stream that it does not
                name is read from the beginning.
            is_acknowledged: whether the checkpoints before a `Wait` are committed when it returns. The source
                may then forget what comes before them.

        Raises:
            EltError: the group cannot be read; its class names who must act.
        """
