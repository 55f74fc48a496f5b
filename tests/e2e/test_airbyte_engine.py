"""Manifests on Airbyte's engine: with components in Python, and any other with `engine: airbyte`.

Spec: Airbyte's low-code manifests, custom components; State & Checkpointing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.messages import State
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import open_connector
from elt_assets.runner.manifests import AIRBYTE_ENGINE
from elt_assets.runner.packages import install
from tests.programs.json_api import JsonApi, Tokens
from tests.programs.python_manifest import (
    COMPONENTS,
    MODULE,
    python_manifest,
    write_manifest,
)
from tests.programs.written_manifest import manifest_text, settings, shop_api, visit
from tests.support.connector_specs import spec_of
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import materialize
from tests.support.source import configure_streams, read_source

pytestmark = pytest.mark.external

Json = dict[str, Any]
TRUSTED = ("components", "source_declarative_manifest")


@pytest.fixture(scope="module")
def engine(packages: Path) -> Path:
    """The folder of packages in which Airbyte's engine is installed."""
    install(AIRBYTE_ENGINE, packages)
    return packages


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with shop_api() as served:
        yield served


class Source:
    """A manifest in a folder, and the API that it reads.

    Args:
        folder: the folder.
        packages: the folder of installed packages.
        api: the API.
    """

    def __init__(self, folder: Path, packages: Path, api: JsonApi):
        self.folder = folder
        self.packages = packages
        self.api = api
        self.log: list[str] = []

    def connector(self, engine: str | None = None, **config: Any) -> Connector:
        spec = spec_of(
            "manifest",
            str(self.folder / "manifest.yaml"),
            self.folder,
            config={**settings(self.api), **config},
            packages=self.packages,
            store=self.folder / "store.json",
            on_log=lambda _, text: self.log.append(text),
            trusted=TRUSTED,
            engine=engine,
        )
        return open_connector(spec)

    def read(
        self, stream: str, states: list[State] | None = None, engine: str | None = None
    ) -> tuple[list[Json], list[State]]:
        """The records and the states of a read."""
        catalog = configure_streams(stream, sync_mode="incremental")
        catalog.streams[0].stream.supported_sync_modes = ["full_refresh", "incremental"]
        output = read_source(self.connector(engine), *states or [], catalog=catalog)
        self.log += [log.message for log in output.logs]
        return output.records, output.states


@pytest.fixture
def source(tmp_path: Path, engine: Path, api: JsonApi) -> Source:
    (tmp_path / "work").mkdir()
    return Source(tmp_path, engine, api)


def test_a_manifest_with_python_works_as_any_other(
    own: Project, elt: Elt, engine: Path, api: JsonApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own.home / "packages").symlink_to(engine)
    manifest = write_manifest(own.root / "downloads")
    words = ["new", "shop", "--manifest", str(manifest), "--config", json.dumps(settings(api))]
    error = elt.refuse(*words)
    assert "the class 'components.UpperExtractor' is Python; it runs only if" in error["message"]
    trust = [word for name in TRUSTED for word in ("--trust", name)]
    answer = elt.json(*words, *trust)
    assert answer["source"] == {"manifest": "manifest.yaml", "trust": list(TRUSTED)}
    assert answer["environment"] == {"SHOP_API_KEY": "config.api_key"}
    folder = own.root / "defs" / "shop"
    assert (folder / "components.py").read_text() == COMPONENTS
    assert "__injected" not in "".join(file.read_text() for file in folder.glob("*.*"))

    monkeypatch.setenv("SHOP_API_KEY", "a-test-key")
    assert elt("validate", "shop") == "valid shop\n"
    records = elt.json("preview", "shop", "stores", "-n", "1")["records"]
    assert records == [{"id": "a", "city": "CITY OF A"}]
    assert api.requests[-1].headers["x-signed"] == "yes"
    records = elt.json("preview", "shop", "orders", "-n", "12")["records"]
    numbers = sorted((record["store"], record["number"]) for record in records)
    assert numbers == [
        *(("a", n) for n in range(3)),
        *(("b", n) for n in range(4)),
        *(("c", n) for n in range(5)),
    ]
    error = elt.refuse("partitions", "shop", "visits")
    assert "does not have the command `partitions`" in error["message"]
    api.tokens = Tokens()
    answer = elt.json("check", "shop", code=1)
    assert "401" in json.dumps(answer) and "a-test-key" not in json.dumps(answer)


def test_a_manifest_with_files_has_documents(
    own: Project,
    elt: Elt,
    engine: Path,
    api: JsonApi,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The engine is chosen because only this one has a FileUploader, and the log says so."""
    (own.home / "packages").symlink_to(engine)
    monkeypatch.setenv("SHOP_API_KEY", "a-test-key")
    for store in api.resources["stores"]:
        store["plan"] = f"{api.url}/all/stores/{store['id']}/orders"
    document = yaml.safe_load(manifest_text("stores"))
    requester = document["definitions"]["stores"]["retriever"]["requester"]
    document["definitions"]["stores"]["file_uploader"] = {
        "type": "FileUploader",
        "requester": {**requester, "url_base": "{{ download_target }}", "path": ""},
        "download_target_extractor": {"type": "DpathExtractor", "field_path": ["plan"]},
        "filename_extractor": "plans/{{ record['id'] }}.json",
    }
    folder = own.connection(
        "shop",
        source={
            "manifest": "manifest.yaml",
            "config": {**settings(api), "api_key": {"env": "SHOP_API_KEY"}},
        },
        streams=[{"name": "stores"}],
    )
    (folder / "manifest.yaml").write_text(yaml.safe_dump(document))
    (described,) = elt.json("discover", "shop")["streams"]
    assert described["is_file_based"] is True
    assert materialize(own, 'key:"shop/stores"').success
    table = own.home / "lake" / "shop" / "stores"
    places = {row["id"]: row["file_reference"] for row in own.rows("shop", "stores")}
    names = {place["source_file_relative_path"] for place in places.values()}
    assert names == {f"stores/plans/{name}.json" for name in "abc"}
    plans = {
        name: json.loads((table / place["path"]).read_text()) for name, place in places.items()
    }
    assert {name: len(plan) for name, plan in plans.items()} == {"a": 3, "b": 4, "c": 5}


def test_a_read_resumes_from_its_state(source: Source) -> None:
    write_manifest(source.folder)
    records, states = source.read("visits")
    assert sorted(record["id"] for record in records) == [100, 123, 200, 223, 300, 323]
    assert {record["day"] for record in records} == {"2026-01-01", "2026-01-02", "2026-01-03"}
    source.api.resources["visits"].append(visit(3, 23) | {"id": 999})
    before = len(source.api.requests)
    records, states = source.read("visits", states[-1:])
    assert 999 in {record["id"] for record in records}
    assert not {record["id"] for record in records} & {100, 123, 200}
    assert source.api.requests[before].parameters()["updated_since"] > "2026-01-03"
    assert not any("a-test-key" in text or "__injected" in text for text in source.log)


def test_a_connection_continues_from_the_state_of_the_other_engine(source: Source) -> None:
    write_manifest(source.folder, yaml.safe_load(manifest_text()), None)
    for first, second in (("ours", "airbyte"), ("airbyte", "ours")):
        records, states = source.read("visits", engine=first)
        assert len(records) == 6
        records, _ = source.read("visits", states[-1:], engine=second)
        assert {record["id"] for record in records} <= {323}


def test_a_state_of_another_form_is_an_error_that_says_so(source: Source) -> None:
    write_manifest(source.folder)
    state = {"stream_descriptor": {"name": "visits"}, "stream_state": {"updated_at": "yesterday"}}
    wrong = State.from_json(json.dumps({"type": "STREAM", "stream": state}))
    with pytest.raises(EltError, match="yesterday"):
        source.read("visits", [wrong])


def test_config_that_is_migrated_is_stored_without_the_manifest(source: Source) -> None:
    document = python_manifest()
    field = {"type": "AddedFieldDefinition", "path": ["region"], "value": "eu"}
    changes = [
        {
            "type": "ConfigAddFields",
            "fields": [field],
            "condition": "{{ not config.get('region') }}",
        }
    ]
    document["spec"]["config_normalization_rules"] = {
        "type": "ConfigNormalizationRules",
        "config_migrations": [{"type": "ConfigMigration", "transformations": changes}],
    }
    write_manifest(source.folder, document)
    assert source.connector().check().succeeded
    stored = (source.folder / "store.json").read_text()
    assert '"eu"' in stored and "injected" not in stored and "DeclarativeSource" not in stored


def test_schemas_in_files_are_read_as_by_the_other_engine(source: Source) -> None:
    document = python_manifest()
    del document["definitions"]["stores"]["schema_loader"]
    document["definitions"]["visits"]["schema_loader"] = {
        "type": "JsonFileSchemaLoader",
        "file_path": "./schemas/visits.json",
    }
    write_manifest(source.folder, document)
    (source.folder / "schemas").mkdir()
    for name in ("stores", "visits"):
        schema = {"type": "object", "properties": {f"{name}_id": {"type": "string"}}}
        (source.folder / "schemas" / f"{name}.json").write_text(json.dumps(schema))
    schemas = {
        stream.id.name: stream.json_schema for stream in source.connector().discover().streams
    }
    for name in ("stores", "visits"):
        assert list(schemas[name]["properties"]) == [f"{name}_id"]


@pytest.mark.parametrize(
    ("class_name", "components", "text"),
    [
        ("components.Day", None, "there is no module 'components', and no file components.py"),
        ("components.Night", COMPONENTS, "the module 'components' has no class 'Night'"),
        ("components.Day", "import no_such_library", "needs the module 'no_such_library'"),
        ("components.Day", "1 / 0", "the module 'components' cannot be imported: ZeroDivision"),
    ],
)
def test_a_class_that_cannot_be_found_is_an_error_that_names_it(
    source: Source, class_name: str, components: str | None, text: str
) -> None:
    document = yaml.safe_load(manifest_text("visits"))
    document["definitions"]["visits"]["transformations"] = [
        {"type": "CustomTransformation", "class_name": class_name}
    ]
    write_manifest(source.folder, document, components)
    with pytest.raises(ConfigError, match="components") as caught:
        source.connector().discover()
    assert text in caught.value.message


def test_python_that_only_the_config_names_is_not_run(source: Source) -> None:
    """A template of a dynamic stream takes the name of a class from the config."""
    document = yaml.safe_load(manifest_text("visits"))
    template = {**document["definitions"]["visits"], "name": "any"}
    template["transformations"] = [{"type": "CustomTransformation", "class_name": f"{MODULE}.Day"}]
    mapping = {
        "type": "ComponentMappingDefinition",
        "field_path": ["transformations", "0", "class_name"],
        "value": "{{ components_values['class'] }}",
    }
    document["dynamic_streams"] = [
        {
            "type": "DynamicDeclarativeStream",
            "name": "dynamic",
            "stream_template": template,
            "components_resolver": {
                "type": "ConfigComponentsResolver",
                "stream_config": {"type": "StreamConfig", "configs_pointer": ["listed"]},
                "components_mapping": [mapping],
            },
        }
    ]
    write_manifest(source.folder, document)
    with pytest.raises(ConfigError, match=r"'subprocess\.Popen' is Python; it runs only if"):
        source.connector(listed=[{"class": "subprocess.Popen"}]).discover()


def test_a_manifest_that_the_engine_refuses_is_an_error_that_names_the_place(
    source: Source,
) -> None:
    document = python_manifest()
    document["definitions"]["visits"]["incremental_sync"]["cursor_field"] = ["updated_at"]
    write_manifest(source.folder, document)
    with pytest.raises(ConfigError, match=r"Airbyte's engine refuses the manifest: .*updated_at"):
        source.connector().discover()


@pytest.mark.usefixtures("spark")
def test_a_window_is_bound_to_the_config(own: Project, engine: Path, api: JsonApi) -> None:
    (own.home / "packages").symlink_to(engine)
    bind = {"start": "start_date", "end": "end_date", "format": "%Y-%m-%dT%H:%M:%SZ"}
    daily = {"type": "daily", "start": "2026-01-01", "bind": {**bind, "inclusive": True}}
    folder = own.connection(
        "shop",
        source={"manifest": "manifest.yaml", "engine": "airbyte", "config": settings(api)},
        streams=[{"name": "visits", "partitions": daily}],
    )
    write_manifest(folder, yaml.safe_load(manifest_text()), None)
    own.discover("shop")
    days = [f"2026-01-{day:02}" for day in (1, 2, 3)]
    assert materialize(own, 'key:"shop/visits"', partition=days[0], through=days[1]).success
    api.resources["visits"][0]["id"] = 1
    before = len(api.requests)
    for day in (days[0], days[2]):
        assert materialize(own, 'key:"shop/visits"', partition=day).success
    windows = [request.parameters() for request in api.requests[before:]]
    assert [(window["updated_since"], window["updated_until"]) for window in windows] == [
        (f"{day}T00:00:00Z", f"{day}T23:59:59Z") for day in (days[0], days[2])
    ]
    rows = sorted((row["_elt_partition"], row["id"]) for row in own.rows("shop", "visits"))
    numbers = [1, 123, 200, 223, 300, 323]
    assert rows == list(zip(sorted(days * 2), numbers, strict=True))


@pytest.mark.long
def test_a_source_on_the_engine_follows_the_rules_of_its_protocol(
    own: Project, elt: Elt, engine: Path, api: JsonApi
) -> None:
    (own.home / "packages").symlink_to(engine)
    folder = own.connection(
        "shop",
        source={
            "manifest": "manifest.yaml",
            "trust": list(TRUSTED),
            "config": settings(api),
        },
        streams=[{"name": "stores"}],
    )
    write_manifest(folder)
    assert elt.json("test-connector", "shop", "--cuts", "1")
