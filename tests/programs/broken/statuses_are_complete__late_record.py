"""A source whose last record comes after COMPLETE."""

from __future__ import annotations

from tests.programs.broken.base import COLOURS, Source, main


class Broken(Source):
    def status(self, stream: str, status: str) -> None:
        super().status(stream, status)
        if status == "COMPLETE" and stream == COLOURS:
            self.record(stream, {"id": 99, "name": "late"})


if __name__ == "__main__":
    main(Broken())
