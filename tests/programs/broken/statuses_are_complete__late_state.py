"""A source whose last state comes after COMPLETE."""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def read(self, stream: str, mode: str) -> None:
        self.late: list[tuple[str, Json]] = []
        super().read(stream, mode)
        for kind, body in self.late:
            super().say(kind, **body)

    def state(self, stream: str, seen: int, records: int, *, is_last: bool) -> None:
        self.is_last = is_last
        super().state(stream, seen, records, is_last=is_last)
        self.is_last = False

    def say(self, kind: str, **body: Any) -> None:
        if kind == "STATE" and self.is_last:
            self.late.append((kind, body))
        else:
            super().say(kind, **body)


if __name__ == "__main__":
    main(Broken())
