"""A source that lists a stream twice."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def streams(self) -> list[Json]:
        return [*super().streams(), super().streams()[0]]


if __name__ == "__main__":
    main(Broken())
