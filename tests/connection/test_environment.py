"""`source.environment`, as people write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.connection.test_connection import declare, load, refusal


def source(environment: Any) -> dict[str, Any]:
    return {"connector": "faker", "environment": environment}


@pytest.mark.parametrize(
    "environment",
    [{"HOST": "h", "PORT": 5432, "TOKEN": {"env": "SHOP_TOKEN"}}, ["HOST", "_x1"], {}, [], None],
)
def test_an_environment_is_a_mapping_of_values_or_a_list_of_names(
    environment: Any, tmp_path: Path
) -> None:
    connection = load(tmp_path, declare(source=source(environment)))
    assert connection.source.environment == environment


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("HOST", "`NAME: value`"),
        ({"A": True}, "A must be a text"),
        ({"A": None}, "A must be a text"),
        ({"A": {"enf": "B"}}, "A must be a text"),
        ({"A": {"env": 5}}, "A must be a text"),
        ({"A-B": "x"}, "'A-B' is not a valid name"),
        ([5], "5 is not a valid name"),
        (["A=x"], "'A=x' is not a valid name"),
    ],
)
def test_an_invalid_environment_is_refused(environment: Any, expected: str, tmp_path: Path) -> None:
    refused = refusal(tmp_path, declare(source=source(environment)))
    assert "source.environment: " in refused and expected in refused
