"""A Singer tap that follows all rules, or breaks one: `python -m tests.programs.broken.tap DEFECT OPTIONS`.

DEFECT is `none`, `state` (it skips a record after a state), `order` (a record comes before its SCHEMA),
`stdout` (it prints its progress), `secret` (it logs its config), `streams` (it reads each stream of the
catalog, selected or not), `fields` (it sends each field, selected or not), or the name of a tap that follows
all rules: `legacy` (its states have a form of its own) or `old` (it takes `--properties`, knows no metadata,
names the stream that it reads in its states, and ends with a state that has not moved).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["string", "null"], "format": "singer.decimal"},
        "updated": {"type": "string", "format": "date-time"},
    },
}
ENTRY = {
    "tap_stream_id": "db-orders",
    "stream": "orders",
    "schema": SCHEMA,
    "key_properties": ["id"],
    "replication_key": "updated",
    "metadata": [
        {"breadcrumb": [], "metadata": {"table-key-properties": ["id"]}},
        {"breadcrumb": ["properties", "price"], "metadata": {"inclusion": "available"}},
    ],
}
SHOPS = {
    "tap_stream_id": "db-shops",
    "stream": "shops",
    "schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
    "metadata": [{"breadcrumb": [], "metadata": {"forced-replication-method": "FULL_TABLE"}}],
}
ABOUT = {"settings": {"properties": {"token": {"type": "string", "secret": True}}}}
ROWS = [
    {"id": n, "price": f"{n}.50", "updated": f"2026-01-0{n // 2 + 1}T00:00:00Z"} for n in range(7)
]


# As pipelinewise and taps of the first years write it: Draft 4, and fractions of two decimals.
OLD_SCHEMA = {
    **SCHEMA,
    "properties": {
        **SCHEMA["properties"],  # type: ignore[dict-item]
        "price": {
            "type": ["number", "null"],
            "multipleOf": 0.01,
            "maximum": 100,
            "exclusiveMaximum": True,
        },
    },
}
OLD_ENTRY = {**{k: v for k, v in ENTRY.items() if k != "metadata"}, "schema": OLD_SCHEMA}
HELP = "usage: tap-orders [-h] -c CONFIG [-s STATE] [-p PROPERTIES] [-d]\n  --properties PROPERTIES"


def say(**message: Any) -> None:
    print(json.dumps(message))


def bookmark(defect: str, updated: str) -> dict[str, Any]:
    if defect == "legacy":
        return {"updated": updated}
    return {"bookmarks": {"db-orders": {"replication_key_value": updated}}}


def start(defect: str, state: dict[str, Any]) -> str:
    """Return the value of the replication key from which to read, this value included."""
    if defect == "legacy":
        return str(state.get("updated", ""))
    found = state.get("bookmarks", {}).get("db-orders", {}).get("replication_key_value", "")
    return str(found)


def is_selected(entry: dict[str, Any], *breadcrumb: str) -> bool:
    metadata = {tuple(each["breadcrumb"]): each["metadata"] for each in entry["metadata"]}
    return bool(metadata.get(breadcrumb, {}).get("selected", True))


def read(defect: str, catalog: dict[str, Any], state: dict[str, Any]) -> None:
    entries = {entry["stream"]: entry for entry in catalog["streams"]}
    if defect == "streams" or is_selected(entries["shops"]):
        say(type="SCHEMA", stream="shops", schema=SHOPS["schema"], key_properties=["id"])
        say(type="RECORD", stream="shops", record={"id": 1})
    if is_selected(entries["orders"]):
        read_orders(defect, entries["orders"], state)


def read_orders(defect: str, entry: dict[str, Any], state: dict[str, Any]) -> None:
    is_incremental = entry["replication_method"] == "INCREMENTAL"
    first = start(defect, state) if is_incremental else ""
    rows = [row for row in ROWS if str(row["updated"]) >= first]
    if defect == "state" and first and len(rows) > 1:
        rows = [row for row in rows if str(row["updated"]) > first][1:]
    if defect != "fields" and not is_selected(entry, "properties", "price"):
        rows = [{name: value for name, value in row.items() if name != "price"} for row in rows]
    if defect == "order":
        say(type="RECORD", stream="orders", record=rows[0])
        rows = rows[1:]
    if defect == "stdout":
        print("reading orders")
    say(type="SCHEMA", stream="orders", schema=SCHEMA, key_properties=["id"])
    for number, row in enumerate(rows, 1):
        say(type="RECORD", stream="orders", record=row)
        if number == 3 and is_incremental:
            say(type="STATE", value=bookmark(defect, str(row["updated"])))
    if is_incremental:
        say(type="STATE", value=bookmark(defect, str(ROWS[-1]["updated"])))


def read_as_old_taps_do(catalog: dict[str, Any], state: dict[str, Any]) -> None:
    (entry,) = catalog["streams"]
    say(type="STATE", value=state)
    if not entry["schema"].get("selected"):
        return
    is_incremental = entry.get("replication_method") != "FULL_TABLE"
    first = start("old", state) if is_incremental else ""
    state = {**state, "currently_syncing": "db-orders"}
    say(type="STATE", value=state)
    say(type="SCHEMA", stream="orders", schema=OLD_SCHEMA, key_properties=["id"])
    for row in ROWS:
        if str(row["updated"]) < first:
            continue
        say(type="RECORD", stream="orders", record={**row, "price": 1.1 + int(str(row["id"]))})
        if is_incremental:
            state = {**state, **bookmark("old", str(row["updated"]))}
            say(type="STATE", value=state)
    say(type="STATE", value={**state, "currently_syncing": None})


def main(defect: str, words: list[str]) -> None:
    if defect == "old":
        if "--help" in words:
            print(HELP)
            return
        if {"--about", "--catalog"} & {*words}:
            sys.exit("unrecognized arguments")
    if "--about" in words:
        print(json.dumps(ABOUT, indent=2))
        return
    names = ("config", "catalog", "properties", "state")
    paths = {name: words[words.index(f"--{name}") + 1] for name in names if f"--{name}" in words}
    files = {name: json.loads(Path(path).read_text()) for name, path in paths.items()}
    if "--discover" in words:
        entries = [OLD_ENTRY] if defect == "old" else [ENTRY, SHOPS]
        print(json.dumps({"streams": entries}, indent=2))
        return
    if defect == "secret":
        sys.stderr.write(f"the config is {files['config']}\n")
    if defect == "old":
        read_as_old_taps_do(files["properties"], files.get("state", {}))
    else:
        read(defect, files["catalog"], files.get("state", {}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
