"""A source that ends with exit code 0 after an error."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def failed(self, error: Exception) -> int:
        super().failed(error)
        return 0


if __name__ == "__main__":
    main(Broken())
