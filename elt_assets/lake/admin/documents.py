"""Documents below a table: opened for a reader, and removed when no row names them any more.

A document stays if any Parquet file of the stream's table or of its companions names it, whether or not a
version has that file: so a document is removed only after vacuum has removed the last file with its rows.
That includes rows that readers do not see yet, and rejected records, which can be replayed. A document that
is younger than the retention stays too, because the row that names it may not be written yet.

A kill while documents are removed leaves some of them; the next maintenance removes those.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.files import DOCUMENTS, DataFile, TableStorage
from elt_assets.lake.delta.log import FOLDER as LOG
from elt_assets.lake.write.stream_tables import SUFFIXES, StreamTables
from elt_assets.protocol.message_rules import FIELD
from elt_assets.storage.location import Location

_REJECTED = "record"
"""The column of a dead letter with a record as JSON."""
_PATH = re.compile(rf"{DOCUMENTS}/[0-9a-f]{{32}}/\d+-[A-Za-z0-9._-]+")
_READERS = 8


def find_document(tables: Iterable[Location], path: str) -> BinaryIO | None:
    """Open a document for reading, of the first of some tables that has it; None if none has it.

    Args:
        path: as rows name it.

    Raises:
        ConfigError: no document has such a path.
    """
    if not _PATH.fullmatch(path):
        raise ConfigError(
            f"{path!r} is not the path of a document",
            guidance="give the `file_reference` of a row, or its `path`",
        )
    for table in tables:
        with contextlib.suppress(FileNotFoundError):
            document: BinaryIO = TableStorage(table).open_path(path)
            return document
    return None


def remove_unnamed_documents(tables: StreamTables, retention: dt.timedelta) -> int:
    """Remove a stream's documents that are older than the retention, and that no file of its tables names.

    Returns:
        the number of removed documents.

    Raises:
        pa.ArrowInvalid: a file that is older than the retention cannot be read; nothing was removed.
    """
    storage, oldest = tables.main.storage, dt.datetime.now(dt.timezone.utc) - retention
    unnamed = {path for path, changed in _list(storage, DOCUMENTS) if changed < oldest}
    if not unnamed:
        return 0
    places = [storage.location, *map(storage.location.add_suffix, SUFFIXES.values())]
    files = [
        (part, path, changed < oldest)
        for part in map(TableStorage, places)
        for path, changed in _list_parquet(part)
    ]
    with ThreadPoolExecutor(_READERS) as pool:
        for named in pool.map(lambda file: _read_named(*file), files):
            unnamed -= named
    return storage.discard(DataFile(path, 0, 0) for path in sorted(unnamed))


def _list_parquet(storage: TableStorage) -> Iterator[tuple[str, dt.datetime]]:
    for path, changed in _list(storage):
        if path.endswith(".parquet") and not path.startswith((f"{LOG}/", f"{DOCUMENTS}/")):
            yield path, changed


def _list(storage: TableStorage, folder: str | None = None) -> Iterator[tuple[str, dt.datetime]]:
    """Yield the files of a table: the path of each below the root, and the time of its last change."""
    base = storage.root if folder is None else f"{storage.root}/{folder}"
    selector = pafs.FileSelector(base, allow_not_found=True, recursive=True)
    for info in storage.system.get_file_info(selector):
        if info.type == pafs.FileType.File:
            yield info.path[len(storage.root) + 1 :], info.mtime


def _read_named(storage: TableStorage, path: str, is_old: bool) -> set[str]:
    """Return the documents that the rows of a file name.

    None if the file was removed meanwhile, or is incomplete: then a run is writing it or was killed, and the
    documents that only it names are as young as it is.
    """
    try:
        with storage.open_path(path) as source:
            file = pq.ParquetFile(source)
            column = _find_column(file.schema_arrow)
            if column is None:
                return set()
            named: set[str] = set()
            for batch in file.iter_batches(columns=[column]):
                named |= _find_paths(batch.column(0))
            return named
    except FileNotFoundError:
        return set()
    except pa.ArrowInvalid:
        if is_old:
            raise
        return set()


def _find_column(schema: pa.Schema) -> str | None:
    """Return the column with the places of documents, or with records that have such; None without one."""
    for field in schema:
        if field.name.lower() == FIELD:
            return f"{field.name}.path" if pa.types.is_struct(field.type) else str(field.name)
    return _REJECTED if _REJECTED in schema.names and "reason" in schema.names else None


def _find_paths(values: pa.Array) -> set[str]:
    if pa.types.is_struct(values.type):
        return set(filter(None, pc.struct_field(values, "path").unique().to_pylist()))
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return set()
    texts = values.filter(pc.fill_null(pc.match_substring(values, f"{DOCUMENTS}/"), False))
    return {path for text in texts.to_pylist() for path in _PATH.findall(text)}
