"""The commands in docs/dagster.md, and the assets in docs/downstream.md, work as they stand there."""

from __future__ import annotations

import importlib
import re
import shlex
from typing import Any

import pytest
from click.testing import CliRunner
from dagster._cli import create_dagster_cli

from elt_assets import definitions
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY, Project
from tests.support.runs import materialize

DOCUMENT = (REPOSITORY / "docs" / "dagster.md").read_text()
DOWNSTREAM = (REPOSITORY / "docs" / "downstream.md").read_text()
DELETED_AT = "_ab_cdc_deleted_at"
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}


def partitions(project: Project, *path: str) -> list[str]:
    return sorted({row["_elt_partition"] for row in project.rows(*path)})


@pytest.mark.filterwarnings("ignore:Function `asset_materialize_command`")  # as the Makefile does
def test_the_documented_selections_can_be_materialized(own: Project, spark: object) -> None:
    windowed(own, partitions=DAILY)
    importlib.reload(definitions)  # as in a process of the command's own
    commands = re.findall(r"^dagster asset materialize .*$", DOCUMENT, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        program = create_dagster_cli()  # type: ignore[no-untyped-call]
        done = CliRunner().invoke(program, shlex.split(command)[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    days = [f"2026-01-{day:02d}" for day in range(5, 10)]
    assert partitions(own, "weather", "readings") == days


def test_the_documented_downstream_asset_works(own: Project, spark: object) -> None:
    source, *_ = code_blocks(DOWNSTREAM, "python")
    names: dict[str, Any] = {}
    exec(source, names)
    windowed(own, partitions=DAILY)
    selection = 'key:"weather/readings" or key:"totals"'
    assert materialize(own, selection, [names["totals"]], partition="2026-01-05").success
    assert partitions(own, "totals") == ["2026-01-05"]


def test_the_documented_incremental_asset_follows_its_stream(own: Project, spark: object) -> None:
    [source] = [block for block in code_blocks(DOWNSTREAM, "python") if ".changes(" in block]
    names: dict[str, Any] = {}
    source = source.replace('"orders"', '"things"').replace("shop/orders", "shop/things")
    exec(compile(source, "downstream.md", "exec", dont_inherit=True), names)
    fields = ("id", "total", DELETED_AT)
    schema: Any = {name: {"type": ["integer", "null"]} for name in fields}
    dedup: Any = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    for rows, totals in (
        ([(1, 10, None), (2, 20, None)], {1: 10, 2: 20}),
        ([(1, 11, None), (2, None, 1), (3, 30, None)], {1: 11, 3: 30}),
        ([(3, 31, None)], {1: 11, 3: 31}),
    ):
        records = [record(**dict(zip(fields, row, strict=True))) for row in rows]
        script(own, [*records, state(1)], name="shop", schema=schema, **dedup)
        assert materialize(own, extra=[names["order_totals"]]).success
        assert {row["id"]: row["total"] for row in own.rows("order_totals")} == totals
    assert not own.metadata("order_totals")["elt/position/shop/things"]["reload"]
