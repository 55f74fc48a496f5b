"""Third-party Airbyte connectors from PyPI, unmodified, in every mode that they have, twice."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from elt_assets.connection import load_connection
from elt_assets.pipeline.connectors import make_source
from elt_assets.protocol.catalog import Catalog
from elt_assets.protocol.codec import decode, encode
from elt_assets.protocol.messages import Message
from elt_assets.runner.packages import install
from tests.programs.orders_api import Orders, serving
from tests.support.project import Project
from tests.support.runs import fetch_materializations, materialize

FAKER = "airbyte-source-faker==7.2.1"
HARDCODED = "airbyte-source-hardcoded-records==0.0.48"
MANIFEST = "airbyte-source-declarative-manifest==6.5.2"

pytestmark = [pytest.mark.external, pytest.mark.usefixtures("spark")]

KEYED: dict[str, Any] = {"primary_key": [["id"]]}


@pytest.fixture
def project(own: Project, packages: Path) -> Project:
    (own.home / "packages").symlink_to(packages)
    return own


def discover(project: Project, name: str) -> None:
    folder = project.root / "defs" / name
    catalog = make_source(load_connection(folder), project.root / "work").discover()
    (folder / "catalog.json").write_bytes(catalog.to_json())


@pytest.mark.long
def test_source_hardcoded_records_runs_in_every_mode(project: Project) -> None:
    """The stream is read in full alone, so its modes are the policies."""
    policies = ["append", "overwrite_dedup"]
    count = 100
    for policy in policies:
        products = {"name": "products", "destination_sync_mode": policy, **KEYED}
        project.connection(
            f"with_{policy}",
            source={"package": HARDCODED, "config": {"count": count}},
            streams=[products, {"name": "dummy_fields"}] if policy == "append" else [products],
        )
        discover(project, f"with_{policy}")
    groups = " or ".join(f"group:with_{policy}" for policy in policies)
    for turn in (1, 2):
        assert materialize(project, groups).success
        for policy in policies:
            rows = project.rows(f"with_{policy}", "products")
            keys = len({row["id"] for row in rows})
            expected = {"append": count * turn}.get(policy, keys)
            assert len(rows) == expected
            metadata = fetch_materializations(project, f"with_{policy}", "products")[None]
            assert (metadata["elt/records_read"], metadata["elt/records_rejected"]) == (count, 0)
            assert metadata["elt/records_changed"] == 0
        assert len(project.rows("with_append", "dummy_fields")) == count * turn


@pytest.mark.spec("builder.2")
@pytest.mark.long
@pytest.mark.parametrize("policy", ["append", "append_dedup"])
def test_a_low_code_source_resumes_from_its_cursor(project: Project, policy: str) -> None:
    with serving(Orders(60)) as api:
        config = {"__injected_declarative_manifest": api.manifest()}
        stream = {"name": "orders", "sync_mode": "incremental", "destination_sync_mode": policy}
        # Of these dependencies, the versions that it needs have no wheels.
        install = {"source_distributions": ["genson", "pendulum"]}
        source = {"package": MANIFEST, "install": install}
        project.connection("api", source={**source, "config": config}, streams=[stream])
        discover(project, "api")
        assert materialize(project, "group:api").success
        assert sorted(row["id"] for row in project.rows("api", "orders")) == list(range(60))
        query_count = len(api.queries)
        api.count = 80
        assert materialize(project, "group:api").success
        assert min(query["since"] for query in api.queries[query_count:]) >= "2024-01-03"
        ids = sorted(row["id"] for row in project.rows("api", "orders"))
        # Its cursor is inclusive: what lies on it is sent again, and `append` keeps that.
        assert sorted(set(ids)) == list(range(80))
        assert len(ids) == 80 or policy == "append"
        state = project.committed_state("api", "orders")
        assert state["stream"]["stream_state"]["updated_at"].startswith("2024-01-0")


def _output_lines(program: Path, verb: str, folder: Path, **files: Any) -> list[bytes]:
    arguments = []
    for name, value in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(value))
        arguments += [f"--{name}", str(path)]
    done = subprocess.run([program, verb, *arguments], capture_output=True, check=True, timeout=300)
    return [line for line in done.stdout.split(b"\n") if line.strip()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "config"), [(FAKER, {"count": 50, "seed": 1}), (HARDCODED, {"count": 5})]
)
def test_decoded_messages_of_packages_lose_no_data(
    project: Project, package: str, config: dict[str, Any]
) -> None:
    program = install(package, project.home / "packages")
    lines = _output_lines(program, "spec", project.root)
    lines += _output_lines(program, "check", project.root, config=config)
    discover = _output_lines(program, "discover", project.root, config=config)
    messages = [decode(line, whole=True) for line in discover]
    (catalog,) = (m.catalog for m in messages if isinstance(m, Message) and m.catalog is not None)
    configured = {
        "streams": [
            {
                "stream": json.loads(stream.to_json()),
                "sync_mode": stream.sync_modes[-1],
                "cursor_field": stream.default_cursor_field,
                "destination_sync_mode": "append",
            }
            for stream in catalog.streams
        ]
    }
    lines += discover
    lines += _output_lines(program, "read", project.root, config=config, catalog=configured)
    kinds: Counter[str] = Counter()
    for line in lines:
        message = decode(line, whole=True)
        assert isinstance(message, Message)
        assert json.loads(encode(message)) == json.loads(line)
        kinds[message.type] += 1
    assert set(kinds) >= {"SPEC", "CONNECTION_STATUS", "CATALOG", "RECORD", "STATE", "TRACE"}
    assert Catalog.from_json(catalog.to_json()) == catalog
