"""The files of a Singer BATCH, a line for each record.

A tap says which files to read, and what it says may have come from anywhere: only regular files within the
folders that are allowed are opened, and what is compressed is not trusted to stay small.

spec: Singer SDK, BATCH messages.
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
from elt_assets.protocol.airbyte.lines import split
from elt_assets.protocol.singer.messages import Encoding

CHUNK = 1 << 20
EXPANSION = 1_000
"""Times its size that a file may grow to, once that is more than `EXPANDED` bytes: JSON lines compress
by ten, nothing but a bomb by a thousand."""
EXPANDED = 1 << 30
_COMPRESSIONS = (None, "none", "gzip")


class BatchFiles:
    """Reads the files of a BATCH.

    Args:
        roots: the folders whose files may be read, those beneath them included.
        longest: bytes that a line may have.
    """

    def __init__(self, roots: Sequence[Path], longest: int):
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        self._longest = longest

    def __call__(self, url: str, encoding: Encoding) -> Iterator[bytes]:
        """The lines of one file, as they are read; memory does not grow with it.

        Args:
            url: `file:///path`, percent-encoded.

        Raises:
            ConfigError: the file lies elsewhere than in the roots, is none that can be read here, or is
                written in another way than as JSON lines, plain or compressed with gzip.
            SystemFailure: the file is missing, was cut off, expands beyond all measure, or has a line that
                is too long.
        """
        if encoding.format != "jsonl" or encoding.compression not in _COMPRESSIONS:
            compressed = f", {encoding.compression}" if encoding.compression else ""
            raise ConfigError(
                f"the tap sent a batch file that is written as {encoding.format}{compressed}: {url}",
                guidance="set `batch_config.encoding` in its config to `{format: jsonl, compression: gzip}`",
            )
        with self._opened(url) as file:
            chunks = _chunks(file)
            if encoding.compression == "gzip":
                chunks = _expanded(file, url)
            yield from split(chunks, self._longest, f"the batch file {url}")

    @contextmanager
    def _opened(self, url: str) -> Iterator[IO[bytes]]:
        path = Path(os.path.realpath(_path(url)))
        roots = ", ".join(map(str, self._roots))
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ConfigError(
                f"the tap sent a batch file outside of the folders that it may write to: {path}",
                guidance=f"it may write to {roots}: set by `batch_config.storage.root` in its config",
            )
        try:
            # Links were followed above, and are not followed again; a pipe must not keep us waiting.
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise SystemFailure(
                f"the batch file {path} cannot be read: {error.strerror}",
                guidance="the tap says that it has written it",
            ) from error
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise ConfigError(
                f"the tap sent a batch file that is no regular file: {path}",
                guidance=f"it may write regular files to {roots}",
            )
        with os.fdopen(number, "rb") as file:
            yield file


def file_root(url: object) -> Path | None:
    """The folder that a `file://` URL names; None for anything else."""
    try:
        return _path(url) if isinstance(url, str) else None
    except ConfigError:
        return None


def _path(url: str) -> Path:
    parts = None
    try:
        parts = urlsplit(url)
        found = os.fsdecode(unquote_to_bytes(parts.path))
    except ValueError:  # a host in half a bracket
        found = ""
    is_here = parts is not None and parts.scheme == "file" and parts.netloc in ("", "localhost")
    if not is_here or not found.startswith("/") or "\0" in found:
        raise ConfigError(
            f"the tap sent a batch file that is not on this machine: {url!r}",
            guidance="set `batch_config.storage.root` in its config to a folder's file:// URL",
        )
    return Path(found)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _expanded(file: IO[bytes], url: str) -> Iterator[bytes]:
    most = max(EXPANDED, EXPANSION * os.fstat(file.fileno()).st_size)
    size = 0
    try:
        with gzip.open(file, "rb") as expanded:
            while chunk := expanded.read(CHUNK):
                size += len(chunk)
                if size > most:
                    raise SystemFailure(
                        f"the batch file {url} expands to more than {most >> 20} MiB",
                        guidance="it is made to fill the machine rather than to hold records",
                    )
                yield chunk
    except (EOFError, OSError, zlib.error) as error:
        raise SystemFailure(
            f"the batch file {url} is not whole: {error}",
            guidance="this is a defect of the tap, or the file was cut off; "
            "the sync stops so that no data is lost",
        ) from error
