"""A source with a cursor that the schema of the stream does not have."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def streams(self) -> list[Json]:
        users, colours = super().streams()
        return [{**users, "default_cursor_field": ["changed"]}, colours]


if __name__ == "__main__":
    main(Broken())
