"""The state of a stream: a bookmark for the stream, or one for each of its partitions.

The same object is a stream's state in the Airbyte Protocol and its entry under `bookmarks` in a Singer state.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Raw

from connectors.sdk.encoding import encode
from connectors.sdk.items import Context
from connectors.sdk.state.bookmark import (
    CONTEXT,
    OF_ONE_SYNC,
    PARTITIONS,
    REPLICATION_KEY,
    SKIP,
    Bookmark,
    BookmarkRules,
    read_saved_value,
    remove_progress,
)
from connectors.sdk.state.origin import SOURCE_IDENTITY, check_origin
from connectors.sdk.state.partitions import identity
from connectors.sdk.state.replication_key import ReplicationKey
from elt_assets.errors import ConfigError

PARENT_STATE = "parent_state"
"""Property of a state: the state of the parent up to which its child streams were read."""
_ENTRY = 100
"""Size in bytes of a partition's entry without its context, about."""


class StreamState:
    """The state of a stream while it is read. Bookmarks may be begun by several threads; one uses them.

    Args:
        key: the replication key.
        saved: the stream's last state; empty at the first sync.
        rules: what applies to all bookmarks of the stream.
        partitioning_keys: the names in a context that tell apart the partitions of the state; None for all.
            With fewer names than the context has, several contexts share a bookmark, so the records are not
            sorted, and the bookmarks are final only when the stream is complete.
        signpost: returns the largest value that the bookmark of a context may get in this sync; None if there
            is no limit.
        source: the identity of the source; None if it is unknown.
        position: the value up to which the source's log goes; None if it is unknown.

    Attributes:
        warnings: the reasons, one line each, why a part of the saved state has no effect.

    Raises:
        ConfigError: the saved state is not one of these, is of another source, or is ahead of the source.

    Spec: "Partitioned State", "Advanced Use Cases".
    """

    def __init__(
        self,
        key: ReplicationKey,
        saved: Mapping[str, Any],
        rules: BookmarkRules | None = None,
        *,
        partitioning_keys: Sequence[str] | None = None,
        signpost: Callable[[Context | None], Any] = lambda _: None,
        source: str | None = None,
        position: Any = None,
    ):
        self._key = key
        rules = rules or BookmarkRules()
        is_sorted = rules.is_sorted and partitioning_keys is None
        self._rules = replace(rules, is_sorted=is_sorted)
        self._keys = partitioning_keys
        self._signpost = signpost
        self._others = {name: value for name, value in saved.items() if name != PARTITIONS}
        self.warnings = list(_warnings(key, saved))
        check_origin(key, saved, source, position)
        if source is not None:
            self._others[SOURCE_IDENTITY] = source
        self._parent_state: Raw | None = None
        self._whole: Bookmark | None = None
        self._open: dict[bytes, Bookmark] = {}
        self._entries: dict[bytes, bytes] = {}
        self._size = 0
        self._lock = threading.RLock()
        for entry in _read_partitions(saved):
            without_own = remove_progress(entry)
            of_context = identity(entry[CONTEXT])
            if of_context not in self._entries or self._is_before(
                without_own, self._entries[of_context]
            ):
                self._keep(of_context, encode(without_own))

    @property
    def size(self) -> int:
        """Size of the state in bytes, about; without a partition that is being read."""
        if not self.is_coarse:
            return self._size
        with self._lock:
            return self._size + sum(map(len, self._open)) + _ENTRY * len(self._open)

    @property
    def bookmarks(self) -> int:
        """Number of bookmarks so far."""
        with self._lock:
            return len(self._entries) + sum(key not in self._entries for key in self._open)

    @property
    def fate_of_bad_values(self) -> str:
        """The end of a warning about records whose value of the key cannot be compared."""
        return (
            "they were left out" if self._rules.on_bad_value == SKIP else "they moved no bookmark"
        )

    @property
    def is_coarse(self) -> bool:
        """Return whether contexts share bookmarks, which then move only at the end of the stream."""
        return self._keys is not None

    def bookmarks_with(self, contexts: Iterable[Context]) -> int:
        """Return the largest number of bookmarks that the state may have once these contexts are read too."""
        if self._keys:
            return len(self._entries) + len(list(contexts))
        return len({*self._entries, *(identity(self._coarse(context)) for context in contexts)})

    def begin(self, context: Context | None) -> Bookmark:
        """Return the bookmark of a partition that is read now; None: the stream has no partitions."""
        context = None if context is None else self._coarse(context)
        if not context:
            self._whole = self._whole or self._bookmark(self._others, None)
            return self._whole
        of_context = identity(context)
        with self._lock:
            if of_context not in self._open:
                saved = self._entries.get(of_context)
                entry = {} if saved is None else msgspec.json.decode(saved)
                self._open[of_context] = self._bookmark(entry, context, of_context)
            return self._open[of_context]

    def end_interval(self, bookmark: Bookmark, value: Any) -> bool:
        """Take notice that all records of an interval of a context were sent, and return whether the state
        says so: a bookmark that contexts share does not.

        Args:
            bookmark: the bookmark of the context.
            value: the value up to which it moves; None for the greatest one of a record.
        """
        if self.is_coarse:
            return False
        if value is None:
            bookmark.complete()
        else:
            bookmark.complete_before(value)
        return True

    def end(self, bookmark: Bookmark) -> None:
        """Take notice that all records of a context were read."""
        if self._keys is None:
            self._complete(bookmark)

    def finish(self, parent_state: Raw | None = None) -> None:
        """Take notice that all records of the stream were read.

        Args:
            parent_state: the state of the parent up to which they were; None to keep the one of the state.
        """
        self._parent_state = parent_state
        for bookmark in [*self._open.values(), *([self._whole] if self._whole else [])]:
            self._complete(bookmark)

    def encode(self, *, with_progress: bool = True) -> Raw:
        """Return the state as JSON; with the progress so far, which no sync resumes from."""
        with self._lock:
            opened = list(self._open.items())
        entry = {
            of_context: encode(bookmark.entry(with_progress=with_progress))
            for of_context, bookmark in opened
        }
        whole = (
            self._whole.entry(with_progress=with_progress)
            if self._whole
            else remove_progress(self._others)
        )
        if self._parent_state is not None:
            whole[PARENT_STATE] = self._parent_state
        if not self._entries and not entry:
            return Raw(encode(whole))
        inner = encode(whole)[1:-1]
        entries = b",".join({**self._entries, **entry}.values())
        return Raw(b'{%b%b"partitions":[%b]}' % (inner, b"," if inner else b"", entries))

    def _bookmark(
        self, saved: Mapping[str, Any], context: Context | None, of_context: bytes = b""
    ) -> Bookmark:
        return Bookmark(
            self._key,
            saved,
            self._rules,
            context=context,
            of_context=of_context,
            signpost=self._signpost(context),
        )

    def _coarse(self, context: Context) -> Context:
        """Return the part of a context that tells apart the bookmarks."""
        if self._keys is None:
            return context
        return {name: context[name] for name in self._keys if name in context}

    def _is_before(self, entry: Mapping[str, Any], saved: bytes) -> bool:
        """Return whether an entry has an earlier bookmark than another one of the same context."""
        first, other = (
            read_saved_value(self._key, entry_value)
            for entry_value in (entry, msgspec.json.decode(saved))
        )
        return first is None or (other is not None and self._key.is_larger(other, first))

    def _complete(self, bookmark: Bookmark) -> None:
        bookmark.complete()
        if bookmark.context is not None:
            with self._lock:
                self._open.pop(bookmark.of_context, None)
            self._keep(bookmark.of_context, encode(bookmark.entry()))

    def _keep(self, of_context: bytes, entry: bytes) -> None:
        self._size += len(entry) - len(self._entries.get(of_context, b""))
        self._entries[of_context] = entry


def _read_partitions(saved: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = saved.get(PARTITIONS) or []
    is_list = isinstance(entries, list)
    if not is_list or not all(
        isinstance(e, dict) and isinstance(e.get(CONTEXT), dict) for e in entries
    ):
        raise ConfigError(
            "the `partitions` of the state are not a list of objects with a `context`",
            guidance="correct the state, or reset it to read the stream from the beginning",
        )
    return entries


def _warnings(key: ReplicationKey, saved: Mapping[str, Any]) -> Iterator[str]:
    entries = [saved, *_read_partitions(saved)]
    others = {str(e[REPLICATION_KEY]) for e in entries if e.get(REPLICATION_KEY)} - {key.field}
    if others:
        yield (
            f"the state has bookmarks of {', '.join(map(repr, sorted(others)))}, but the replication key is "
            f"{key.field!r}: they have no effect"
        )
    allowed = OF_ONE_SYNC | {PARTITIONS, REPLICATION_KEY, PARENT_STATE}
    if saved and not allowed & set(saved) and read_saved_value(key, saved) is None:
        yield (
            f"the state has no bookmark, but {', '.join(map(repr, saved))}: it is of another source or "
            "version, and the stream is read from its beginning; `load_state` can translate it"
        )
