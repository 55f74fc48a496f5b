"""`partition_by` of a connection or a stream: Delta's partition columns of its tables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orchestration.test_automation import refuse
from tests.orchestration.test_checks import THINGS
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

SCHEMA: dict[str, Any] = {
    "id": {"type": "integer"},
    "country": {"type": "string"},
    "price": {"type": "number"},
    "amount": {"type": "number", "airbyte_type": "big_number"},
    "any": {},
    "address": {"type": "object", "properties": {"zip": {"type": "string"}}},
}


@pytest.mark.usefixtures("spark")
def test_a_table_is_created_with_its_partition_columns(own: Project) -> None:
    lines = [record(id=n, country="DE" if n % 2 else "FR") for n in range(4)]
    script(own, [*lines, state(1)], schema=SCHEMA, partition_by=["country"])
    assert materialize(own, THINGS).success
    table = own.table("scripted", "things")
    assert table.metadata().partition_columns == ["country"]
    assert table.to_pyarrow_table(filters=[("country", "=", "DE")])["id"].to_pylist() == [1, 3]
    script(own, [*lines, state(1)], schema=SCHEMA)
    refused = failure_of(materialize(own, THINGS))
    assert "created with the partition columns country, but now has no partition" in refused
    assert own.table("scripted", "things").version() == table.version()


def test_fields_that_cannot_be_partition_columns_are_refused(own: Project) -> None:
    script(own, [], schema=SCHEMA, partition_by=["contry", "price", "any", "address.zip"])
    text = refuse(own)
    assert "partition_by: there is no column 'contry'; did you mean 'country'?" in text
    assert (
        "partition_by: 'price': its values (double) cannot be those of a partition column" in text
    )
    assert "partition_by: 'any': its values (JSON text) cannot be" in text
    assert "'address.zip' is in an object; only top-level fields" in text
    script(own, [], schema=SCHEMA, partition_by=["country", "country"])
    assert "a field is named twice" in refuse(own)
    excluded = {"exclude": ["country"]}
    script(own, [], schema=SCHEMA, partition_by=["country"], fields=excluded)
    assert "there is no column 'country'" in refuse(own)
    dedup: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    script(own, [], schema=SCHEMA, partition_by=["country", "id"], **dedup)
    assert "it contains the whole primary key" in refuse(own)


@pytest.mark.usefixtures("spark")
def test_no_table_is_begun_with_decimals_in_a_partition_column(own: Project) -> None:
    lines = [record(id=n, country="DE", amount=n - 1.5) for n in range(3)]
    script(own, [*lines, state(1)], schema=SCHEMA, partition_by=["country", "amount"])
    refused = failure_of(materialize(own, THINGS))
    assert (
        "partition_by: 'amount': its values are decimals with a fraction (decimal(38,9))" in refused
    )
    # What the message says to do.
    partitioning: dict[str, Any] = {"partition_by": ["country"], "cluster_by": ["amount"]}
    script(own, [*lines, state(1)], schema=SCHEMA, **partitioning)
    assert materialize(own, THINGS).success
    rows = own.table("scripted", "things").to_pyarrow_table(filters=[("country", "=", "DE")])
    assert sorted(map(float, rows["amount"].to_pylist())) == [-1.5, -0.5, 0.5]
