"""A source whose states are of another type once it has got one."""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import Source, main


class Broken(Source):
    def say(self, kind: str, **body: Any) -> None:
        if kind == "STATE" and self.saved:
            shared = {"shared_state": self.seen, "stream_states": []}
            body["state"] = {**body["state"], "type": "GLOBAL", "global": shared}
            del body["state"]["stream"]
        super().say(kind, **body)


if __name__ == "__main__":
    main(Broken())
