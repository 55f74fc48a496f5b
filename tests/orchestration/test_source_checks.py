"""The check `source` and the sweeps of streams, as runs of their own."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from elt_assets.definitions import build
from elt_assets.pipeline import comparison
from tests.orchestration.test_automation import refuse
from tests.orchestration.ticking import instance_of, run_job
from tests.support.project import Project
from tests.support.runs import evaluations, failure_of, materialize, observations
from tests.support.sql_shop import TABLE, change, configure, put

KEY = dg.AssetKey(["shop", "orders"])
CHECK = dg.AssetCheckKey(KEY, "source")


@pytest.fixture
def shop(own: Project) -> Project:
    change(own, (TABLE, ()), *map(put, range(1, 31)))
    return own


def run_check(project: Project) -> dg.AssetCheckEvaluation:
    job = dg.define_asset_job("check", selection=dg.AssetSelection.checks(CHECK))
    definitions = dg.Definitions.merge(build(), dg.Definitions(jobs=[job]))
    with instance_of(project) as instance:
        result = definitions.resolve_job_def("check").execute_in_process(
            instance=instance, raise_on_error=False
        )
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


def values(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


@pytest.mark.usefixtures("spark")
def test_a_check_compares_on_its_own_schedule_and_a_sync_repeats_its_result(shop: Project) -> None:
    cron = "0 4 * * *"
    configure(shop, checks={"source": {"cron": cron, "columns": ["amount"], "severity": "warn"}})
    repository = build().get_repository_def()
    assert repository.get_schedule_def("shop__orders_source_schedule").cron_schedule == cron
    first = materialize(shop, 'key:"shop/orders"')
    assert first.success
    assert "source" not in evaluations(first)  # there is none yet
    passed = run_check(shop)
    assert (passed.passed, values(passed)["elt/verified_through"]) == (True, "30")

    change(shop, put(3, amount=7), ("DELETE FROM orders WHERE id = 4", ()))
    second = run_check(shop)
    assert (second.passed, second.severity) == (False, dg.AssetCheckSeverity.WARN)
    metadata = values(second)
    assert (metadata["different"], metadata["surplus"], metadata["missing"]) == (1, 1, 0)
    assert metadata["keys"] == [
        {"key": [3, "né3"], "is": "different", "columns": ["amount"]},
        {"key": [4, "né4"], "is": "surplus"},
    ]
    assert metadata["columns"] == ["amount"]
    assert "elt/verified_through" not in metadata
    repeated = evaluations(materialize(shop, 'key:"shop/orders"'))["source"]
    assert (repeated.passed, values(repeated)) == (False, metadata)

    configure(shop, checks={"source": {"repair": True}})
    assert values(run_check(shop))["corrected"] == 2
    rows = {row["id"]: row["amount"] for row in shop.rows("shop", "orders")}
    assert (rows[3], 4 in rows, len(rows)) == (7, False, 29)
    assert observations(shop, "shop", "orders")[-1]["elt/keys_corrected"] == 2
    assert run_check(shop).passed


@pytest.mark.usefixtures("spark")
def test_a_check_of_a_sample_looks_at_some_ranges_each_time(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "ROWS_OF_A_RANGE", 5)
    configure(shop, checks={"source": {"sample": 0.3}})
    assert materialize(shop, 'key:"shop/orders"').success
    assert run_check(shop).passed
    # None of these has another cursor value. The last one is beyond all keys of the table.
    change(shop, *(put(number, amount=7) for number in range(1, 31)), put(99, u=1))
    seen: set[int] = set()
    for _ in range(40):
        check = values(run_check(shop))
        assert (check["ranges"], check["ranges_listed"]) == (7, 2)
        assert 0 < check["different"] + check["missing"] <= 10
        assert check["surplus"] == 0
        seen |= {entry["key"][0] for entry in check["keys"]}
        if seen == {*range(1, 31), 99}:
            break
    assert seen == {*range(1, 31), 99}


@pytest.mark.usefixtures("spark")
def test_a_sweep_removes_rows_that_the_source_no_longer_has(shop: Project) -> None:
    configure(shop, deletes={"sweep": "0 3 * * 0"}, history=True)
    assert materialize(shop, 'key:"shop/orders"').success
    change(shop, ("DELETE FROM orders WHERE id <= 3", ()), put(9, amount=5))
    done = run_job(shop, "shop__orders_sweep")
    assert done.success
    rows = {row["id"]: row["amount"] for row in shop.rows("shop", "orders")}
    assert (len(rows), rows[9]) == (27, 1)  # no other row changes
    ended = [row["id"] for row in shop.rows("shop", "orders_history") if not row["_is_current"]]
    assert ended == [1, 2, 3]
    change(shop, ("DELETE FROM orders WHERE id < 20", ()))
    failed = run_job(shop, "shop__orders_sweep")
    assert "16 of the 27 rows" in failure_of(failed)
    assert "--sweep --at-most 0.60" in failure_of(failed)
    assert len(shop.rows("shop", "orders")) == 27
    change(shop, put(1, u=100))
    assert materialize(shop, 'key:"shop/orders"').success
    assert len(shop.rows("shop", "orders")) == 28


@pytest.mark.usefixtures("spark")
def test_a_sweep_marks_rows_that_stay_and_they_count_as_deleted(shop: Project) -> None:
    configure(
        shop,
        deletes={"sweep": "0 3 * * 0", "rows": "keep", "at_most": 0.2},
        checks={"source": True},
    )
    assert materialize(shop, 'key:"shop/orders"').success
    change(shop, ("DELETE FROM orders WHERE id <= 3", ()))
    assert run_job(shop, "shop__orders_sweep").success
    before = shop.rows("shop", "orders")
    deleted = {row["id"]: row["amount"] for row in before if row["_deleted_at"] is not None}
    assert (len(before), deleted) == (30, {1: 1, 2: 1, 3: 1})
    assert run_job(shop, "shop__orders_sweep").success
    assert shop.rows("shop", "orders") == before  # no row is deleted again
    assert values(run_check(shop))["surplus"] == 0

    change(shop, put(1, u=1, amount=8), ("DELETE FROM orders WHERE id BETWEEN 10 AND 15", ()))
    failed = run_job(shop, "shop__orders_sweep")
    assert "6 of the 27 rows" in failure_of(failed)  # deleted ones do not count
    check = values(run_check(shop))
    assert (check["missing"], check["surplus"]) == (1, 6)
    configure(shop, deletes="keep", checks={"source": {"repair": True}})
    assert values(run_check(shop))["corrected"] == 7
    rows = {
        row["id"]: (row["amount"], row["_deleted_at"] is None)
        for row in shop.rows("shop", "orders")
    }
    assert (rows[1], rows[2], rows[10], rows[20]) == ((8, True), (1, False), (1, False), (1, True))
    assert run_check(shop).passed


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        ({"checks": {"source": {"cron": "daily"}}}, "checks: source: cron: 'daily' is not a valid"),
        ({"deletes": {"sweep": "0 3"}}, "deletes: sweep: '0 3' is not a valid cron"),
        ({"deletes": {"at_most": 2}}, "at_most"),
        ({"deletes": "forget"}, "deletes"),
        ({"deletes": "keep", "destination_sync_mode": "append"}, "no deleted row can stay"),
        (
            {
                "deletes": {"rows": "keep"},
                "destination_sync_mode": "overwrite_dedup",
                "sync_mode": "full_refresh",
                "cursor_field": None,
            },
            "replaces the former rows",
        ),
        (
            {"deletes": "keep", "rename": {"region": "_deleted_at"}},
            "needs the column '_deleted_at'",
        ),
        ({"destination_sync_mode": "soft_delete"}, "write `append_dedup`, and `deletes: keep`"),
        ({"checks": {"source": {"sample": 0}}}, "sample"),
        (
            {"checks": {"source": True}, "destination_sync_mode": "append"},
            "its table has every version of a row",
        ),
        (
            {"checks": {"source": True}, "filter": [{"field": "u", "operator": ">", "value": 1}]},
            "`filter` keeps rows out of its table",
        ),
        (
            {
                "checks": {"source": {"repair": True}},
                "destination_sync_mode": "overwrite",
                "sync_mode": "full_refresh",
                "cursor_field": None,
            },
            "its table is replaced by each sync",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(shop: Project, stream: Any, text: str) -> None:
    configure(shop)
    configure(shop, discovers=False, **stream)
    assert text in refuse(shop)


def test_nobody_gets_a_check_who_did_not_ask_for_one(shop: Project) -> None:
    configure(shop, checks={"counts": False})
    repository = build().get_repository_def()
    assert not [s.name for s in repository.schedule_defs if "source" in s.name]
    assert CHECK not in repository.asset_graph.asset_check_keys
