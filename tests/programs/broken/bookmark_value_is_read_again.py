"""A source that reads from after its bookmark on: `>` instead of `>=`."""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import Json, main
from tests.programs.broken.cursor import CursorSource


class Broken(CursorSource):
    def is_due(self, row: Json, bookmark: Any) -> bool:
        return bookmark is None or row[self.cursor] > bookmark


if __name__ == "__main__":
    main(Broken())
