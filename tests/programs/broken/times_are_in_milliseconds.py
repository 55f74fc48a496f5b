"""A source whose `emitted_at` is in seconds."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def record(self, stream: str, row: Json) -> None:
        self.say("RECORD", record={"stream": stream, "data": row, "emitted_at": 1_790_000_000})


if __name__ == "__main__":
    main(Broken())
