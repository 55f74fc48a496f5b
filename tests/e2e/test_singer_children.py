"""Taps of three versions of the Singer SDK, in which streams are read by way of their parents."""

from __future__ import annotations

import pytest

from tests.support.project import Project, environment_with

pytestmark = [pytest.mark.external, pytest.mark.long]

VERSIONS = ["0.34.1", "0.44.3", "0.54.9"]
SETUPTOOLS = "setuptools==80.9.0"
"""The SDK 0.34 imports `pkg_resources`, which later releases do not have."""
TAP = """
from singer_sdk import Stream, Tap
from singer_sdk import typing as th


def schema(*names):
    return th.PropertiesList(*(th.Property(name, th.IntegerType) for name in names)).to_dict()


class Parents(Stream):
    name, primary_keys, replication_key = "parents", ["id"], "at"
    schema = schema("id", "at")

    def get_records(self, context):
        start = self.get_starting_replication_key_value(context) or 0
        yield from ({"id": n, "at": n} for n in (1, 2, 3) if n >= start)

    def get_child_context(self, record, context):
        return {"parent": record["id"]}


class Children(Stream):
    name, primary_keys, parent_stream_type = "children", ["parent", "n"], Parents
    schema = schema("parent", "n")

    def get_records(self, context):
        yield from ({"parent": context["parent"], "n": n} for n in (1, 2))

    def get_child_context(self, record, context):
        return {"parent": record["parent"], "child": record["n"]}


class Grandchildren(Stream):
    name, primary_keys, parent_stream_type = "grandchildren", ["parent", "child"], Children
    schema = schema("parent", "child")

    def get_records(self, context):
        yield dict(context)


class Family(Tap):
    name = "tap-family"
    config_jsonschema = th.PropertiesList(th.Property("x", th.StringType)).to_dict()

    def discover_streams(self):
        return [stream(self) for stream in (Parents, Children, Grandchildren)]
"""
START = "import sys; sys.path.insert(0, {folder!r}); from family.tap import Family; Family.cli()"


@pytest.mark.spec("sdk.6")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_child_is_read_without_its_parent(version: str, project: Project) -> None:
    python = environment_with(project.home / "packages", f"singer-sdk=={version}", SETUPTOOLS)
    folder = project.root / "family"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "tap.py").write_text(TAP)
    start = START.format(folder=str(project.root))
    project.connection(
        "family",
        source={"tap": [str(python), "-c", start], "config": {}},
        streams=[
            {
                "name": "parents",
                "sync_mode": "incremental",
                "cursor_field": ["at"],
                "destination_sync_mode": "append_dedup",
            },
            {"name": "children", "destination_sync_mode": "append"},
            {"name": "grandchildren", "destination_sync_mode": "overwrite"},
        ],
    )
    project.discover("family")
    for _ in range(2):
        project.sync("group:family")

    counts = {
        name: len(project.rows("family", name)) for name in ("parents", "children", "grandchildren")
    }
    assert counts == {"parents": 3, "children": 12, "grandchildren": 6}
