"""Read the files of a Singer BATCH, one line for each record, for `singer_tap` and `target-elt`.

The file names come from the tap and are not trusted. Only plain files below the allowed folders are opened,
as `StagedFiles` does, and the size of a compressed file's content is limited.

Spec: Singer SDK, BATCH messages.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO
from urllib.parse import unquote_to_bytes, urlsplit

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.lines import ReadInto, blocks, split
from elt_assets.protocol.singer import Encoding
from elt_assets.storage.folders import make_private
from elt_assets.storage.staging import StagedFiles

MAX_EXPANSION_RATIO = 1_000
"""Maximum ratio of the expanded size of a compressed file to its size on disk.

JSON lines compress by a factor of ten; only a decompression bomb has a factor of a thousand.
"""
UNCHECKED_SIZE = 1 << 30
"""Expanded size, in bytes, up to which the ratio is not checked."""
_COMPRESSIONS = (None, "none", "gzip")


class BatchFiles:
    """Reads the files of a BATCH.

    Args:
        roots: the allowed folders, including their subfolders. A missing one is created. Create this object
            before the tap starts, and take the folders from no config that the tap may have changed.
        max_line: maximum number of bytes of a line.

    Raises:
        ConfigError: a folder cannot be created or opened.
    """

    def __init__(self, roots: Sequence[Path], max_line: int):
        self._max_line = max_line
        self._folders = [_open_root(root) for root in roots]

    def __call__(self, url: str, encoding: Encoding) -> Iterator[bytes]:
        """Yield the lines of one file as they are read. Memory does not grow with the size of the file.

        Args:
            url: `file:///path`, percent-encoded.

        Raises:
            ConfigError: the file is not on this machine, or in none of the folders; or its encoding is
                neither JSON lines nor JSON lines compressed with gzip.
            SystemFailure: as for `StagedFiles.open`; or the file is incomplete, expands beyond the limit, or
                has a line that is too long.
        """
        if encoding.format != "jsonl" or encoding.compression not in _COMPRESSIONS:
            compressed = f", {encoding.compression}" if encoding.compression else ""
            raise ConfigError(
                f"the tap sent a batch file of the unsupported encoding {encoding.format}{compressed}: {url}",
                guidance="set `batch_config.encoding` in the tap's config to "
                "`{format: jsonl, compression: gzip}`",
            )
        with self._open(_path(url)) as file:
            read = (
                _expand(file, url)
                if encoding.compression == "gzip"
                else lambda buffer, _: os.readv(file.fileno(), [buffer])
            )
            yield from split(blocks(read, self._max_line, f"the batch file {url}"))

    def _open(self, path: Path) -> BinaryIO:
        for folder in self._folders:
            if folder.has(str(path)):
                return folder.open(str(path))
        roots = ", ".join(str(folder.folder) for folder in self._folders)
        raise ConfigError(
            f"the tap wrote the batch file {path}, which is in none of the allowed folders",
            guidance=f"set `batch_config.storage.root` in the tap's config to one of: {roots}",
        )


def _open_root(root: Path) -> StagedFiles:
    try:
        make_private(root)
        return StagedFiles(root, "a BATCH of the tap")
    except OSError as error:
        raise ConfigError(
            f"the folder of batch files, {root}, cannot be opened: {error.strerror}",
            guidance="choose a folder that this user can read and write (`batch_config.storage.root` of the "
            "tap's config, `batch_roots` of the target's), or remove the setting",
        ) from None


def file_root(url: object) -> Path | None:
    """Return the local path that a `file://` URL names; None for any other value."""
    try:
        return _path(url) if isinstance(url, str) else None
    except ConfigError:
        return None


def _path(url: str) -> Path:
    parts = None
    try:
        parts = urlsplit(url)
        path = os.fsdecode(unquote_to_bytes(parts.path))
    except ValueError:  # a host with an unclosed bracket
        path = ""
    is_here = parts is not None and parts.scheme == "file" and parts.netloc in ("", "localhost")
    if not is_here or not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"the tap sent a batch file that is not on this machine: {url!r}",
            guidance="set `batch_config.storage.root` in the tap's config to a local folder's file:// URL",
        )
    return Path(path)


def _expand(file: IO[bytes], url: str) -> ReadInto:
    """Return a function that reads the content of a compressed file.

    It raises a SystemFailure if the file is damaged, or expands beyond the limit.
    """
    limit = max(UNCHECKED_SIZE, MAX_EXPANSION_RATIO * os.fstat(file.fileno()).st_size)
    size = 0
    expanded = gzip.GzipFile(fileobj=file)

    def read(buffer: memoryview, _: bool) -> int:
        nonlocal size
        try:
            count = expanded.readinto(buffer)
        except (EOFError, OSError, zlib.error) as error:
            raise SystemFailure(
                f"the batch file {url} is incomplete or damaged: {error}",
                guidance="this is a defect of the tap, or the file was cut off; "
                "the sync stops so that no data is lost",
            ) from error
        size += count
        if size > limit:
            raise SystemFailure(
                f"the batch file {url} expands to more than {limit >> 20} MiB",
                guidance="it is probably a decompression bomb: records do not compress as much",
            )
        return count

    return read
