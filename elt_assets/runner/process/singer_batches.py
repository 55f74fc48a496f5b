"""Read the files of a Singer BATCH, one line for each record.

The file names come from the tap and are not trusted. Only regular files in the allowed folders are opened,
and the size of a compressed file's content is limited.

Spec: Singer SDK, BATCH messages.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote_to_bytes, urlsplit

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.lines import ReadInto, blocks, split
from elt_assets.protocol.singer.messages import Encoding

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
        roots: the allowed folders, including their subfolders.
        max_line: maximum number of bytes of a line.
    """

    def __init__(self, roots: Sequence[Path], max_line: int):
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        self._max_line = max_line

    def __call__(self, url: str, encoding: Encoding) -> Iterator[bytes]:
        """Yield the lines of one file as they are read. Memory does not grow with the size of the file.

        Args:
            url: `file:///path`, percent-encoded.

        Raises:
            ConfigError: the file is outside the roots or not a regular file on this machine; or its encoding
                is neither JSON lines nor JSON lines compressed with gzip.
            SystemFailure: the file is missing or incomplete, expands beyond the limit, or has a line that is
                too long.
        """
        if encoding.format != "jsonl" or encoding.compression not in _COMPRESSIONS:
            compressed = f", {encoding.compression}" if encoding.compression else ""
            raise ConfigError(
                f"the tap sent a batch file of the unsupported encoding {encoding.format}{compressed}: {url}",
                guidance="set `batch_config.encoding` in the tap's config to "
                "`{format: jsonl, compression: gzip}`",
            )
        with self._open(url) as file:
            read = (
                _expand(file, url) if encoding.compression == "gzip" else _report_read_errors(file)
            )
            yield from split(blocks(read, self._max_line, f"the batch file {url}"))

    @contextmanager
    def _open(self, url: str) -> Iterator[IO[bytes]]:
        path = Path(os.path.realpath(_path(url)))
        roots = ", ".join(map(str, self._roots))
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ConfigError(
                f"the tap wrote the batch file {path}, which is in none of the allowed folders",
                guidance=f"set `batch_config.storage.root` in the tap's config to one of: {roots}",
            )
        try:
            # Links are resolved above. O_NOFOLLOW refuses one that appeared since; O_NONBLOCK avoids waiting
            # for a named pipe.
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise SystemFailure(
                f"the batch file {path} cannot be read: {error.strerror}",
                guidance="the tap reported this file as written: check its folder and its permissions",
            ) from error
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise ConfigError(
                f"the tap sent a batch file that is not a regular file: {path}",
                guidance=f"the tap may only write regular files, to {roots}",
            )
        with os.fdopen(number, "rb") as file:
            yield file


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


def _report_read_errors(file: IO[bytes]) -> ReadInto:
    return lambda buffer, _: os.readv(file.fileno(), [buffer])


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
