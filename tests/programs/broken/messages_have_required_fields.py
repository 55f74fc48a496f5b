"""A source whose records have no `emitted_at`."""

from __future__ import annotations

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def record(self, stream: str, row: Json) -> None:
        self.say("RECORD", record={"stream": stream, "data": row})


if __name__ == "__main__":
    main(Broken())
