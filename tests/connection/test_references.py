"""Loading a connection refuses the references that would be refused when its connector starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError
from tests.connection.test_connection import declare, load

SOURCES: dict[str, dict[str, Any]] = {
    "config": {"config": {"key": {"env": "ELT_HASH_SALT"}}},
    "deep": {"config": {"a": [{"b": {"env": "DAGSTER_PG_PASSWORD"}}]}},
    "environment": {"environment": {"TOKEN": {"env": "ELT_HASH_SALT"}}},
    "list": {"environment": ["DAGSTER_HOME"]},
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_reference_to_a_reserved_variable_is_refused_at_load(
    source: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = declare(source={"command": ["x"], **source})
    with pytest.raises(ConfigError, match=r"variables named ELT_… and DAGSTER_… are not passed"):
        load(tmp_path, document)
    names = "ELT_HASH_SALT, DAGSTER_PG_PASSWORD, DAGSTER_HOME"
    monkeypatch.setenv("ELT_ALLOW_REFERENCES", names)
    load(tmp_path, document)


def test_a_literal_and_other_variables_are_not_refused(tmp_path: Path) -> None:
    config = {"a": {"literal": {"env": "ELT_HASH_SALT"}}, "b": {"env": "NOT_SET"}}
    load(tmp_path, declare(source={"command": ["x"], "config": config}))
