"""A lake or a staging folder that cannot be written to."""

from __future__ import annotations

import pytest

from tests.programs.windowed_source import calls, windowed
from tests.support.project import Project
from tests.support.runs import failure_of, materialize


@pytest.mark.parametrize("variable", ["ELT_LAKE", "ELT_STAGING"])
def test_an_unwritable_folder_is_reported_before_the_source_is_read(
    own: Project, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (own.root / "file").touch()
    place = own.root / "file" / "below"
    monkeypatch.setenv(variable, str(place))
    file = windowed(own)
    own.amend("weather", retry={"attempts": 2, "delay": "1h"})
    text = failure_of(materialize(own, 'key:"weather/readings"'))
    assert f"cannot be written to: {place}" in text
    assert f"or change {variable}" in text
    assert not calls(file)


def test_the_error_of_the_default_lake_names_dagster_home(own: Project) -> None:
    windowed(own)
    (own.home / "lake").touch()
    text = failure_of(materialize(own, 'key:"weather/readings"'))
    assert f"cannot be written to: {own.home / 'lake'}" in text
    assert "DAGSTER_HOME (or ELT_LAKE)" in text
