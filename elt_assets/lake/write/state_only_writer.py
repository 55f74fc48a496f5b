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

    def __init__(self, tables: StreamTables, spec: WriteSpec):
        self._table = tables.main
        self._spec = spec
        head = self._table.head
        known = resumable_refresh(spec.stream, head, spec.salt)
        if spec.truncates and (known is None or known.generation != spec.generation):
            self._publish(head.state, head.generation, self._refresh(None))

    def write(self, segment: Segment) -> None:
        """Never called: the records are the other destination's."""
        raise NotImplementedError

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Publish the state, if it is another one or the sync is complete.

        Raises:
            ConcurrentSync: another run of the stream was first.
        """
        spec, head = self._spec, self._table.head
        present = head.state if head.refresh is None else head.refresh.state
        state = present
        if checkpoint.states and not spec.keeps_state:
            state = checkpoint.states[-1].to_json().decode()
        if spec.truncates and not checkpoint.final:
            if state != present:
                self._publish(head.state, head.generation, self._refresh(state))
        elif (state, spec.generation, None) != (head.state, head.generation, head.refresh):
            self._publish(state, spec.generation, None)
        return self._committed(state)

    def close(self) -> None:
        """Nothing is left to remove."""

    def _refresh(self, state: str | None) -> Refresh:
        spec = self._spec
        made = refresh_fingerprint(spec.stream, spec.salt)
        return Refresh(spec.generation, True, state, (), (), (), made)

    def _publish(self, state: str | None, generation: int, refresh: Refresh | None) -> None:
        spec = self._spec
        self._table.prepare(declared_schema(spec.stream), spec.stream.stream.name)
        head: CommitMetadata = self._table.head
        after = replace(
            head,
            sequence=head.sequence + 1,
            generation=generation,
            state=state,
            run_id=spec.run_id,
            sync_id=spec.sync_id,
            commit=None,
            same_as=None,
            refresh=refresh,
            intent=spec.intent or head.intent,
            restored=False,
        )
        self._table.commit(Change(), after, 0)

    def _committed(self, state: str | None) -> Committed:
        head = self._table.head
        return Committed(head.sequence, head.generation, self._table.version, 0, 0, 0, state)
