"""What the newest commit of a table means for the next sync: generation, refresh, and where it starts.

Used by `pipeline`, `orchestration.planning` and `destination.tables`, which plan a sync, and by
`sync_columns`.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import types as t

from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.protocol.catalog import ConfiguredStream

RefreshMode = Literal["none", "retain", "truncate"]


@dataclass(frozen=True)
class Generations:
    """The generation of a sync, and the oldest one that stays. A minimum of 0 keeps all older generations.

    Spec: ConfiguredAirbyteStream as of 0.9.
    """

    generation_id: int
    minimum_generation_id: int


@dataclass(frozen=True)
class StoredStream:
    """A stream as its table stores it, and the newest commit of the table."""

    stream: ConfiguredStream
    metadata: CommitMetadata
    salt: str | None = None  # as in `WriteSpec`
    written: t.StructType | None = None  # as in `WriteSpec`
    conditions: str = ""  # as in `WriteSpec`

    @property
    def fingerprint(self) -> str:
        """A text that identifies how the files of a refresh are written: the policy, and a hash of the stored
        schema, key, cursor, salt and conditions.

        After a change of the schema it depends on the columns that were written before, which no other sync
        knows.
        """
        stream = self.stream
        cursor = stream.cursor if stream.deduplicates else None
        text = json.dumps(
            [stream.stream.json_schema, stream.key, cursor, self.salt], sort_keys=True
        )
        text += self.conditions
        text += "" if self.written is None else self.written.json()
        return f"{stream.destination_sync_mode}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def resumable_refresh(self) -> Refresh | None:
        """The refresh that a sync of this stream resumes, if its source can; otherwise None.

        The rows of a truncating refresh must all be written in the same way. If not, it must restart.
        """
        refresh = self.metadata.refresh
        if refresh is None or not self.stream.resumable:
            return None
        if refresh.truncates:
            return refresh if refresh.written_as == self.fingerprint else None
        return None if self.stream.overwrites else refresh

    def has_incompatible_refresh(self, generation: int | None) -> bool:
        """Return whether a truncating refresh of this generation is unfinished, and cannot be resumed with
        the stream as it is now: what is committed of it would be lost."""
        refresh = self.metadata.refresh
        if refresh is None or not refresh.truncates or refresh.generation != generation:
            return False
        return self.resumable_refresh is None

    @property
    def must_restart(self) -> bool:
        """Whether a truncating refresh is unfinished and still wanted, but must start again."""
        refresh = self.metadata.refresh
        if refresh is None or not refresh.truncates or not self.stream.resumable:
            return False
        is_same_policy = refresh.written_as.startswith(f"{self.stream.destination_sync_mode}:")
        return is_same_policy and self.resumable_refresh is None

    @property
    def _has_cursor(self) -> bool:
        # An incremental stream that overwrites is a partition; each sync replaces its rows.
        return self.stream.sync_mode == "incremental" and not self.stream.overwrites

    def generations(self, mode: RefreshMode = "none") -> Generations:
        """Return the generation that a sync of this stream writes; an unfinished one is resumed."""
        refresh = self.resumable_refresh if mode == "none" else None
        if refresh is not None:
            return Generations(refresh.generation, refresh.generation if refresh.truncates else 0)
        metadata = self.metadata
        if self.stream.overwrites or mode == "truncate" or self.must_restart:
            last = metadata.generation if metadata.refresh is None else metadata.refresh.generation
            new = max(last, metadata.generation) + 1
            return Generations(new, new)
        if mode == "retain":
            return Generations(metadata.generation + 1, 0)
        return Generations(max(metadata.generation, 1), 0)

    def find_starting_state(self, mode: RefreshMode = "none") -> str | None:
        """Return the state to start from: JSON as received; None to read from the beginning."""
        if mode != "none" or self.must_restart:
            return None
        refresh = self.resumable_refresh
        if refresh is not None:
            return refresh.state
        return self.metadata.state if self._has_cursor else None

    def continues(self, intent: str | None) -> bool:
        """Return whether an earlier attempt committed part of what a run requests, so that this attempt
        continues from there. It must not restart the refresh, nor start from the given state again.

        Args:
            intent: identifies the request (see `WriteSpec.intent`).
        """
        if intent is None or self.metadata.intent != intent:
            return False
        return self._has_cursor or self.resumable_refresh is not None


def next_sync_id(metadata: CommitMetadata) -> int:
    """Return the id of a new sync: the time in epoch milliseconds, or, if the clock was set back, the table's
    newest sync id plus 1."""
    return max(int(time.time() * 1000), metadata.sync_id + 1)
