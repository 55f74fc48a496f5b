"""A source that sends an empty state if there is no new data."""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import USERS, Json, main
from tests.programs.broken.cursor import CursorSource


class Broken(CursorSource):
    def is_due(self, row: Json, bookmark: Any) -> bool:
        # The value of the bookmark is new data only where others follow it.
        return super().is_due(row, bookmark) and bookmark != "2026-01-03"

    def cursor_state(self, bookmark: Any) -> Json:
        is_new = self.saved.get(USERS, {}).get(self.cursor) != bookmark
        return super().cursor_state(bookmark) if is_new else {}


if __name__ == "__main__":
    main(Broken())
