"""`elt verify`: a table that was damaged by hand is found out, and corrected from its source.

A failure names its seed. `ELT_VERIFY_SEEDS=40-99` are those that are left.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from elt_assets.lake.delta.storage import DataFile, TableStorage
from elt_assets.lake.worker.parquet import Output, open_writer
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.seeds import read_range
from tests.support.sql_shop import TABLE, change, configure, put

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def shop(own: Project) -> Project:
    change(
        own,
        (TABLE, ()),
        *(put(number, region="eu" if number % 2 else "us") for number in range(1, 2_500)),
    )
    configure(own)
    return own


Damage = Callable[[pa.Table, int], pa.Table]


def set_value(name: str, value: Any) -> Damage:
    def damage(rows: pa.Table, place: int) -> pa.Table:
        column = rows[name].combine_chunks()
        is_place = pa.array([number == place for number in range(len(rows))])
        changed = pc.if_else(is_place, pa.scalar(value, column.type), column)
        return rows.set_column(rows.column_names.index(name), name, changed)

    return damage


DAMAGES: dict[str, Damage] = {
    "gone": lambda rows, place: pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)]),
    "doubled": lambda rows, place: pa.concat_tables([rows, rows.slice(place, 1)]),
    "changed": set_value("amount", Decimal(7)),
    "null": set_value("amount", None),
    "other_partition": set_value("region", "xx"),
    "cursor_raised": set_value("u", 10**9),
    "position_raised": set_value("_ab_cdc_lsn", 10**15),
    "number_raised": set_value("_ab_cdc_cursor", 10**18),
    "cursor_lowered": set_value("u", 0),
    "cursor_gone": set_value("u", None),
    "other_key": set_value("code", "x"),
}


def damage(project: Project, name: str, kind: str, random_: random.Random) -> None:
    """Damage a row of a table, by a commit that puts another file in the place of one."""
    table = project.table("shop", *name.split("/"))
    storage = TableStorage(table.table_uri.removeprefix("file://"))
    path = random_.choice(sorted(table.file_uris())).removeprefix("file://")
    rows = pq.read_table(path)
    rows = DAMAGES[kind](rows, random_.randrange(len(rows)))
    partition_by = table.metadata().partition_columns
    writer = open_writer(Output((storage.system, storage.root), storage.new_folder(), partition_by))
    for batch in rows.to_batches():
        writer.write(batch)
    writer.close()
    former = DataFile(str(Path(path).relative_to(storage.root)), Path(path).stat().st_size, 0)
    actions: list[Any] = [DataFile(*file).add() for file in writer.files]
    actions.append(former.remove())
    table.create_write_transaction(actions, "append", table.schema(), partition_by)


def rows_of(project: Project, table: str = "orders") -> list[Any]:
    return [row for row in project.rows("shop", table) if row.get("_is_current", True)]


LONG_FORM = pytest.param(read_range("ELT_VERIFY_SEEDS", 100), marks=pytest.mark.long)


@pytest.mark.parametrize("seeds", [range(2), LONG_FORM], ids=["short", "long"])
def test_a_damaged_table_is_found_out_and_corrected(shop: Project, elt: Elt, seeds: range) -> None:
    configure(shop, history=True, partition_by=["region"])
    elt("sync", "shop")
    undamaged, versions = rows_of(shop), rows_of(shop, "orders_history")
    assert "no difference" in elt("verify", "shop")
    for seed in seeds:
        random_ = random.Random(seed)
        names = random_.sample(sorted({*DAMAGES} - {"position_raised", "number_raised"}), 3)
        damages = [(random_.choice(["orders", "orders_history"]), name) for name in names]
        said = f"seed {seed}: {damages}"
        for table, name in damages:
            damage(shop, table, name, random_)
        before = elt.json("state", "show", "shop/orders")["state"]
        (first,) = elt.json("verify", "shop/orders", code=1)["streams"]
        assert 0 < len(first["keys"]) <= 6, said
        (done,) = elt.json("verify", "shop/orders", "--repair")["streams"]
        assert done["corrected"] == len(first["keys"]), said
        assert rows_of(shop) == undamaged, said
        assert contents(rows_of(shop, "orders_history")) == contents(versions), said
        assert elt.json("state", "show", "shop/orders")["state"] == before, said
        (again,) = elt.json("verify", "shop/orders")["streams"]
        assert again["passed"], said
    change(shop, put(3, amount=9, u=5_000))
    elt("sync", "shop")
    assert elt.json("verify", "shop")["streams"][0]["passed"]


def test_a_row_that_table_and_history_have_damaged_otherwise_is_corrected_in_both(
    own: Project, elt: Elt
) -> None:
    change(own, (TABLE, ()), put(1))
    configure(own, history=True)
    elt("sync", "shop")
    undamaged, versions = rows_of(own), rows_of(own, "orders_history")
    damage(own, "orders", "changed", random.Random(1))
    damage(own, "orders_history", "cursor_raised", random.Random(1))
    assert elt.json("verify", "shop/orders", "--repair")["streams"][0]["corrected"] == 1
    assert rows_of(own) == undamaged
    assert contents(rows_of(own, "orders_history")) == contents(versions)
    assert elt.json("verify", "shop/orders")["streams"][0]["passed"]


def contents(versions: list[Any]) -> list[str]:
    """The values of versions, without when they were valid."""
    return sorted(
        repr({name: value for name, value in row.items() if not name.startswith("_valid")})
        for row in versions
    )


@pytest.mark.parametrize("seeds", [range(2), LONG_FORM], ids=["short", "long"])
def test_no_false_alarm_while_rows_get_new_values(shop: Project, elt: Elt, seeds: range) -> None:
    """A cursor shows inserts and updates, and the next sync brings them."""
    change(shop, ("PRAGMA journal_mode = WAL", ()))
    numbers = itertools.count(10_000)
    is_over = threading.Event()

    def work() -> None:
        random_ = random.Random(seeds[0])
        while not is_over.wait(0.02):
            number = next(numbers)
            key = random_.choice([number, random_.randrange(1, 2_500)])
            change(shop, put(key, amount=number % 7, u=number))

    elt("sync", "shop")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for seed in seeds:
            if seed % 3 == 1:
                elt("sync", "shop")
            (answer,) = elt.json("verify", "shop")["streams"]
            assert (answer["passed"], answer["keys"]) == (True, []), seed
            assert seed or answer["excused"]["changed"], seed
    finally:
        is_over.set()
        thread.join()


REPORTED = """
CREATE TABLE orders (a TEXT COLLATE NOCASE NOT NULL, b TEXT NOT NULL, v TEXT, d DECIMAL(20, 6), u INTEGER,
PRIMARY KEY (a, b))"""


def test_keys_and_values_that_others_compare_wrongly(own: Project, elt: Elt) -> None:
    """Keys that are the same when joined, or come in another order by a collation; long texts; zeros."""
    keys = [
        ("a", "aa"),
        ("B", "bb"),
        ("*", "x"),
        ("1", "11"),
        ("11", "1"),
        ("É", "ü"),
        ("é,1:", ""),
    ]
    texts = ["x" * 300, "1,2", "", "né", None, "9", " 9"]
    decimals = ["1", "1.000000", "0.100000", "-0.5", "0.000001", None, "12345678901234.5"]
    rows = [
        (*key, text, number, place)
        for place, (key, text, number) in enumerate(zip(keys, texts, decimals, strict=True))
    ]
    insert = "INSERT INTO orders VALUES (?, ?, ?, ?, ?)"
    change(own, (REPORTED, ()), *((insert, row) for row in rows))
    configure(own)
    elt("sync", "shop")
    assert elt.json("verify", "shop")["streams"][0]["passed"]
    update = "UPDATE orders SET v = ? WHERE a = ? AND b = ?"
    change(own, (update, ("x" * 299 + "y", "a", "aa")), (update, ("né", "11", "1")))
    change(own, (update, (None, "1", "11")))
    (answer,) = elt.json("verify", "shop", "--columns", "v", code=1)["streams"]
    assert [entry["key"] for entry in answer["keys"]] == [["1", "11"], ["11", "1"], ["a", "aa"]]
    assert elt.json("verify", "shop", "--columns", "d,u")["streams"][0]["passed"]
    assert elt.json("verify", "shop", "--repair")["streams"][0]["corrected"] == 3
    assert elt.json("verify", "shop")["streams"][0]["passed"]


def test_what_cannot_be_done_is_said_with_what_to_do(shop: Project, elt: Elt) -> None:
    error = elt.refuse("verify", "shop/orders")
    assert "it was never synced" in error["message"]
    assert "`elt sync shop orders`" in error["guidance"]
    elt("sync", "shop", "orders")
    elt("verify", "shop/orders")
    assert (
        "no field 'amout'" in elt.refuse("verify", "shop/orders", "--columns", "amout")["message"]
    )
    assert "leave out --sweep" in elt.refuse("verify", "shop", "--sweep", "--repair")["guidance"]

    change(shop, ("DELETE FROM orders WHERE id > 2000", ()))
    error = elt.refuse("verify", "shop/orders", "--sweep")
    assert "499 of the 2,499 rows of the table are no longer in the source" in error["message"]
    words = error["guidance"].rpartition("`elt ")[2].rstrip("`").split()
    assert elt.json(*words)["streams"][0]["corrected"] == 499
    assert len(rows_of(shop)) == 2_000

    configure(shop, discovers=False, fields={"hash": ["code"]})
    error = elt.refuse("verify", "shop/orders")
    assert "the part 'code' of its key cannot be compared" in error["message"]
    configure(shop, discovers=False, sync_mode="full_refresh", destination_sync_mode="overwrite")
    error = elt.refuse("verify", "shop/orders", "--repair")
    assert "its table is replaced by each sync" in error["message"]


def test_a_key_that_is_not_unique_in_the_source_is_named(own: Project, elt: Elt) -> None:
    change(own, ("CREATE TABLE orders (id INTEGER, u INTEGER)", ()))
    change(own, *(("INSERT INTO orders VALUES (?, ?)", (n // 2, n)) for n in range(1, 5)))
    configure(own, primary_key=[["id"]])
    elt("sync", "shop")
    error = elt.refuse("verify", "shop/orders")
    assert "several rows have the key" in error["message"]
    assert "`primary_key`" in str(error)
