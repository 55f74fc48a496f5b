"""docs/dagster.md: its commands and its asset downstream work as they stand there."""

from __future__ import annotations

import re
import subprocess
from typing import Any

from tests.orchestration.running import materialize
from tests.programs.windowed_source import windowed
from tests.project import BIN, REPOSITORY, Project

DOCUMENT = (REPOSITORY / "docs" / "dagster.md").read_text()
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}


def partitions(project: Project, *path: str) -> list[str]:
    return sorted({row["_elt_partition"] for row in project.rows(*path)})


def test_the_selections_can_be_materialised(project: Project) -> None:
    windowed(project, partitions=DAILY)
    environment = project.environment
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    commands = re.findall(r"^dagster asset materialize .*$", DOCUMENT, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    days = [f"2026-01-{day:02d}" for day in range(5, 10)]
    assert partitions(project, "weather", "readings") == days


def test_the_asset_downstream(own: Project, spark: object) -> None:
    source, *_ = re.findall(r"^```python\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    windowed(own, partitions=DAILY)
    selection = 'key:"weather/readings" or key:"totals"'
    assert materialize(own, selection, [names["totals"]], partition="2026-01-05").success
    assert partitions(own, "totals") == ["2026-01-05"]
