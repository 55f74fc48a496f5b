"""A proxy on the loopback interface that loses requests, or the answers to them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

Fate = Literal["pass", "lose request", "lose answer"]
FATES: tuple[Fate, ...] = ("pass", "lose request", "lose answer")


class LossyProxy:
    """A proxy for one server. `fates` has what becomes of the next requests; after them, all pass."""

    def __init__(self, host: str, port: int):
        self.target = (host, port)
        self.fates: deque[Fate] = deque()
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def plan(self, fates: Iterable[Fate]) -> None:
        """Set what becomes of the next requests."""
        self.fates = deque(fates)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with (
            client,
            socket.create_connection(self.target) as server,
            selectors.DefaultSelector() as ready,
            contextlib.suppress(OSError),
        ):
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            fate: Fate | None = None  # of the request that waits for its answer
            while True:
                for key, _ in ready.select():
                    assert isinstance(key.fileobj, socket.socket)
                    content = key.fileobj.recv(1 << 16)
                    is_answer = key.fileobj is server
                    if content and not is_answer and fate is None:
                        fate = self._next_fate()
                    if not content or fate == ("lose answer" if is_answer else "lose request"):
                        return
                    key.data.sendall(content)
                    if is_answer:
                        fate = None

    def _next_fate(self) -> Fate:
        self.requests += 1
        return self.fates.popleft() if self.fates else "pass"


@contextmanager
def lossy_proxy(host: str, port: int) -> Iterator[LossyProxy]:
    """Start a proxy for a server."""
    proxy = LossyProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
