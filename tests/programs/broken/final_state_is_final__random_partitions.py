"""A source whose partitions have another key in each read."""

from __future__ import annotations

import time
from typing import Any

from tests.programs.broken.base import USERS, Json, main
from tests.programs.broken.cursor import CursorSource


class Broken(CursorSource):
    def cursor_state(self, bookmark: Any) -> Json:
        partition = {"context": {"run": str(time.time_ns())}, "value": bookmark}
        return {"partitions": [partition]}

    def read(self, stream: str, mode: str) -> None:
        self.saved.pop(USERS, None)  # no partition of the state is one of this read
        super().read(stream, mode)


if __name__ == "__main__":
    main(Broken())
