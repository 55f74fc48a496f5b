"""A source that does not send the status COMPLETE."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def status(self, stream: str, status: str) -> None:
        if status != "COMPLETE":
            super().status(stream, status)


if __name__ == "__main__":
    main(Broken())
