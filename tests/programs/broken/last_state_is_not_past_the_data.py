"""A source whose state is rounded up to the next month."""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import Json, main
from tests.programs.broken.cursor import CursorSource


class Broken(CursorSource):
    def bookmark(self, rows: list[Json], before: Any) -> Any:
        return "2026-02-01"

    def is_due(self, row: Json, bookmark: Any) -> bool:
        return bookmark is None or row[self.cursor] >= "2026-01-03" or bookmark < "2026-02-01"


if __name__ == "__main__":
    main(Broken())
