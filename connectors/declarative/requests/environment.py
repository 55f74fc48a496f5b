"""The surroundings of a source's requesters: its config, connections, budget, credentials and kept responses.

Responses are kept for requests that several streams make: a parent is read for each of its children.

Spec: `use_cache` of HttpRequester.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

from connectors.sdk.http import Authenticator
from connectors.sdk.http.client import OnWait
from connectors.sdk.http.connections import Connections
from connectors.sdk.http.messages import Request, Response
from connectors.sdk.http.rate_limit import Limiter
from connectors.sdk.reports import report_wait
from connectors.sdk.stopping import pause
from elt_assets.errors import EltError

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


TIMEOUT_SECONDS = 120.0
"""Time for which an API may send nothing. The Airbyte CDK waits for ever, so manifests know no limit."""
OnConfig = Callable[[Mapping[str, Any]], object]
"""Called with the whole config after tokens in it were replaced. The config must then be saved."""


@dataclass
class Environment:
    """The surroundings of the requesters of one source with one config.

    Attributes:
        config: the config. An authenticator with `refresh_token_updater` replaces the tokens in it.
        config_to_save: the config that is saved after tokens in it were replaced, if it is another one.
        connections: the pool of connections.
        budget: the call-rate budget of the manifest; None for none.
        folder: the folder of the manifest, in which JSON schemas are looked up; None for none.
        trusted_origins: the URLs of origins, besides that of each requester, that get credentials when the
            API sends a link to them, and that may have any address.
        on_config: called after tokens in the config were replaced, with the config to save, by the thread
            that made the environment.
        on_wait: called before each wait.
        sleep: waits for a number of seconds.
        cache: the responses of requesters with `use_cache`.
        named_origins: the origins that manifest and config name, of all requesters.
        job_slots: limits the jobs that run at the same time, of all streams together.
    """

    config: MutableMapping[str, Any]
    config_to_save: MutableMapping[str, Any] | None = None
    connections: Connections = field(default_factory=lambda: Connections(timeout=TIMEOUT_SECONDS))
    budget: Limiter | None = None
    folder: Path | None = None
    trusted_origins: Sequence[str] = ()
    on_config: OnConfig | None = None
    on_wait: OnWait | None = report_wait
    sleep: Callable[[float], None] = pause
    cache: ResponseCache = field(default_factory=ResponseCache)
    job_slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    named_origins: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _credentials: dict[str, Authenticator] = field(default_factory=dict, repr=False)
    _is_unsaved: bool = False
    _owner: int = field(default_factory=threading.get_ident)

    def shared(self, key: str, make: Callable[[], Authenticator]) -> Authenticator:
        """Return the credentials with a key, which streams share, so that one token serves all of them."""
        with self.lock:
            if key not in self._credentials:
                self._credentials[key] = make()
            return self._credentials[key]

    def replace_tokens(self, replace: Callable[[MutableMapping[str, Any]], None]) -> None:
        """Replace tokens in the config, and have it saved: now if this thread made the environment, otherwise
        when that thread calls `report`.

        Args:
            replace: puts the new tokens into a config.
        """
        with self.lock:
            replace(self.config)
            if self.config_to_save is not None:
                replace(self.config_to_save)
            self._is_unsaved = True
        if threading.get_ident() == self._owner:
            self.report()

    def report(self) -> None:
        """Report the config to save, if tokens in it were replaced since the last report."""
        with self.lock:
            if not self._is_unsaved:
                return
            self._is_unsaved = False
            config = self.config if self.config_to_save is None else self.config_to_save
            changed = deepcopy(dict(config))
        if self.on_config is not None:
            self.on_config(changed)

    def settle(self) -> None:
        """Wait for requests for tokens that are under way, prevent others, and have the config saved: a
        refresh token may be usable only once."""
        with self.lock:
            held = list(self._credentials.values())
        for future in held:
            future.settle()
        self.report()

    def close(self) -> None:
        """Close the connections, and forget the responses that were kept."""
        self.connections.close()
        self.cache.close()


def name_stream(error: EltError, name: str) -> EltError:
    """Put the name of a stream before the message of an error, unless it has one."""
    if name and not error.message.startswith("stream "):
        error.message = f"stream {name!r}: {error.message}"
        error.args = (error.message,)
    return error
