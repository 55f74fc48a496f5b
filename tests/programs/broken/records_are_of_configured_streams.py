"""A source that sends a record of a stream that is not configured."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def read(self, stream: str, mode: str) -> None:
        super().read(stream, mode)
        self.record("ghosts", {"id": 1, "name": "a ghost"})


if __name__ == "__main__":
    main(Broken())
