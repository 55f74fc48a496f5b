"""The staging folder, into which a source puts the documents of its records.

Spec: AirbyteRecordMessageFileReference.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any

from connectors.sdk.items import Document
from elt_assets.errors import ConfigError
from elt_assets.protocol.message_rules import DEFAULT_STAGING, STAGING

_MAX_STAGED = 2 << 30
"""Bytes of documents that the reader has not taken, after which the source waits."""
_PATIENCE = 300.0
"""Seconds after which it no longer waits for a reader that takes none."""
_POLL = 0.05


class DocumentStaging:
    """Writes documents to the staging folder.

    The reader removes each one when it has taken it. A source that is faster waits, so that the disk does not
    fill up.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._staged: deque[tuple[Path, int]] = deque()
        self._bytes = 0
        self._has_slow_reader = True

    def write(self, document: Document) -> dict[str, Any]:
        """Write the file of a document, and return the reference to it.

        Raises:
            ConfigError: there is no staging folder.
            EltError: the content cannot be read.
        """
        self._wait()
        path = self._find_folder() / uuid.uuid4().hex
        pieces = [document.content] if isinstance(document.content, bytes) else document.content
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            size = file.tell()
        self._staged.append((path, size))
        self._bytes += size
        return {
            "staging_file_url": str(path),
            "source_file_relative_path": document.path,
            "file_size_bytes": size,
        }

    def _wait(self) -> None:
        """Wait until the reader has taken enough of the documents.

        A reader that takes none for `_PATIENCE` seconds leaves them there, so it is never waited for again.
        """
        end = time.monotonic() + _PATIENCE
        while self._staged and self._has_slow_reader:
            path, size = self._staged[0]
            if not path.exists():
                self._staged.popleft()
                self._bytes -= size
                end = time.monotonic() + _PATIENCE
            elif self._bytes <= _MAX_STAGED:
                return
            else:
                self._has_slow_reader = time.monotonic() < end
                time.sleep(_POLL)

    def _find_folder(self) -> Path:
        if self._folder is None:
            folder = Path(os.environ.get(STAGING) or DEFAULT_STAGING)
            if not folder.is_dir():
                raise ConfigError(
                    f"there is no folder {folder} for the files of the records",
                    guidance=f"set {STAGING} to a folder that the reader of the messages has too, or remove "
                    "`include_files` from the catalog",
                )
            self._folder = folder
        return self._folder
