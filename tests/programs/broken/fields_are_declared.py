"""A source whose records have a field that the schema does not declare."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def record(self, stream: str, row: Json) -> None:
        super().record(stream, {**row, "age": 7})


if __name__ == "__main__":
    main(Broken())
