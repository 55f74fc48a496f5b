"""The erasure of rows from all that a stream has in the lake: `elt erase`.

Called by `orchestration.erasing`. What is selected, and how it is taken out of files, is in `erased_rows`.

An erasure has three steps. It *builds* new files without the rows, in the table, its history and its dead
letter, and in the hidden files of each writer. It *commits* them: a commit for each writer of each table,
which keeps the state and the contents' name, so that companions belong to their table as before. And it
*cleans up*: it removes every file that the present versions do not need, the documents that no row names any
more, and the older entries of the logs, whose bounds are values.

Why no row of a sync is lost, and no row comes back:

- Each commit of an erasure takes the next sequence of a writer and says `elt.erasure`. So every sync and
  every compaction that began before it is refused, whatever it has written (`delta.commits`); and if a sync
  has committed first, the erasure is built again.
- Only files that existed before the commits are removed. Whoever was about to commit one of them is refused;
  what a later sync writes is not looked at.
- A refused sync starts again from the state that the erasure has kept.

What a kill leaves, so that the same command finishes it:

- ROWS_TAKEN_OUT: new files that no log names, and copies of the rows in hidden files. The next run lists them
  with all others, and removes them in its clean-up.
- KEYS_SUPPRESSED: keys whose rows are still there. Their new records are not stored any more.
- Between two commits, and ROWS_ERASED: some of the tables are erased, others are not. A condition may find a
  key no more, because the row that met it is gone. So the keys are kept, beside the record of the erasure,
  from before the first commit until after the last one (`write.erasures.UNFINISHED`), and the next erasure of
  the stream takes the rows of these keys too.
- OLD_FILES_REMOVED, LOG_CUT: tables without the rows that have older versions. The next run cleans up all
  tables, whether it has found a row or not.
- FILE_UNNEEDED: between two removals, which the next run goes on with.

Tests: `tests/lake/test_erasure.py::test_an_erasure_survives_a_kill_at_any_point`, and in any history of a
table `tests/lake/test_erasure_model.py`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from elt_assets.errors import ConcurrentSync, ConfigError, SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.admin.erased_rows import (
    ROW_IDS,
    Matches,
    RejectedRows,
    Selection,
    TakenOut,
    find_matches,
    take_rejected,
    take_rows,
)
from elt_assets.lake.admin.maintenance import find_unnamed_documents, list_files
from elt_assets.lake.delta.commit_metadata import ERASURE, CommitMetadata
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.delta.log import file_changes
from elt_assets.lake.delta.opening import find_retyped, is_table
from elt_assets.lake.delta.outcome import NOTHING_PUBLISHED, Superseded
from elt_assets.lake.delta.storage import (
    ALLOW_REMOVAL,
    DOCUMENTS,
    HIDDEN,
    VISIBLE,
    DataFile,
    TableChange,
    TableStorage,
)
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.foreign_types import conform_columns
from elt_assets.lake.worker.parquet import read_all_keys
from elt_assets.lake.worker.suppression import hash_keys
from elt_assets.lake.write.companions import DEAD_LETTER, HISTORY, SUFFIXES, StreamTables
from elt_assets.lake.write.erasures import (
    SuppressedKeys,
    keep_unfinished,
    list_unfinished,
    remove_unfinished,
    suppress,
    write_record,
)
from elt_assets.lake.write.sync_columns import key_of
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.storage.location import Location

MAX_ATTEMPTS = 5
"""Maximum number of times that an erasure is built: again if a sync has committed first."""


@dataclass(frozen=True)
class Counts:
    """What an erasure takes out, or has taken out, of each place."""

    rows: int = 0  # of the table
    of: int = 0  # all rows of the table
    history: int = 0
    rejected: int = 0
    hidden: int = 0  # tombstones, and rows of an unfinished refresh
    # Rejected records that may be meant: a field that decides has a value that is not of its type.
    unclear: int = 0
    rewritten: int = 0  # files
    files: int = 0  # files of older versions, and those that no version names
    log_entries: int = 0
    documents: int = 0

    @property
    def found(self) -> int:
        """The number of selected rows in all places."""
        return self.rows + self.history + self.rejected + self.hidden

    def __add__(self, more: Counts) -> Counts:
        names = self.__dataclass_fields__
        return Counts(**{name: getattr(self, name) + getattr(more, name) for name in names})


@dataclass
class _Part:
    """One table of a stream, as each of its writers has it."""

    kind: str | None
    writers: list[Table]
    built: list[TakenOut] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return self.writers[0]


@dataclass
class KeyLog:
    """What is kept of erased keys: salted hashes in the log of erasures; and those that are suppressed."""

    salt: bytes
    fingerprint: str  # of the salt
    suppresses: bool = False
    hashes: set[str] = field(default_factory=set)
    # Those of keys that an interrupted erasure has left to this one.
    finished: set[str] = field(default_factory=set)
    # The values of the keys as texts; they are written nowhere.
    keys: set[tuple[str | None, ...]] = field(default_factory=set)

    def add(self, keys: Iterable[Sequence[Any]], *, is_own: bool) -> None:
        for key in keys:
            self.keys.add(tuple(None if value is None else str(value) for value in key))
            (self.hashes if is_own else self.finished).update(hash_keys(self.salt, [key]))

    @property
    def suppressed(self) -> int:
        """The number of keys of which no record is stored from now on."""
        return len(self.hashes) if self.suppresses else 0


class Erasure:
    """An erasure of rows of one stream; a context manager that removes the files it has not committed.

    Args:
        place: the root of the stream's table.
        writer: the stream's id in transactions.
        stream: the stream as its table stores it.
        id: identifies the erasure.
    """

    def __init__(
        self,
        spark: SparkProvider,
        place: Location,
        writer: str,
        stream: ConfiguredStream,
        id: str,  # noqa: A002
    ):
        self._spark, self._place, self._writer = spark, place, writer
        self._stream, self.id = stream, id
        self._matches: Matches | None = None
        self._unfinished: list[DataFile] = []
        self._takes_unfinished = True  # until a round has taken the rows of these keys
        self._has_committed = False
        self._rejected = RejectedRows(0, 0, TableChange(), {})
        self._parts = self._open()

    @property
    def main(self) -> Table:
        """The stream's table."""
        return self._parts[0].table

    @property
    def key(self) -> list[list[str]]:
        """The stream's key as columns of its table; empty if it has none."""
        return key_of(self._stream, self.main) if self._stream.key else []

    def _open(self) -> list[_Part]:
        """Return the tables that exist, the stream's own first.

        Raises:
            ConfigError: there is none.
        """
        parts = [
            _open_part(kind, self._place.add_suffix(SUFFIXES.get(kind or "", "")), self._writer)
            for kind in (None, HISTORY, DEAD_LETTER)
        ]
        present = [part for part in parts if part is not None]
        if not present or present[0].kind is not None:
            raise ConfigError(
                f"there is no table {self._place} with rows",
                guidance="correct the name of the stream, or sync it first",
            )
        return present

    def roll_back(self) -> None:
        """Undo what killed runs left in companions: it would come back, or be in the way."""
        history = is_table(self._place.add_suffix(SUFFIXES[HISTORY]))
        for table in self._parts[0].writers:
            tables = StreamTables(self._place, table.app_id, history=history)
            tables.roll_back_companions(self.id)
        self._parts = self._open()

    def build(self, selection: Selection) -> Counts:
        """Write the new files, and return what they lack.

        Raises:
            ConfigError: as `find_matches`; or hidden files have columns of an older version.
        """
        self.discard()
        for part in self._parts:
            for table in part.writers:
                table.refuse_unwritable()
                _refuse_older_columns(table)
                _refuse_other_columns(table)
        spark, dead = self._spark.get(), self._find(DEAD_LETTER)
        typed = [part for part in self._parts if part is not dead]
        tables = [table for part in typed for table in part.writers]
        letter = None if dead is None else dead.table
        self._matches = matches = find_matches(spark, tables, letter, selection)
        takes_unfinished = bool(selection.key) and self._takes_unfinished
        self._unfinished = list_unfinished(self.main.storage) if takes_unfinished else []
        keys = Batch(self.main, [*matches.keys.files, *self._unfinished])
        batch, key = (keys, selection.key) if keys.files else (matches.ids, ROW_IDS)
        for part in typed:
            part.built = take_rows(spark, part.writers, batch, key)
        if letter is not None and dead is not None:
            self._rejected = rejected = take_rejected(
                spark, letter, self.main.schema, selection, keys
            )
            dead.built = [
                TakenOut(table, TableChange() if n else rejected.change, table.metadata, 0)
                for n, table in enumerate(dead.writers)
            ]
            self._rename_rejected(letter, rejected)
        reach(Failpoint.ROWS_TAKEN_OUT)
        return self._count()

    def log_keys(self, log: KeyLog) -> None:
        """Add the keys whose rows were taken out to those that are logged."""
        storage, schema = self.main.storage, self.main.arrow_schema()
        own = () if self._matches is None else self._matches.keys.files
        for files, is_own in ((own, True), (self._unfinished, False)):
            if files:
                paths = [storage.locate(file) for file in files]
                columns = read_all_keys(storage.system, paths, self.key, schema)
                keys = zip(*(column.to_pylist() for column in columns), strict=True)
                log.add(keys, is_own=is_own)

    def suppress_keys(self, log: KeyLog) -> None:
        """Keep the keys from being stored again, if asked to.

        That comes before the commits: what is erased must not arrive again.
        """
        storage = self.main.storage
        if log.suppresses and log.hashes:
            keys_to_suppress = SuppressedKeys(self.key, log.fingerprint, frozenset(log.hashes))
            suppress(storage, self.id, keys_to_suppress)
            reach(Failpoint.KEYS_SUPPRESSED)

    def record(self, log: KeyLog, counts: Counts, *, complete: bool) -> None:
        """Write what the erasure has done so far to the log of erasures: no values of rows."""
        values = {
            "id": self.id,
            "complete": complete,
            "counts": {name: value for name, value in asdict(counts).items() if name != "of"},
            "key": self.key,
            "salt": log.fingerprint,
            "keys": sorted(log.hashes | log.finished),
            "suppressed": log.suppresses,
        }
        write_record(self.main.storage, self.id, values)

    @property
    def writers(self) -> list[Table]:
        """The stream's table, as each of its writers has it."""
        return self._parts[0].writers

    @property
    def has_more(self) -> bool:
        """Return whether rows without a key are selected beside those with one: they need another round."""
        matches = self._matches
        has_keys = matches is not None and bool(matches.keys.files or self._unfinished)
        return has_keys and matches is not None and bool(matches.ids.files)

    def count_rest(self) -> Counts:
        """Return what the next round takes, as far as it is known: rows without a key."""
        if not self.has_more or self._matches is None:
            return Counts()
        rest = Counts()
        for part in (part for part in self._parts if part.kind != DEAD_LETTER):
            built = take_rows(self._spark.get(), part.writers, self._matches.ids, ROW_IDS)
            for taken in built:
                taken.table.storage.discard(taken.written)
            rows, hidden = (
                sum(taken.rows for taken in built),
                sum(taken.hidden_rows for taken in built),
            )
            rest += Counts(hidden=hidden, **{"rows" if part.kind is None else "history": rows})
        return rest

    def _rename_rejected(self, letter: Table, rejected: RejectedRows) -> None:
        """Name the new files of rejected records in the unfinished refreshes that have the former ones."""
        part = self._parts[0]
        for number, taken in enumerate(part.built):
            refresh = taken.metadata.refresh
            if refresh is not None and refresh.dead:
                dead = tuple(
                    new
                    for file in _follow_rejected(letter, refresh.dead)
                    for new in rejected.replaced.get(file.path, [file])
                )
                metadata = replace(taken.metadata, refresh=replace(refresh, dead=dead))
                part.built[number] = replace(taken, metadata=metadata)

    def _find(self, kind: str | None) -> _Part | None:
        return next((part for part in self._parts if part.kind == kind), None)

    def _count(self) -> Counts:
        rows = {part.kind: sum(taken.rows for taken in part.built) for part in self._parts}
        built = [taken for part in self._parts for taken in part.built]
        return Counts(
            rows=rows[None],
            of=self.main.records,
            history=rows.get(HISTORY, 0),
            rejected=self._rejected.rows,
            unclear=self._rejected.unclear,
            hidden=sum(taken.hidden_rows for taken in built),
            rewritten=sum(len(taken.change.remove) for taken in built),
        )

    def count_past(self) -> Counts:
        """Return what the clean-up removes besides: older versions."""
        files = entries = 0
        for part in self._parts:
            table = part.table
            needed = table.find_needed_now()
            built = {file.path for taken in part.built for file in taken.written}
            keys = self._matches
            if keys is not None:
                built |= {file.path for batch in (keys.keys, keys.ids) for file in batch.files}
            files += sum(path not in needed and path not in built for path in _list(table.storage))
            entries += sum(
                info.base_name.endswith(".json") for info in table.storage.list_folder(LOG)
            )
        return Counts(files=files, log_entries=entries)

    def commit(self) -> list[Listing]:
        """Publish what was built, for each writer, the stream's own table last.

        Returns:
            the files that existed before, for `clean_up`.

        Raises:
            ConcurrentSync: a sync has committed first; what was published stays, and is complete for its
                table.
            Superseded: as ConcurrentSync.
        """
        listed = [
            Listing(
                part.table.storage,
                frozenset(_list(part.table.storage)),
                frozenset(_list_documents(part.table.storage)),
            )
            for part in self._parts
        ]
        keys = () if self._matches is None else self._matches.keys.files
        copies = keep_unfinished(self.main.storage, keys)
        for part in reversed(self._parts):
            while part.built:
                taken = part.built.pop(0)  # its files may be those of the table from now on
                try:
                    _publish(taken, self.id)
                except NOTHING_PUBLISHED:
                    if not self._has_committed:
                        self.main.storage.discard(copies)
                    raise
                self._has_committed = True
            reach(Failpoint.ROWS_ERASED)
        self._takes_unfinished = False
        self._discard_matches()
        return listed

    def publish(self, publish: Callable[[Table, str | None], bool]) -> None:
        """Have each table published without the rows.

        The first publication says which files are removed, with their bounds. The next one does not, so a
        commit without a change is published too.
        """
        for part in self._parts:
            if publish(part.table, part.kind):
                table = Table(part.table.storage.location, part.table.app_id)
                _publish(TakenOut(table, TableChange(), table.metadata, 0), self.id)
                publish(part.table, part.kind)
        self._parts = self._open()

    def discard(self) -> None:
        """Remove the files that were built and not committed."""
        for part in self._parts:
            for taken in part.built:
                taken.table.storage.discard(taken.written)
            part.built = []
        self._discard_matches()

    def _discard_matches(self) -> None:
        if self._matches is not None:
            self._matches.discard()
        self._matches = None

    def reopen(self) -> None:
        """Open the tables again, after another run has committed."""
        self.discard()
        self.roll_back()


@dataclass(frozen=True)
class Listing:
    """The files below the root of a table before an erasure: those of rows, and documents."""

    storage: TableStorage
    files: frozenset[str]
    documents: frozenset[str]


def erase(
    erasure: Erasure,
    selection: Selection,
    log: KeyLog,
    check: Callable[[Counts], object] = lambda _: None,
    publish: Callable[[Table, str | None], bool] = lambda _, __: False,
) -> Counts:
    """Build and commit an erasure, and remove all that older versions have.

    Args:
        check: is called with what is about to be committed; it may raise an error instead.
        publish: is called for each table and its kind of companion before files are removed, which something
            else may name; it returns whether something else does. After an error no file is removed.

    Raises:
        ConcurrentSync: syncs have committed first each time; run it again.
        ConfigError: as `Erasure.build`.
        SystemFailure: a file could not be removed; run it again.
    """
    try:
        counts, listed = _erase_rows(erasure, selection, log, check)
    finally:
        erasure.discard()
    erasure.record(log, counts, complete=False)
    erasure.publish(publish)
    counts += clean_up(erasure, listed)
    erasure.record(log, counts, complete=True)
    return counts


def _erase_rows(
    erasure: Erasure, selection: Selection, log: KeyLog, check: Callable[[Counts], object]
) -> tuple[Counts, list[Listing]]:
    counts, listed = Counts(), list[Listing]()
    erasure.roll_back()
    for attempt in range(MAX_ATTEMPTS):
        try:
            built = erasure.build(selection)
            has_more = erasure.has_more
            erasure.log_keys(log)
            if not listed:  # else this is a further round of what was looked at
                check(built + erasure.count_rest())
            erasure.suppress_keys(log)
            first = erasure.commit()
        except (ConcurrentSync, Superseded):
            if attempt == MAX_ATTEMPTS - 1:
                raise
            erasure.reopen()
            continue
        counts = replace(counts + built, of=counts.of or built.of)
        listed += first
        erasure.reopen()
        if not has_more:
            remove_unfinished(erasure.main.storage)
            return counts, listed
    raise ConcurrentSync(
        "the rows could not be erased: syncs of the stream committed first each time",
        guidance="run it again when no sync of the stream is running",
    )


def _follow_rejected(letter: Table, files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that have the rejected records of some files now.

    An erasure that was interrupted after its commit to the dead letter has written them again, and no
    refresh names the new ones yet.
    """
    present = {file.path: file for file in letter.files}
    files_by_path = {file.path: file for file in files} | present
    paths = {file.path for file in files}
    if paths <= present.keys():
        return list(files)
    for entry in reversed(letter.commits_since(-1)):
        if ERASURE in entry:
            changes = file_changes(letter.storage, int(entry["version"]))
            if paths & changes.removed.keys():
                paths = (paths - changes.removed.keys()) | changes.added
    return [files_by_path[path] for path in sorted(paths & files_by_path.keys())]


def _publish(taken: TakenOut, erasure: str) -> None:
    """Commit what was taken out for one writer; its state stays.

    Raises:
        ConcurrentSync: the writer has committed since, or its table was restored.
        Superseded: files were replaced since.
    """
    table, before = taken.table, taken.table.metadata
    files = taken.written
    try:
        table.reopen()
        if _identify(table.metadata) != _identify(before):
            raise ConcurrentSync(f"a sync has committed to the table {table.uri} first")
        after = replace(
            taken.metadata.begin_next(erasure),
            same_as=before.stands_for or "",
            columns_at=None,
            restored=False,
            erasure=erasure,
        )
        table.commit(taken.change, after, 0)
    except NOTHING_PUBLISHED:
        table.storage.discard(files)
        raise


def _identify(metadata: CommitMetadata) -> tuple[int, str | None, bool]:
    return metadata.sequence, metadata.commit, metadata.restored


def clean_up(erasure: Erasure, listed: Sequence[Listing]) -> Counts:
    """Remove the files that were there before and that no present version needs; and older entries of logs.

    Raises:
        SystemFailure: a file could not be removed.
    """
    counts = Counts()
    for listing in listed:
        table = Table(listing.storage.location, erasure.main.app_id)
        needed = table.find_needed_now()
        stale = sorted(listing.files - needed)
        _remove(listing.storage, stale)
        reach(Failpoint.OLD_FILES_REMOVED)
        entries = table.forget_versions()
        reach(Failpoint.LOG_CUT)
        counts += Counts(files=len(stale), log_entries=entries)
    main = listed[0]
    documents = find_unnamed_documents(main.storage, main.documents)
    _remove(main.storage, documents)
    return counts + Counts(documents=len(documents))


def _remove(storage: TableStorage, paths: Sequence[str]) -> None:
    """Remove files.

    Raises:
        SystemFailure: some could not be removed.
    """
    if storage.discard(DataFile(path, 0, 0) for path in paths) == len(paths):
        return
    left = [path for path in paths if storage.exists(path)]
    if left:
        raise SystemFailure(
            f"{len(left)} files with erased rows could not be removed from {storage.uri}, such as {left[0]}",
            guidance=f"{ALLOW_REMOVAL}, and run the command again: it goes on",
        )


def _open_part(kind: str | None, place: Location, writer: str) -> _Part | None:
    """Return a table as each of its writers has it; None if there is none, or no commit yet."""
    if not is_table(place):
        return None
    table = Table(place, writer)
    # A writer that a restore left without a commit gets one: its others go with the older entries of the log.
    writers = [*table.writers, *table.undone_writers]
    return _Part(kind, [Table(place, app) for app in writers]) if writers else None


def _refuse_older_columns(table: Table) -> None:
    """Refuse a table whose hidden files have the types of an older version: it is about to be forgotten.

    Raises:
        ConfigError: says what to do.
    """
    metadata = table.metadata
    if not metadata.hidden or metadata.columns_at is None:
        return
    if find_retyped(table.schema, table.schema_at(metadata.columns_at)):
        raise ConfigError(
            f"hidden files of the table {table.uri} have columns of its version {metadata.columns_at}, which "
            "an erasure would remove",
            guidance="sync the stream (or the partition) once, which converts them; then run this again",
        )


def _refuse_other_columns(table: Table) -> None:
    """Refuse a table with a refresh that is not complete and will replace its columns by others.

    Raises:
        ConfigError: says what to do.
    """
    refresh, schema = table.metadata.refresh, table.arrow_schema()
    for file in () if refresh is None else (*refresh.files, *refresh.tombstones):
        with table.storage.open_path(file.path) as source:
            columns = pq.read_schema(source)
        try:
            conform_columns(pa.RecordBatch.from_pylist([], columns), schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(
                f"a refresh of the table {table.uri} is not complete, and gives it other columns: {error}",
                guidance="sync the stream (or the partition) until it is; then run this again",
            ) from error


def _list(storage: TableStorage) -> Iterator[str]:
    """Yield the files below a table's root that have rows or states, by their paths.

    What else is there belongs to other programs: other folders with an underscore, metadata of a catalog.
    """
    own = (f"{VISIBLE}/", f"{HIDDEN}/", "_change_data/")
    for path, _ in list_files(storage):
        if path.startswith(own) or (path.endswith(".parquet") and not path.startswith("_")):
            yield path


def _list_documents(storage: TableStorage) -> Iterator[str]:
    return (path for path, _ in list_files(storage, DOCUMENTS))
