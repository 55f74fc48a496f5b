"""Cache of responses, for requests that several streams make: a parent is read for each of its children.

Spec: `use_cache` of HttpRequester.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any

from connectors.sdk.http.messages import Request, Response

MEMORY = 8 << 20
"""Number of bytes up to which the bodies are in memory; then they are in a temporary file."""
_NOT_KEPT = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})


@dataclass(frozen=True)
class _Entry:
    """The place of a body in the file, the headers of its response, and the extensions of its request, among
    which are the texts that messages must not contain."""

    start: int
    size: int
    headers: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]


class ResponseCache:
    """The successful responses of a source to GET requests. Several threads may use it. It is as large as the
    responses, and is gone with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._file: SpooledTemporaryFile[bytes] | None = None
        self._size = 0

    def get(self, key: Hashable, request: Request) -> Response | None:
        """Return the response of an earlier request with the same key; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._file is None:
                return None
            self._file.seek(entry.start)
            body = self._file.read(entry.size)
        request.extensions.update(entry.extensions)
        return Response(200, headers=entry.headers, content=body, request=request)

    def put(self, key: Hashable, response: Response) -> None:
        """Keep a response, if it is successful."""
        if response.status_code != 200:
            return
        headers = [
            (name, value)
            for name, value in response.headers.raw
            if name.decode("latin-1").lower() not in _NOT_KEPT
        ]
        body = response.content
        with self._lock:
            if self._file is None:
                self._file = SpooledTemporaryFile(max_size=MEMORY)  # noqa: SIM115 - as old as the cache
                weakref.finalize(self, self._file.close)
            self._file.seek(self._size)
            self._file.write(body)
            self._entries[key] = _Entry(
                self._size, len(body), headers, dict(response.request.extensions)
            )
            self._size += len(body)

    def close(self) -> None:
        """Forget all responses."""
        with self._lock:
            self._entries.clear()
            file, self._file, self._size = self._file, None, 0
        if file is not None:
            file.close()
