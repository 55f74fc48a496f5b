"""A source that ignores SIGTERM."""

from __future__ import annotations

import signal

from tests.programs.broken.base import Source, main


class Broken(Source):
    def read(self, stream: str, mode: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().read(stream, mode)


if __name__ == "__main__":
    main(Broken())
