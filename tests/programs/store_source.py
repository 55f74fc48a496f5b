"""A source of the orders of stores, which lists its stores: `python -m tests.programs.store_source VERB …`.

Its config: `stores`, a JSON file that a test changes, with the number of orders of each store, which are
numbered from 1. `calls`: a file that gets a line of JSON for each list of the partitions (`"list"`), and for
each read of a partition: its context, and the number of the order that the read starts from. `down`: the list
fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.sdk import Stream, Window, run
from connectors.sdk.items import Context, Record
from elt_assets.errors import TransientError
from tests.programs.simple_source import SimpleSource

if TYPE_CHECKING:  # a program that tests start hundreds of times
    from tests.support.project import Project

INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}


class Orders(Stream):
    """The orders of each store."""

    name = "orders"
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {"store": {"type": "string"}, "number": {"type": "integer"}},
    }
    primary_key = ("store", "number")
    replication_key = "number"

    def __init__(self, config: dict[str, Any]):
        self._config = config

    def partitions(self) -> Iterable[Context]:
        self._log("list")
        if self._config.get("down"):
            raise TransientError("the list of stores cannot be reached")
        yield from ({"store": name} for name in self._stores)

    def records(self, window: Window) -> Iterable[Record]:
        self._log([window.partition["store"], window.start])
        orders = range(window.start or 1, self._stores[window.partition["store"]] + 1)
        return ({"store": window.partition["store"], "number": number} for number in orders)

    @property
    def _stores(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(Path(self._config["stores"]).read_text())
        return found

    def _log(self, call: Any) -> None:
        with Path(self._config["calls"]).open("a") as file:
            file.write(f"{json.dumps(call)}\n")


class Stores(SimpleSource):
    """The source of the orders."""

    name = "stores"

    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        return [Orders(config)]


def stores(project: Project, partitions: Any = None, /, **how: Any) -> None:
    """Write a connection `shop` with the stream `orders`, whose source lists the partitions."""
    program = [sys.executable, "-m", "tests.programs.store_source"]
    config = {"stores": str(project.root / "stores.json"), "calls": str(project.root / "calls")}
    listed = {"type": "source", **(partitions or {})}
    folder = project.connection(
        "shop",
        source={"command": program, "config": config},
        streams=[{"name": "orders", **INCREMENTAL, "partitions": listed, **how}],
    )
    catalog = {"streams": [json.loads(Orders({}).describe().to_json())]}
    (folder / "catalog.json").write_text(json.dumps(catalog))


def open_stores(project: Project, **orders: int) -> None:
    """Replace the stores of the source, each with a number of orders."""
    (project.root / "stores.json").write_text(json.dumps(orders))


def calls(project: Project) -> list[Any]:
    """Return the calls of the source so far, and forget them."""
    file = project.root / "calls"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return found


if __name__ == "__main__":
    sys.exit(run(Stores(), sys.argv[1:]))
