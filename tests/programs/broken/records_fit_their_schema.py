"""A source with a number where its schema has a text."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def record(self, stream: str, row: Json) -> None:
        super().record(stream, {**row, "name": row["id"]})


if __name__ == "__main__":
    main(Broken())
