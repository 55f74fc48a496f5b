"""A source with two records of the same primary key."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def rows(self, stream: str) -> list[Json]:
        *rows, last = super().rows(stream)
        return [*rows, {**last, "id": 1}]


if __name__ == "__main__":
    main(Broken())
