"""States of a read of a log: how far each table is.

**Each change once.** The state of a table says which changes of the log are in it. Rows and state are one
commit of the table, so the tables may be at different places of the log: the log is read from what all of
them have, and each leaves out what it has already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from connectors.cdc.texts import RESET_ALL
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId

_FORM = 1
Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TableState(ABC):
    """What is known of one table. Each log has its own subclass, with the position of the table.

    Attributes:
        progress: the state of its snapshot, if it is not complete.
        is_complete: whether its snapshot is.
    """

    progress: Json | None = None
    is_complete: bool = False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the state as it is stored."""


Table = TypeVar("Table", bound=TableState)


@dataclass
class LogState(Generic[Table]):
    """A state of the group of tables. `shared`: says which log it is, as it is stored."""

    shared: Json
    tables: dict[StreamId, Table] = field(default_factory=dict)

    def is_within(self, streams: Collection[StreamId]) -> bool:
        """Return whether all its tables are some streams: else the others still need the log."""
        return self.tables.keys() <= set(streams)

    def to_state(self) -> GroupState:
        """Return the state as the SDK sends it."""
        tables = {name: table.to_json() for name, table in self.tables.items()}
        return GroupState({"form": _FORM, **self.shared}, tables, is_independent=True)


def load_state(
    state: GroupState,
    parse_shared: Callable[[Json], Json],
    parse_table: Callable[[Json, Json], Table],
    is_configured: Callable[[StreamId], bool],
) -> LogState[Table]:
    """Return a state, without the tables that the config does not have any more.

    Args:
        parse_shared: returns what says which log it is.
        parse_table: returns the state of a table, from its JSON and what `parse_shared` returns. Both raise a
            KeyError, TypeError, ValueError or AttributeError if they get something else.

    Raises:
        ConfigError: it is not of a log, or of a newer version.
    """
    try:
        is_known, shared = state.shared["form"] == _FORM, parse_shared(state.shared)
        tables = {
            name: parse_table(part, shared)
            for name, part in state.streams.items()
            if is_configured(name)
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "the state is not one of `incremental: log`",
            guidance=f"after a change of `incremental`, {RESET_ALL}",
        ) from None
    if not is_known:
        raise ConfigError(
            "the state is of a newer version of this source",
            guidance=f"install that version, or {RESET_ALL}",
        )
    return LogState(shared, tables)
