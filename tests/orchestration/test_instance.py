"""A `dagster.yaml` that cannot be used is refused with its place and its remedy, and quotes no value."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError
from elt_assets.orchestration.instance import open_instance

LOGIN = "username: elt, password: hunter22, hostname: 127.0.0.1"


def refusal(home: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of opening an instance with this file, which must be about the file alone."""
    (home / "dagster.yaml").write_text(text)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with pytest.raises(ConfigError) as caught:
        open_instance()
    message = str(caught.value)
    assert str(home / "dagster.yaml") in message
    assert "hunter22" not in message
    assert [path.name for path in home.iterdir() if path.suffix == ".db"] == []
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: [", "is not valid YAML in line 1"),
        (
            f"storage: {{postgre: {{postgres_db: {{{LOGIN}}}}}}}",
            'config entry "postgre" at path root',
        ),
        (f"storage: {{postgres: {{postgres_db: {{{LOGIN}}}}}}}", "db_name"),
        (
            "storage: {postgres: {postgres_url: {env: NOT_SET}}}",
            'variable "NOT_SET" which is not set',
        ),
        (
            "storage: {postgres: {postgres_url: {url: hunter22}}}",
            "root:storage:postgres:postgres_url",
        ),
        ("storage: {custom: {module: nix, class: A}}", "Couldn't import module nix"),
    ],
)
def test_an_invalid_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    error = refusal(tmp_path, text, monkeypatch)
    assert message in error
    assert len(error) < 600, error


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = (
        "storage: {postgres: {postgres_url: 'postgresql+psycopg://elt:hunter22@127.0.0.1/elt'}}"
    )
    assert "elt-assets[postgres]" in refusal(tmp_path, driver, monkeypatch)
    for module in [name for name in sys.modules if name.startswith("dagster_postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    url = "storage: {postgres: {postgres_url: 'postgresql://elt:hunter22@127.0.0.1/elt'}}"
    assert "elt-assets[postgres]" in refusal(tmp_path, url, monkeypatch)
