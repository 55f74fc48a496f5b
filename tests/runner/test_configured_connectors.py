"""Commands of connectors as people write them: kinds, installation, containers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.runner.container import ContainerOptions
from elt_assets.runner.packages import Installation
from tests.connection.test_connection import declare, load, refusal
from tests.support.project import REPOSITORY

PACKAGE = "source-x==1.0"


@pytest.mark.parametrize(
    ("connector", "expected"),
    [
        ({"package": "source-x"}, "package: 'source-x' names no exact version; write `name==version`"),
        ({"package": "source-x>=1"}, "name==version"),
        ({"image": "--volume=/:/host"}, "image: '--volume=/:/host' is not an image reference"),
        ({"package": PACKAGE, "container": {}}, "`container` is only for `image`"),
        ({"command": ["x"], "install": {}}, "`install` is only for what is installed"),
        ({"image": "x:1", "container": {"netwrk": "none"}}, "did you mean 'network'?"),
        ({"image": "x:1", "container": {"memory": "much"}}, "memory: 'much' is not a size"),
        ({"image": "x:1", "container": {"volumes": ["/a"]}}, "volumes: '/a' is not of the form"),
        ({"image": "x:1", "container": {"pull": "often"}}, "container.pull: "),
        ({"package": PACKAGE, "install": {"sdist": 1}}, "install: unknown key 'sdist'"),
        ({"package": PACKAGE, "install": {"seconds": 0}}, "greater than 0"),
        ({"package": PACKAGE, "install": {"source_distributions": ["-r"]}}, "'-r' is not a package name"),
        ({"package": PACKAGE, "install": {"lock_file": "no.lock"}}, "there is no file"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["source", "destination"])
def test_invalid_connectors_are_refused_at_load(
    place: str, connector: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    refused = refusal(tmp_path, declare(**{place: connector}))
    assert f"{place}" in refused and expected in refused


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            {"connector": "fakr"},
            "connector: there is no built-in connector 'fakr'; there are: faker",
        ),
        ({"manifest": "manifest.yaml"}, "manifest: there is no manifest "),
        ({"tap": "tap-x"}, "names no exact version"),
        ({"tap": ["tap-x"], "install": {}}, "`install` is only for what is installed"),
    ],
)
def test_invalid_kinds_of_source_are_refused_at_load(
    source: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    assert expected in refusal(tmp_path, declare(source=source))


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    refused = refusal(
        tmp_path,
        declare({"sync_mod": "x"}, source={"connector": "fakr"}, destination={"package": "x"}),
    )
    assert "fakr" in refused and "no exact version" in refused and "sync_mode" in refused


@pytest.mark.parametrize("key", ["install", "container"])
def test_each_option_is_documented_and_its_example_loads(key: str, tmp_path: Path) -> None:
    document = (REPOSITORY / "docs" / "connections.md").read_text()
    section = next(part for part in document.split("\n## ") if f"| key of `{key}` |" in part)
    kind = {"install": Installation, "container": ContainerOptions}[key]
    named = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    fields = [field.name for field in dataclasses.fields(kind)]
    assert named == [name for name in fields if name != "python"]  # a key of the source itself
    examples = re.findall(r"^```yaml\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "requirements.lock").touch()
    sources = [load(tmp_path, declare(**yaml.safe_load(example))).source for example in examples]
    assert any(getattr(source, key) is not None for source in sources)


def test_options_of_an_installation_are_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").touch()
    install = {"lock_file": "requirements.lock", "source_distributions": ["x"], "seconds": 60}
    for kind in ("package", "tap"):
        source = load(tmp_path, declare(source={kind: PACKAGE, "install": install})).source
        assert source.install == Installation(["x"], tmp_path / "requirements.lock", 60)


def test_options_of_a_container_are_read(tmp_path: Path) -> None:
    container = {"network": "none", "volumes": ["/a:/a"], "memory": None, "new_privileges": True}
    source = load(tmp_path, declare(source={"image": "x:1", "container": container})).source
    assert source.container == ContainerOptions(
        network="none", volumes=["/a:/a"], memory=None, new_privileges=True
    )
