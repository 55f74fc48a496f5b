"""A source that reads all its streams, whichever the catalog has."""

from __future__ import annotations

import json
from pathlib import Path

from tests.programs.broken.base import COLOURS, USERS, Source, main


class Broken(Source):
    def run(self, verb: str, files: dict[str, Path]) -> None:
        if verb == "read":
            catalog = json.loads(files["catalog"].read_text())
            if len(catalog["streams"]) == 1 and "state" not in files:
                self.load(files)
                (read,) = (each["stream"]["name"] for each in catalog["streams"])
                other = COLOURS if read == USERS else USERS
                for row in self.rows(other):
                    self.record(other, row)
        super().run(verb, files)


if __name__ == "__main__":
    main(Broken())
