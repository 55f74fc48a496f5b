"""Changes of an open transaction, of which a part may be rolled back.

A server with rows in its log (`binlog_format = ROW`) leaves out what is rolled back, but for a transaction
that also changed a table without transactions (MyISAM, Aria) or made a temporary one. The changes of tables
without transactions are then a transaction of the log of their own, and stay. Those of the other tables come
with their savepoints: what is between SAVEPOINT and ROLLBACK TO it was rolled back, and a transaction that
ends with ROLLBACK as a whole.

The rows may be in files already when that is known. So their numbers are noted, and they are removed when the
files are complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from connectors.cdc.texts import RESET_ALL
from connectors.mysql.log.events import Statement
from connectors.mysql.log.tokens import TokenReader, split_tokens
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId

Numbers = dict[StreamId, int]
"""The number of the last change of each stream."""


@dataclass
class Rollbacks:
    """What is rolled back.

    Attributes:
        void: gets the numbers of changes that were rolled back, as `ChangeFiles` has them.
        numbers: those of the last changes.
    """

    void: defaultdict[StreamId, list[tuple[int, int]]]
    numbers: Mapping[StreamId, int]
    _start: Numbers = field(default_factory=dict)
    _savepoints: dict[str, Numbers] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a transaction."""
        self._start, self._savepoints = {}, {}

    def add(self, stream: StreamId) -> None:
        """Add that a stream is changed next."""
        self._start.setdefault(stream, self.numbers[stream])

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint; an earlier one of the name is gone."""
        self._savepoints.pop(name, None)
        self._savepoints[name] = {stream: self.numbers[stream] for stream in self._start}

    def roll_back(self, savepoint: str | None) -> None:
        """Take back what was changed after a savepoint, or in the whole transaction.

        Raises:
            ConfigError: the log does not have the savepoint.
        """
        since: Numbers = {}
        if savepoint is not None:
            if savepoint not in self._savepoints:
                raise ConfigError(
                    f"the log has changes that were rolled back to a savepoint that it lacks: {savepoint!r}",
                    guidance=RESET_ALL,
                )
            since = self._savepoints[savepoint]
            names = list(self._savepoints)
            for later in names[names.index(savepoint) + 1 :]:
                del self._savepoints[later]
        for stream, start in self._start.items():
            first = since.get(stream, start)
            if first < self.numbers[stream]:
                self.void[stream].append((first, self.numbers[stream]))


def read_savepoint(statement: Statement) -> tuple[bool, str | None] | None:
    """Return whether a statement rolls back, and the name of its savepoint; None if it is about none.

    Names of savepoints are compared without regard to case.
    """
    if statement.text.lstrip()[:8].upper() not in ("ROLLBACK", "SAVEPOIN"):
        return None
    reader = TokenReader(split_tokens(statement.text, statement.sql_mode), "", folds=True)
    if reader.take("SAVEPOINT"):
        return False, reader.take_database()
    reader.skip()
    reader.take("WORK")
    if not reader.take("TO"):
        return True, None
    reader.take("SAVEPOINT")
    return True, reader.take_database()
