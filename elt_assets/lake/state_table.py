"""The state of a stream whose rows are in another destination: a table without rows, whose log has what
the log of a stream's table has."""

from __future__ import annotations

from dataclasses import replace

from elt_assets.lake.files import Change
from elt_assets.lake.landing import Landing, declared_schema
from elt_assets.lake.tables import StreamTables
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment


class StateWriter:
    """Keeps the states of one sync of one stream; a `Sink` that takes no records."""

    schema_changes: tuple[str, ...] = ()

    def __init__(self, tables: StreamTables, land: Landing):
        self._table = tables.main
        self._landing = land

    def write(self, segment: Segment) -> None:
        """Never called: the records are the other destination's."""
        raise NotImplementedError

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Publish the state, if it is another one or the sync is complete.

        Raises:
            ConcurrentSync: another run of the stream was first.
        """
        land, head = self._landing, self._table.head
        state = head.state
        if checkpoint.states and not land.keeps_state:
            state = checkpoint.states[-1].to_json().decode()
        generation = land.generation
        if land.truncates and not checkpoint.final:
            generation = head.generation
        if (state, generation) != (head.state, head.generation) or not self._table.exists:
            self._table.prepare(declared_schema(land.stream), land.stream.stream.name)
            after = replace(
                self._table.head,
                sequence=head.sequence + 1,
                generation=generation,
                state=state,
                run_id=land.run_id,
                sync_id=land.sync_id,
                commit=None,
                same_as=None,
                restored=False,
            )
            self._table.commit(Change(), after, 0)
        head = self._table.head
        return Committed(head.sequence, head.generation, self._table.version, 0, 0, 0, head.state)

    def close(self) -> None:
        """Nothing is left to remove."""
