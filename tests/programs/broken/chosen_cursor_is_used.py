"""A source that lets the user choose the cursor, and uses its own."""

from __future__ import annotations

from typing import ClassVar

from tests.programs.broken.base import Json, main
from tests.programs.broken.cursor import CursorSource


class Broken(CursorSource):
    cursor = "created"
    also: ClassVar = ["final-state-is-final"]  # a record of an earlier `updated` is repeated
    chosen: ClassVar[Json] = {"users": "updated"}

    def streams(self) -> list[Json]:
        users, colours = super().streams()
        return [{**users, "source_defined_cursor": False}, colours]


if __name__ == "__main__":
    main(Broken())
