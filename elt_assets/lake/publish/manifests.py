"""Writing of an Iceberg snapshot: its manifests, which list files, and the list of these manifests.

`iceberg` commits the snapshot that is written here, and asks which files one is made of.

pyiceberg can write a snapshot too, but it writes all added files into one manifest, and to remove one file
it decodes every entry of every manifest, twice: 7 to 13 seconds of 100,000 files, and 450 MB. So this is
written over its manifests and blocks:

1. A manifest has at most `MAX_ENTRIES` entries, in one block.
2. A manifest that has none of the removed files is kept as it is. Whether it has one is found by the file's
   path in its decompressed block, without decoding entries. Only the manifests that have one are rewritten.
3. The removed files are in a manifest of their own, which the next snapshot does not name: so the bounds of
   their rows do not stay (`lake.admin.erasure`). One that has both is written again.
4. Manifests with few files are combined when there are `MAX_SMALL` of them: each commit adds one.

A removed file that the table does not have is an error (`UnknownFiles`): then the table is not what the log
says it is, and the caller compares both lists of files.
Test: `tests/lake/publishing/test_publish_files.py`
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from types import TracebackType
from typing import Any, TypeVar

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)

MAX_ENTRIES = 1_000
"""Maximum number of files in a manifest."""
MAX_SMALL = 100
"""Manifests that are not half full, from which they are combined."""
_MAX_SEARCHED = 100
"""Removed files up to which manifests are searched for their paths; with more, all are decoded."""
_COMPRESSION: Any = "gzip"
T = TypeVar("T")


class UnknownFiles(Exception):
    """The table does not have files that are to be removed from it."""


@dataclass(frozen=True)
class SnapshotChange:
    """What a new snapshot has beside the files of the one before it, and what it has no more."""

    added: Iterable[DataFile]
    removed: Collection[str]  # their URIs
    properties: Mapping[str, str] = field(default_factory=dict)  # of its summary


def write_snapshot(
    table: Table, schema: Schema, spec: PartitionSpec, change: SnapshotChange
) -> Snapshot:
    """Write the manifests of a new snapshot and their list. The table does not name it yet.

    Args:
        schema: the schema of the table after the commit.
        spec: the same, of its partition fields; new files have it.

    Raises:
        UnknownFiles: the table does not have a file that is to be removed.
    """
    writer = _SnapshotWriter(table, schema, spec)
    unchanged = writer.remove(change.removed)
    added = writer.add(change.added)
    return writer.finish([*added, *writer.combine(unchanged)], change.properties)


def list_live_files(table: Table) -> set[str]:
    """Return the URIs of all files of a table's current snapshot."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return set()
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


class _SnapshotWriter:
    def __init__(self, table: Table, schema: Schema, spec: PartitionSpec):
        self._io, self._metadata = table.io, table.metadata
        self._provider = table.location_provider()
        self._schema, self._spec = schema, spec
        self._specs = {**table.metadata.specs(), spec.spec_id: spec}
        self._parent = table.current_snapshot()
        self._id = table.metadata.new_snapshot_id()
        self._table = table.metadata.table_uuid
        self._figures = UpdateMetrics()
        self._numbers = iter(range(1_000_000))
        self._has_removed = False

    def remove(self, removed: Collection[str]) -> list[ManifestFile]:
        """Return the manifests of the files that stay, and of those that are removed."""
        manifests, missing, gone = list[ManifestFile](), set(removed), list[ManifestEntry]()
        self._has_removed = bool(removed)
        present = [] if self._parent is None else self._parent.manifests(self._io)
        for manifest in present:
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue  # only entries of files that an earlier snapshot removed
            is_mixed = bool(manifest.deleted_files_count)
            if not is_mixed and not (missing and _may_have(self._io, manifest, missing)):
                manifests.append(manifest)
                continue
            entries = manifest.fetch_manifest_entry(self._io)
            paths = {entry.data_file.file_path for entry in entries} & missing
            if not is_mixed and not paths:
                manifests.append(manifest)
                continue
            missing -= paths
            rest = [entry for entry in entries if entry.data_file.file_path not in paths]
            manifests += self._write_entries(rest, manifest.partition_spec_id)
            former = [entry for entry in entries if entry.data_file.file_path in paths]
            for entry in former:
                self._figures.remove_file(entry.data_file)
            # A former partition field may have lost its column, without which its values have no type.
            gone += former if manifest.partition_spec_id == self._spec.spec_id else []
        if missing:
            raise UnknownFiles(f"{len(missing)} files, such as {min(missing)}")
        return [*manifests, *self._write_entries(gone, self._spec.spec_id, is_gone=True)]

    def _write_entries(
        self, entries: Iterable[ManifestEntry], spec: int, *, is_gone: bool = False
    ) -> list[ManifestFile]:
        """Write entries that the table had to new manifests: as those of files that stay, or are removed."""
        manifests = []
        for chunk in _chunks(entries, MAX_ENTRIES):
            with self._open(self._specs[spec]) as writer:
                for entry in chunk:
                    (writer.delete if is_gone else writer.existing)(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def add(self, files: Iterable[DataFile]) -> list[ManifestFile]:
        """Write manifests of new files."""
        manifests = []
        for chunk in _chunks(files, MAX_ENTRIES):
            with self._open(self._spec) as writer:
                for file in chunk:
                    self._figures.add_file(file)
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                    writer.add(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def combine(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return manifests, of which many small ones are combined."""
        small = [m for m in manifests if self._is_small(m)]
        if len(small) < MAX_SMALL:
            return list(manifests)
        entries = chain.from_iterable(m.fetch_manifest_entry(self._io) for m in small)
        combined = self._write_entries(entries, self._spec.spec_id)
        return [*combined, *(m for m in manifests if m not in small)]

    def _is_small(self, manifest: ManifestFile) -> bool:
        count = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        has_new = manifest.added_snapshot_id == self._id  # also entries of removed files
        is_current = manifest.partition_spec_id == self._spec.spec_id
        return count < MAX_ENTRIES // 2 and is_current and not has_new

    def finish(self, manifests: Sequence[ManifestFile], properties: Mapping[str, str]) -> Snapshot:
        """Write the list of the manifests, and return the snapshot that it makes."""
        parent, number = self._parent, self._metadata.next_sequence_number()
        path = self._new_path(f"snap-{self._id}-0-{self._table}.avro")
        with write_manifest_list(
            format_version=2,
            output_file=self._io.new_output(path),
            snapshot_id=self._id,
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=number,
            avro_compression=_COMPRESSION,
        ) as writer:
            writer.add_manifests(list(manifests))
        operation = Operation.OVERWRITE if self._has_removed else Operation.APPEND
        summary = update_snapshot_summaries(
            Summary(operation, **self._figures.to_dict(), **properties),
            None if parent is None else parent.summary,
        )
        return Snapshot.model_validate(
            {
                "snapshot-id": self._id,
                "parent-snapshot-id": None if parent is None else parent.snapshot_id,
                "sequence-number": number,
                # Readers order snapshots by time, also where the clocks of two machines differ.
                "timestamp-ms": max(int(time.time() * 1000), self._metadata.last_updated_ms + 1),
                "manifest-list": path,
                "summary": summary,
                "schema-id": self._schema.schema_id,
            }
        )

    def _open(self, spec: PartitionSpec) -> _ManifestWriter:
        path = self._new_path(f"{self._id}-m{next(self._numbers)}-{self._table}.avro")
        return _ManifestWriter(
            spec, self._schema, self._io.new_output(path), self._id, _COMPRESSION
        )

    def _new_path(self, name: str) -> str:
        return self._provider.new_metadata_location(name)


class _ManifestWriter(ManifestWriterV2):
    """A writer whose file has one block of all entries. pyiceberg writes one for each: slow to read."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return _OneBlock(super().new_writer())


class _OneBlock(AvroOutputFile[ManifestEntry]):
    """An Avro file as another one is set up, to which all entries are written when it is closed."""

    def __init__(self, plain: AvroOutputFile[ManifestEntry]):
        vars(self).update(vars(plain))
        self._entries: list[ManifestEntry] = []

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._entries += objects

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        if exctype is None:
            super().write_block(self._entries)
        super().__exit__(exctype, excinst, exctb)


def _may_have(io: FileIO, manifest: ManifestFile, uris: Collection[str]) -> bool:
    """Return whether a manifest may have one of some files; True if there are too many to search for."""
    if len(uris) > _MAX_SEARCHED:
        return True
    names = [uri.encode() for uri in uris]
    with AvroFile[ManifestEntry](io.new_input(manifest.manifest_path)) as file:
        codec, decoder = file.header.compression_codec(), file.decoder
        while True:
            try:
                decoder.read_int()  # the number of entries
                block = decoder.read_bytes()
            except EOFError:
                return False
            text = block if codec is None else codec.decompress(block)
            if any(name in text for name in names):
                return True
            decoder.skip(len(file.header.sync))


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(islice(rest, size)):
        yield chunk
