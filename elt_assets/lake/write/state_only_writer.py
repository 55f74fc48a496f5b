"""The state of a stream whose rows are in another destination: a table without rows, whose log has what
the log of a stream's table has."""

from __future__ import annotations

from dataclasses import replace

from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.files import Change
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import (
    WriteSpec,
    declared_schema,
    refresh_fingerprint,
    resumable_refresh,
)
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment


class StateOnlyWriter:
    """Keeps the states of one sync of one stream; a `Sink` that takes no records.

    That a generation was begun which replaces others is committed before anything of it is sent: its
    number must not be given to another one.

    Raises:
        ConcurrentSync: another run of the stream was first.
    """

    schema_changes: tuple[str, ...] = ()

    def __init__(self, tables: StreamTables, land: WriteSpec):
        self._table = tables.main
        self._landing = land
        head = self._table.head
        known = resumable_refresh(land.stream, head, land.salt)
        if land.truncates and (known is None or known.generation != land.generation):
            self._publish(head.state, head.generation, self._refresh(None))

    def write(self, segment: Segment) -> None:
        """Never called: the records are the other destination's."""
        raise NotImplementedError

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Publish the state, if it is another one or the sync is complete.

        Raises:
            ConcurrentSync: another run of the stream was first.
        """
        land, head = self._landing, self._table.head
        present = head.state if head.refresh is None else head.refresh.state
        state = present
        if checkpoint.states and not land.keeps_state:
            state = checkpoint.states[-1].to_json().decode()
        if land.truncates and not checkpoint.final:
            if state != present:
                self._publish(head.state, head.generation, self._refresh(state))
        elif (state, land.generation, None) != (head.state, head.generation, head.refresh):
            self._publish(state, land.generation, None)
        return self._committed(state)

    def close(self) -> None:
        """Nothing is left to remove."""

    def _refresh(self, state: str | None) -> Refresh:
        land = self._landing
        made = refresh_fingerprint(land.stream, land.salt)
        return Refresh(land.generation, True, state, (), (), (), made)

    def _publish(self, state: str | None, generation: int, refresh: Refresh | None) -> None:
        land = self._landing
        self._table.prepare(declared_schema(land.stream), land.stream.stream.name)
        head: CommitMetadata = self._table.head
        after = replace(
            head,
            sequence=head.sequence + 1,
            generation=generation,
            state=state,
            run_id=land.run_id,
            sync_id=land.sync_id,
            commit=None,
            same_as=None,
            refresh=refresh,
            intent=land.intent or head.intent,
            restored=False,
        )
        self._table.commit(Change(), after, 0)

    def _committed(self, state: str | None) -> Committed:
        head = self._table.head
        return Committed(head.sequence, head.generation, self._table.version, 0, 0, 0, state)
