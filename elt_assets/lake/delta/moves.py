"""Moves of tables: a table that is being moved says so in a property, and no writer commits to it.

The property is part of the log. So a run that opened the table before meets it when it commits, and a copy of
the log has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from elt_assets.errors import ConfigError

PROPERTY = "elt.moving"


class Described(Protocol):
    """A snapshot of a table, with its properties."""

    @property
    def table_uri(self) -> str: ...

    def metadata(self) -> Any: ...


@dataclass(frozen=True)
class Move:
    """A move of a stream's tables."""

    # `source`, `target`: the levels of the table below the root of the lake, with slashes between them.
    source: str
    target: str
    # `former`, `writer`: ids of the table's writer in transactions, before and after.
    former: str
    writer: str
    command: str  # what a user runs to make or to finish the move
    has_new_writer: bool = False  # the writers are those after the move already

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class MovingTable(ConfigError):
    """A table is being moved, and no writer commits to it meanwhile."""


def find_move(delta: Described) -> Move | None:
    """Return the move that a table is in; None if it is in none."""
    configuration: Mapping[str, str] = delta.metadata().configuration
    text = configuration.get(PROPERTY)
    return Move(**json.loads(text)) if text else None


def refuse_moving(delta: Described) -> None:
    """Refuse to write to a table that is being moved.

    Raises:
        MovingTable: names the move.
    """
    move = find_move(delta)
    if move is not None:
        raise MovingTable(
            f"the table {delta.table_uri} is being moved from {move.source} to {move.target}, and the move "
            "has not ended",
            guidance=f"run `{move.command}`, which finishes it; until then no sync writes to the table",
        )
