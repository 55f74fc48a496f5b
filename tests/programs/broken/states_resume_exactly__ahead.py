"""A source that sends a state before the last record that the state covers."""

from __future__ import annotations

from tests.programs.broken.base import USERS, Json, Source, main


class Broken(Source):
    def __init__(self) -> None:
        super().__init__()
        self.late: list[Json] = []

    def record(self, stream: str, row: Json) -> None:
        if stream == USERS and row["id"] == 2:
            self.late.append(row)
        else:
            super().record(stream, row)

    def state(self, stream: str, seen: int, records: int, *, is_last: bool) -> None:
        # The count of a state is right: it is the number of records before it.
        is_after_late = stream == USERS and seen == 4 and self.seen.get(stream, 0) == 2
        super().state(stream, seen, records - len(self.late) + is_after_late, is_last=is_last)
        while self.late:
            super().record(stream, self.late.pop())


if __name__ == "__main__":
    main(Broken())
