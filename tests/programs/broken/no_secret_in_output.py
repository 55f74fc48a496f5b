"""A source that writes its config to the log."""

from __future__ import annotations

import sys

from tests.programs.broken.base import Source, main


class Broken(Source):
    def read(self, stream: str, mode: str) -> None:
        sys.stderr.write(f"the config is {self.config}\n")
        super().read(stream, mode)


if __name__ == "__main__":
    main(Broken())
