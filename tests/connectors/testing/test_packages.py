"""The conformance kit on third parties' connectors from PyPI, unmodified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.testing import Kit, KitOptions, Report
from elt_assets.runner.packages import install
from tests.e2e.test_tap_postgres import TAP
from tests.support.postgres import Postgres, postgres

__all__ = ["postgres"]

pytestmark = pytest.mark.external

FAKER = "airbyte-source-faker==7.2.1"
HARDCODED = "airbyte-source-hardcoded-records==0.0.48"
JSONL = "tap-jsonl==0.3.1"
TABLE = """
CREATE TABLE orders (id bigint PRIMARY KEY, price numeric(9, 2), updated_at timestamptz NOT NULL);
INSERT INTO orders SELECT n, n * 1.25, '2026-01-01Z'::timestamptz + (n / 2) * interval '1 day'
    FROM generate_series(1, 9) AS n;
"""


def report(package: str, packages: Path, config: dict[str, Any], **options: Any) -> Report:
    program = install(package, packages)
    return Kit([str(program)], config, KitOptions(**options)).report()


def text(found: Report) -> str:
    return "\n".join(found.lines())


@pytest.mark.long
def test_source_hardcoded_records_passes(packages: Path) -> None:
    found = report(HARDCODED, packages, {"count": 5})
    assert found.passed, text(found)


@pytest.mark.long
def test_airbyte_source_faker_passes(packages: Path) -> None:
    config = {"count": 20, "seed": 1, "always_updated": False}
    found = report(FAKER, packages, config)
    assert found.passed, text(found)


@pytest.mark.long
def test_airbyte_source_faker_loses_records_between_two_slices(packages: Path) -> None:
    """The source yields nothing from any state if `always_updated` is false, also from one in the middle."""
    config = {"count": 30, "seed": 1, "always_updated": False, "records_per_slice": 10}
    rules = ["states-resume-exactly", "final-state-is-final"]
    found = report(FAKER, packages, config, streams=["users"], rules=rules)
    assert found.failed_rules == ["states-resume-exactly"], text(found)
    assert "missing records: 10" in text(found)


@pytest.mark.long
def test_a_tap_for_files_passes_with_one_file_and_fails_with_two(
    packages: Path, tmp_path: Path
) -> None:
    rows = [{"id": n, "at": f"2026-01-0{n}T00:00:00Z"} for n in range(1, 6)]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("a", "b"):
        text_ = "\n".join(json.dumps({**row, "id": f"{name}{row['id']}"}) for row in rows)
        (tmp_path / "two" / f"{name}.jsonl").write_text(text_)

    settings = {"path": str(tmp_path / "one" / "*.jsonl"), "primary_keys": ["id"]}
    found = report(JSONL, packages, settings, tap=True)
    assert found.passed, text(found)

    # With two files it reads each of them twice when it gets a state.
    settings = {"path": str(tmp_path / "two" / "*.jsonl"), "primary_keys": ["id"]}
    found = report(JSONL, packages, settings, tap=True)
    assert found.failed_rules == ["states-resume-exactly", "full-refresh-ignores-state"]


@pytest.mark.long
def test_a_tap_for_a_database_passes(packages: Path, postgres: Postgres) -> None:
    postgres.execute(TABLE)
    server = {"host": "127.0.0.1", "port": postgres.port, "database": "postgres", "user": "elt"}
    config = {**server, "password": "hunter22", "filter_schemas": ["public"]}
    cursors = {"public-orders": "updated_at"}
    found = report(TAP, packages, config, tap=True, cursors=cursors)
    assert found.passed, text(found)
    passed = {each.rule for each in found.outcomes if each.status == "passed"}
    assert passed >= {"states-resume-exactly", "final-state-is-final", "no-secret-in-output"}
