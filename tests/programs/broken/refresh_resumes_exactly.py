"""A source that skips a record when it resumes a full refresh."""

from __future__ import annotations

from tests.programs.broken.base import COLOURS, Source, main


class Broken(Source):
    def start(self, stream: str, seen: int, mode: str) -> int:
        return super().start(stream, seen, mode) + (stream == COLOURS and 0 < seen < 5)


if __name__ == "__main__":
    main(Broken())
