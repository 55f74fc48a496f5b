"""The commands in docs/dagster.md, and the assets in docs/downstream.md, work as they stand there."""

from __future__ import annotations

import re
from typing import Any

from tests.documents import code_blocks, run_command, shell_environment
from tests.orchestration.running import materialize
from tests.programs.windowed_source import windowed
from tests.project import REPOSITORY, Project

DOCUMENT = (REPOSITORY / "docs" / "dagster.md").read_text()
DOWNSTREAM = (REPOSITORY / "docs" / "downstream.md").read_text()
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}


def partitions(project: Project, *path: str) -> list[str]:
    return sorted({row["_elt_partition"] for row in project.rows(*path)})


def test_the_documented_selections_can_be_materialized(project: Project) -> None:
    windowed(project, partitions=DAILY)
    environment = shell_environment(project)
    commands = re.findall(r"^dagster asset materialize .*$", DOCUMENT, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        run_command(command, environment)
    days = [f"2026-01-{day:02d}" for day in range(5, 10)]
    assert partitions(project, "weather", "readings") == days


def test_the_documented_downstream_asset_works(own: Project, spark: object) -> None:
    source, *_ = code_blocks(DOWNSTREAM, "python")
    names: dict[str, Any] = {}
    exec(source, names)
    windowed(own, partitions=DAILY)
    selection = 'key:"weather/readings" or key:"totals"'
    assert materialize(own, selection, [names["totals"]], partition="2026-01-05").success
    assert partitions(own, "totals") == ["2026-01-05"]
