"""A source whose credential can be used once, and that dies with a new one in its hand."""

from __future__ import annotations

import json

import pytest

from tests.programs.hostile_source import program
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

pytestmark = pytest.mark.usefixtures("spark")

SPECIFICATION = {
    "type": "object",
    "properties": {"token": {"type": "string", "airbyte_secret": True}},
}
ONCE = """
def used(token):
    path = os.path.join({folder!r}, token)
    if os.path.exists(path): fail("the token was used before", failure_type="config_error"); exit(1)
    open(path, "w").close()
if verb == "read":
    token = json.load(open(files["--config"]))["token"]
    used(token)
    say("CONTROL", control={{"type": "CONNECTOR_CONFIG", "emitted_at": 1,
        "connectorConfig": {{"config": {{"token": token + "+"}}}}}})
    print("now it is", token + "+", flush=True)
    if token == "tok-first": os.kill(os.getpid(), 9)
    record({{"id": len(token)}})
"""
CATALOG = {
    "streams": [{"name": "users", "json_schema": {"properties": {"id": {"type": "integer"}}}}]
}


@pytest.mark.usefixtures("details")
@pytest.mark.spec("protocol.161")
def test_the_next_run_uses_a_rotated_credential(
    own: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used = own.root / "used"
    used.mkdir()
    command = program(own.root, ONCE.format(folder=str(used)), SPECIFICATION)
    config = {"token": {"env": "SHOP_TOKEN"}}
    source = {"command": [command], "config": config}
    folder = own.connection("shop", source=source, streams=[{"name": "users"}])
    (folder / "catalog.json").write_text(json.dumps(CATALOG))
    monkeypatch.setenv("SHOP_TOKEN", "tok-first")

    crashed = materialize(own, 'key:"shop/users"')
    assert "SIGKILL" in failure_of(crashed)
    again, third = (materialize(own, 'key:"shop/users"') for _ in range(2))
    assert again.success and third.success
    assert sorted(path.name for path in used.iterdir()) == [
        "tok-first",
        "tok-first+",
        "tok-first++",
    ]
    assert [row["id"] for row in own.rows("shop", "users")] == [10, 11]
    for run in (crashed, again, third):
        assert "tok-first" not in read_log(own, run)
    stderr = capsys.readouterr().err
    assert stderr.count("now it is ****") == 3 and "tok-first" not in stderr
