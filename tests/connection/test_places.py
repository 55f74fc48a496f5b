"""Where the connections of a project are found, and by what they are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from elt_assets.connection import (
    COMPONENT,
    check_names,
    find_place,
    list_places,
    load_catalog,
    load_connection,
    save_catalog,
)
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import Catalog


def document(name: str, kind: str = COMPONENT) -> dict[str, object]:
    source = {"connector": "faker", "config": {"count": 10}}
    attributes = {"name": name, "source": source, "streams": [{"name": "users"}]}
    return {"type": kind, "attributes": attributes}


def write(folder: Path, *documents: object, file: str = "defs.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text(yaml.safe_dump_all(documents))
    return path


@pytest.fixture
def defs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELT_DEFS", str(tmp_path))
    return tmp_path


def names() -> list[str]:
    return [place.name for place in list_places()]


def test_connections_are_found_where_dagster_finds_components(defs: Path) -> None:
    write(defs / "shop", document("shop"))
    write(defs / "raw" / "crm", document("crm"), file="defs.yml")
    write(defs / "raw" / "two", document("left"), document("right"))
    write(defs / "group", {"type": "dagster.DefsFolderComponent"})
    write(defs / "group" / "inner", document("inner"))
    write(defs / "shop" / "below", document("hidden"))  # Dagster looks no deeper than a component
    write(defs / ".backup" / "shop", document("old"))
    write(defs / "__pycache__" / "shop", document("compiled"))
    write(defs / "other", {"type": "dagster.TemplatedSqlComponent", "attributes": {"name": "sql"}})
    assert names() == ["crm", "inner", "left", "right", "shop"]


def test_a_connection_is_known_by_its_name_or_its_folder(defs: Path) -> None:
    write(defs / "raw" / "crm_2024", document("crm"))
    for text in ("crm", "crm_2024", "raw/crm_2024", str(defs / "raw" / "crm_2024")):
        place = find_place(text)
        assert (place.name, place.folder) == ("crm", defs / "raw" / "crm_2024")
        assert load_connection(place).name == "crm"
    with pytest.raises(ConfigError, match=r"no connection 'crmm'[^$]*known connections: crm"):
        find_place("crmm")


def test_connections_of_one_file_have_a_catalog_each(defs: Path) -> None:
    write(defs / "two", document("left"), document("right"))
    save_catalog(find_place("left"), Catalog(streams=[]))
    assert (defs / "two" / "catalog.left.json").is_file()
    assert load_catalog(find_place("left")).streams == []
    assert load_connection(find_place("right")).name == "right"
    with pytest.raises(ConfigError, match=r"catalog\.right\.json does not exist"):
        load_catalog(find_place("right"))
    with pytest.raises(ConfigError, match="has 2 connections"):
        find_place("two/")


def test_two_connections_of_one_name_are_refused(defs: Path) -> None:
    write(defs / "a", document("shop"))
    write(defs / "b", document("shop"))
    with pytest.raises(ConfigError, match="is not one connection"):
        find_place("shop")
    with pytest.raises(ConfigError, match="both define a connection 'shop'"):
        check_names(list_places())


def test_a_broken_file_is_a_connection_of_its_folder(defs: Path) -> None:
    write(defs / "good", document("good"))
    write(defs / "bad").write_text("type: [")
    write(defs / "far", document("far", "acme.missing.TeamConnection"))
    assert names() == ["bad", "far", "good"]
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_connection(find_place("bad"))
    with pytest.raises(ConfigError, match=r"is not a connection: type: .*cannot be loaded"):
        load_connection(find_place("far"))


def test_a_subclass_of_the_component_is_a_connection(
    defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = defs / "code"
    code.mkdir()
    (code / "team_lib.py").write_text(
        "from elt_assets import ConnectionComponent\n\n\n"
        "class TeamConnection(ConnectionComponent):\n"
        "    team: str\n"
        "    read_together: bool = True\n\n\n"
        "class NoConnection:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(code))
    own = document("crm", "team_lib.TeamConnection")
    write(defs / "crm", own)
    write(defs / "none", document("none", "team_lib.NoConnection"))
    assert names() == ["crm"]
    with pytest.raises(ConfigError, match="team"):
        load_connection(find_place("crm"))
    own["attributes"]["team"] = "core"  # type: ignore[index]
    write(defs / "crm", own)
    connection = load_connection(find_place("crm"))
    assert type(connection).__name__ == "TeamConnection"
    assert connection.read_together
    assert connection.team == "core"  # type: ignore[attr-defined]
