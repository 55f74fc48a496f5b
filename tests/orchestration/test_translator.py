"""The look of streams in Dagster, by default and with a translator."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import types as t

import elt_assets
from elt_assets.connection import Connection, load_catalog, load_connection, place_in
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.orchestration.metadata import column_schema
from elt_assets.protocol.catalog import APPEND_DEDUP, ConfiguredStream
from tests.lake.staging import INTEGER, stream
from tests.programs.windowed_source import calls, windowed
from tests.support.project import REPOSITORY, Project
from tests.support.runs import fetch_materializations, materialize, observations

READINGS = dg.AssetKey(["weather", "readings"])
KEYED: Any = {"destination_sync_mode": "append_dedup", "sync_mode": "incremental"}


class Translator(elt_assets.ConnectionTranslator):
    def get_asset_spec(self, connection: Connection, stream: ConfiguredStream) -> dg.AssetSpec:
        spec = super().get_asset_spec(connection, stream)
        return spec.replace_attributes(key=spec.key.with_prefix("raw"), group_name="raw")


def test_an_asset_has_the_attributes_of_its_stream(own: Project) -> None:
    windowed(own, **KEYED, history=True, owners=["team:weather"], tags={"tier": "gold"})
    own.amend("weather", tags={"tier": "none", "pii": "no"}, group="measured")
    spec = build().resolve_asset_graph().get(READINGS)
    assert spec.group_name == "measured"
    assert spec.owners == ["team:weather"]
    assert {k: v for k, v in spec.tags.items() if "dagster" not in k} == {
        "tier": "gold",
        "pii": "no",
    }
    assert spec.description is not None
    assert spec.description.startswith(
        "What the stations measured.\n\nStream `readings`: incremental"
    )
    columns = {entry.name: entry for entry in spec.metadata["dagster/column_schema"].columns}
    assert columns["station"].description == "Where it was measured."
    assert columns["value"].constraints.nullable is True
    assert columns["_airbyte_raw_id"].constraints.unique is True
    references = spec.metadata["dagster/code_references"].code_references
    assert [Path(entry.file_path).name for entry in references] == ["defs.yaml"]


def test_only_a_key_of_one_column_is_unique_and_not_null() -> None:
    schema = t.StructType([t.StructField(name, t.LongType()) for name in ("id", "part")])
    for key in (["id"], ["id", "part"]):
        keyed = stream({"id": INTEGER, "part": INTEGER}, APPEND_DEDUP, key=key)
        of_id, of_part = (column.constraints for column in column_schema(schema, keyed).columns)
        assert (not of_id.nullable, of_id.unique) == (len(key) == 1,) * 2
        assert (not of_part.nullable, of_part.unique) == (False, False)


def test_a_stream_has_assets_for_its_source_history_and_dead_letter(own: Project) -> None:
    windowed(own, **KEYED, history=True, dead_letter="asset")
    graph = build().resolve_asset_graph()
    source = dg.AssetKey("weather")
    history, dead = (
        dg.AssetKey(["weather", f"readings_{suffix}"]) for suffix in ("history", "dead_letter")
    )
    assert graph.get(READINGS).parent_keys == {source}
    assert graph.get(READINGS).child_keys == {history, dead}
    # A selection such as `weather/*` can be materialised: it holds nothing but what can run.
    selected = dg.AssetSelection.from_coercible(['key:"weather/*"']).resolve(graph)
    assert selected == graph.executable_asset_keys == {READINGS, history, dead}
    assert "calls" not in graph.get(source).metadata["elt/source"]


@pytest.mark.usefixtures("spark")
def test_a_history_is_materialized_with_its_stream(own: Project) -> None:
    windowed(own, **KEYED, history=True, dead_letter="asset", config={"to": "2026-01-02"})
    assert materialize(own, 'key:"weather/readings"').success
    metadata = fetch_materializations(own, "weather", "readings_history")[None]
    assert metadata["dagster/row_count"] == 48
    assert "_is_current" in [column.name for column in metadata["dagster/column_schema"].columns]
    # The dead letter is empty, and has no table yet.
    assert (
        fetch_materializations(own, "weather", "readings_dead_letter")[None]["dagster/row_count"]
        == 0
    )
    (read,) = observations(own, "weather")
    assert (read["elt/stream"], read["elt/records_read"]) == ("weather/readings", 48)


@pytest.mark.usefixtures("spark")
def test_companions_are_selected_with_their_stream_and_alone(own: Project) -> None:
    file = windowed(own, **KEYED, dead_letter="asset", config={"to": "2026-01-02"})
    dead = "readings_dead_letter"
    assert materialize(own, f'key:"weather/{dead}"').success
    assert not calls(file)
    assert not fetch_materializations(own, "weather", dead)
    result = materialize(own, 'key:"weather/*"', op="weather__readings", refresh="none")
    assert result.success
    assert fetch_materializations(own, "weather", dead)[None]["dagster/row_count"] == 0
    keys = {event.asset_key for event in result.get_asset_materialization_events()}
    assert keys == {READINGS, dg.AssetKey(["weather", dead])}


def test_assets_can_be_built_with_a_custom_translator(own: Project) -> None:
    folder = windowed(own, dead_letter="asset").parent / "defs" / "weather"
    assets = elt_assets.build_connection_assets(folder, translator=Translator())
    again = elt_assets.build_connection_assets(
        load_connection(folder), catalog=load_catalog(folder), translator=Translator()
    )
    assert len(again) == len(assets) == 2
    graph = dg.Definitions(assets=assets, resources=elt_assets.resources()).resolve_asset_graph()
    names = ("readings", "readings_dead_letter")
    assert graph.executable_asset_keys == {dg.AssetKey(["raw", "weather", name]) for name in names}
    with pytest.raises(ConfigError, match="pass the folder of the connection, or a `catalog`"):
        elt_assets.build_connection_assets(load_connection(folder))


def test_a_translation_in_the_yaml_is_applied(own: Project) -> None:
    windowed(own)
    own.amend(
        "weather",
        translation={
            "key_prefix": "raw",
            "tags": {"of": "{{ stream.name }}"},
            "owners": ["team:x"],
        },
    )
    spec = build().resolve_asset_graph().get(dg.AssetKey(["raw", "weather", "readings"]))
    assert (spec.tags["of"], spec.owners) == ("readings", ["team:x"])


def test_an_invalid_translation_is_refused(own: Project) -> None:
    windowed(own)
    own.amend("weather", translation={"grupe": "x"})
    with pytest.raises(ConfigError, match="translation: grupe: Extra inputs are not permitted"):
        build()


def test_a_subclass_may_customize_its_asset_specs(own: Project) -> None:
    windowed(own)
    folder = own.root / "defs" / "weather"

    class Mine(elt_assets.ConnectionComponent):
        def get_asset_spec(self, stream: ConfiguredStream) -> dg.AssetSpec:
            return super().get_asset_spec(stream).replace_attributes(group_name="mine")

    (asset,) = Mine.load_at(place_in(folder)).stream_assets()
    assert asset.spec.group_name == "mine"


def test_the_documented_example_works(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed(own, "people")
    (own.root / "connections").symlink_to(own.root / "defs")
    monkeypatch.chdir(own.root)
    text = (REPOSITORY / "docs" / "dagster.md").read_text()
    *_, code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    graph = names["defs"].resolve_asset_graph()
    assert graph.get(dg.AssetKey(["people", "readings"])).owners == ["team:data"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            {"fail_after": "24h", "warn_after": "90m"},
            dg.FreshnessPolicy.time_window(dt.timedelta(hours=24), dt.timedelta(minutes=90)),
        ),
        (
            {"cron": "0 6 * * *", "within": "1h", "timezone": "Europe/Berlin"},
            dg.FreshnessPolicy.cron("0 6 * * *", dt.timedelta(hours=1), "Europe/Berlin"),
        ),
    ],
)
def test_a_freshness_setting_becomes_a_freshness_policy(
    own: Project, setting: Any, expected: dg.FreshnessPolicy
) -> None:
    windowed(own)
    own.amend("weather", freshness=setting)
    assert build().resolve_asset_graph().get(READINGS).freshness_policy == expected


@pytest.mark.parametrize(
    "setting", [{"fail_after": "1h", "warn_after": "2h"}, {"fail_after": "1h", "cron": "0 6 * * *"}]
)
def test_an_invalid_freshness_is_refused_with_the_file(own: Project, setting: Any) -> None:
    windowed(own)
    own.amend("weather", freshness=setting)
    with pytest.raises(ConfigError, match=r"defs\.yaml"):
        build()
