"""A source that follows all rules, and whose stream `users` has the value of its cursor as state: `>=`.

`python -m tests.programs.broken.cursor` is not run: the tests import it.
"""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import USERS, Json, Source


class CursorSource(Source):
    """The only state of `users` is sent at the end."""

    cursor = "updated"

    def rows(self, stream: str) -> list[Json]:
        """Return rows of which two share each value of the cursor, but for the last one."""
        rows = super().rows(stream)
        if stream == USERS:
            for row in rows:
                row["updated"] = f"2026-01-0{(row['id'] + 1) // 2}"
                row["created"] = f"2025-02-0{9 - row['id']}"
        return rows

    def streams(self) -> list[Json]:
        users, colours = super().streams()
        fields = {
            **users["json_schema"]["properties"],
            "created": {"type": "string", "format": "date"},
        }
        return [{**users, "json_schema": {"type": "object", "properties": fields}}, colours]

    def is_due(self, row: Json, bookmark: Any) -> bool:
        return bookmark is None or row[self.cursor] >= bookmark

    def bookmark(self, rows: list[Json], before: Any) -> Any:
        return max([row[self.cursor] for row in rows], default=before)

    def cursor_state(self, bookmark: Any) -> Json:
        return {self.cursor: bookmark}

    def read(self, stream: str, mode: str) -> None:
        if stream != USERS:
            super().read(stream, mode)
            return
        before = self.saved.get(USERS, {}).get(self.cursor) if mode == "incremental" else None
        rows = [row for row in self.rows(USERS) if self.is_due(row, before)]
        self.status(USERS, "STARTED")
        self.estimate(USERS, len(rows))
        if rows:
            self.status(USERS, "RUNNING")
        for row in rows:
            self.record(USERS, row)
        self.send_state(self.cursor_state(self.bookmark(rows, before)), len(rows))
        self.status(USERS, "COMPLETE")

    def send_state(self, state: Json, records: int) -> None:
        stream = {"stream_descriptor": {"name": USERS}, "stream_state": state}
        self.say(
            "STATE",
            state={"type": "STREAM", "stream": stream, "sourceStats": {"recordCount": records}},
        )
