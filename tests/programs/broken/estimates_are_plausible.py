"""A source that estimates a thousand times too many records."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def estimate(self, stream: str, rows: int) -> None:
        super().estimate(stream, rows * 1000)


if __name__ == "__main__":
    main(Broken())
