"""Alerts to Slack, Teams and by e-mail: once, grouped, with an all-clear, and not lost if one is down."""

from __future__ import annotations

import datetime as dt
import email
import json
import logging
from collections.abc import Iterator
from email.policy import default
from typing import Any

import dagster as dg
import pytest

from elt_assets.cli import main
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.orchestration import alert_sensor
from elt_assets.pipeline.alert_targets import Alert, list_targets
from elt_assets.settings import settings
from tests.cli.test_status_overview import age, fail
from tests.orchestration.ticking import run_job, tick
from tests.programs.json_api import Answer
from tests.programs.mail_server import MailServer
from tests.programs.recording_api import RecordingApi, in_turn, serving
from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.project import Project

SENSOR = "elt_alerts"
SECRET_PATH = "services/T0SECRET/B0SECRET"
LOGIN = ("elt", "smtp-password")


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi()) as server:
        yield server


def configure(monkeypatch: pytest.MonkeyPatch, api: RecordingApi, **more: Any) -> None:
    monkeypatch.setenv("SLACK_URL", f"{api.url}/{SECRET_PATH}")
    alerts = {"slack": {"env": "SLACK_URL"}, **more}
    monkeypatch.setenv("ELT_ALERTS", json.dumps(alerts))


def name_streams(project: Project, connection: str, *names: str) -> None:
    """Give a connection these streams in place of `things`."""
    folder = project.root / "defs" / connection
    catalog = json.loads((folder / "catalog.json").read_text())
    catalog["streams"] = [{**catalog["streams"][0], "name": name} for name in names]
    (folder / "catalog.json").write_text(json.dumps(catalog))
    streams = [{"name": name, "sync_mode": "incremental"} for name in names]
    project.amend(connection, streams=streams)


def texts(api: RecordingApi) -> list[str]:
    return [request.json["text"] for request in api.requests]


def test_each_target_is_told_once_of_all_and_then_that_it_is_over(
    own: Project, elt: Elt, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, fail("the <password> of crm & others is wrong"), name="shop")
    name_streams(own, "shop", "orders", "users", "carts")
    assert main(["sync", "shop"]) == 2
    elt.capture.readouterr()
    with MailServer(login=LOGIN) as server:
        monkeypatch.setenv("SMTP_PASSWORD", LOGIN[1])
        monkeypatch.setenv("TEAMS_URL", f"{api.url}/teams")
        mail = {"to": ["a@example.com", "b@example.com"], "from": "elt@example.com",
                "host": "127.0.0.1", "port": server.port, "security": "none",
                "user": LOGIN[0], "password": {"env": "SMTP_PASSWORD"}}  # fmt: skip
        configure(monkeypatch, api, teams={"env": "TEAMS_URL"}, email=mail)
        monkeypatch.setenv("ELT_UI_URL", "https://dagster.example.com")
        cursor = tick(own, SENSOR).cursor
        for _ in range(2):
            cursor = tick(own, SENSOR, cursor).cursor
        by_path = {request.path: request.json for request in api.requests}
        assert len(api.requests) == 2 and len(server.mails) == 1
        text = by_path[f"/{SECRET_PATH}"]["text"]
        assert text.splitlines()[0] == "*elt: 3 failed*"
        assert (
            "3 × failed: shop/carts, shop/orders, shop/users: the &lt;password&gt; of crm &amp; others"
            " is wrong (`read` of the connector of shop ended with exit code 1)\n"
            "next: elt sync shop orders"
        ) in text
        assert "connector python" not in text and "https://dagster.example.com" in text
        card = by_path["/teams"]["attachments"][0]["content"]
        assert card["body"][0]["text"] == "elt: 3 failed"
        assert "the <password> of crm & others is wrong" in card["body"][1]["text"]
        letter = email.message_from_string(server.mails[0], policy=default)
        assert (letter["Subject"], letter["From"]) == ("elt: 3 failed", "elt@example.com")
        assert server.recipients == [["a@example.com", "b@example.com"]]
        assert "3 × failed: shop/carts" in letter.get_content()
        script(own, [state(1)], name="shop")
        name_streams(own, "shop", "orders", "users", "carts")
        elt("sync", "shop")
        for _ in range(2):
            cursor = tick(own, SENSOR, cursor).cursor
        assert len(api.requests) == 4 and len(server.mails) == 2
        assert api.requests[-1].body and "elt: all clear for 3" in server.mails[1]
        all_clear = "All clear: shop/carts (failed), shop/orders (failed), shop/users (failed)"
        assert all_clear in "".join(text for text in map(str, api.requests[2:]))
        assert cursor is not None and json.loads(cursor)["problems"] == {}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(503), "slack answered with status 503"),
        (Answer(404), "slack answered with status 404"),
        (
            Answer(302, headers={"Location": "http://127.0.0.1:9/"}),
            "slack answered with status 302",
        ),
        (Answer(delay=3), "no answer after 1 seconds"),
    ],
)
def test_a_target_that_is_down_is_named_and_told_later(
    own: Project,
    elt: Elt,
    api: RecordingApi,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    reason: str,
) -> None:
    script(own, fail("no entry"))
    assert main(["sync", "scripted"]) == 2
    elt.capture.readouterr()
    monkeypatch.setattr(alert_sensor, "WAIT", 1.0)
    api.script = in_turn(answer, {})
    configure(monkeypatch, api)
    done = tick(own, SENSOR)
    assert reason in str(done.skip_message)
    log = elt.capture.readouterr().err
    assert "slack was not told, and is told at the next tick" in log and "T0SECRET" not in log
    assert "T0SECRET" not in str(done)
    done = tick(own, SENSOR, done.cursor)
    assert "1 problems are known" in str(done.skip_message)
    assert len(api.requests) == 2 and "failed: scripted/things: no entry" in texts(api)[1]


def test_a_target_that_is_down_keeps_no_other_one_from_its_alert(
    own: Project, elt: Elt, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, fail("no entry"))
    assert main(["sync", "scripted"]) == 2
    elt.capture.readouterr()
    api.script = in_turn(Answer(500), {})
    with MailServer() as server:
        mail = {"to": ["a@example.com"], "from": "b@example.com", "host": "127.0.0.1",
                "port": server.port, "security": "none"}  # fmt: skip
        configure(monkeypatch, api, email=mail)
        cursor = tick(own, SENSOR).cursor
        assert len(server.mails) == 1
        tick(own, SENSOR, cursor)
        assert len(server.mails) == 1 and len(api.requests) == 2
        assert "no entry" in server.mails[0] and "no entry" in texts(api)[1]


def test_stale_streams_and_failed_jobs_are_told_by_their_names(
    own: Project, elt: Elt, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [state(1)], name="late", schedule="0 * * * *")
    elt("sync", "late")
    age(own, "late", dt.timedelta(days=2))
    script(own, [], name="locked", specification={"type": "object", "required": ["host"]})
    assert not run_job(own, "locked_check").success
    configure(monkeypatch, api)
    cursor = tick(own, SENSOR).cursor
    (text,) = texts(api)
    assert text.splitlines()[0] == "*elt: 1 stale, 1 failed*"
    assert 'stale: late/things: schedule: "0 * * * *" (UTC)' in text
    assert "failed: job locked_check: the config of the connector of locked violates" in text
    assert "'host' is a required property" in text
    script(own, [], name="locked")
    assert run_job(own, "locked_check").success
    elt("sync", "late")
    tick(own, SENSOR, cursor)
    assert "All clear: job locked_check (failed), late/things (stale)" in texts(api)[1]


@pytest.mark.usefixtures("spark")
def test_failed_checks_and_new_columns_are_told_once(
    own: Project, elt: Elt, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"id": {"type": "integer"}, "name": {"type": "string"}}
    script(own, [record(id=1, name="a"), state(1)], checks={"not_null": "name"}, schema=schema)
    elt("sync", "scripted")
    configure(monkeypatch, api)
    cursor = tick(own, SENSOR).cursor
    assert api.requests == []
    more = {**schema, "size": {"type": "integer"}}
    script(own, [record(id=2, size=3), state(2)], checks={"not_null": "name"}, schema=more)
    assert main(["sync", "scripted"]) == 3
    elt.capture.readouterr()
    for _ in range(2):
        cursor = tick(own, SENSOR, cursor).cursor
    (text,) = texts(api)
    assert text.splitlines()[0] == "*elt: 1 failed checks, 1 new columns*"
    assert "failed checks: scripted/things: the check not_null_name failed (severity ERROR)" in text
    assert "new columns: scripted/things: " in text and "size" in text
    configure(monkeypatch, api, on=["stale"])  # what nobody wants to know any more is over
    tick(own, SENSOR, cursor)
    assert len(api.requests) == 2 and "All clear: scripted/things (check)" in texts(api)[1]


def test_warnings_are_told_by_choice(
    own: Project, elt: Elt, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [state(1)], checks={"row_count": {"min": 1, "severity": "warn"}})
    elt("sync", "scripted")
    configure(monkeypatch, api)
    tick(own, SENSOR)
    assert api.requests == []
    configure(monkeypatch, api, warnings=True)
    tick(own, SENSOR)
    assert "the check row_count failed (severity WARN)" in texts(api)[0]


def test_the_sensor_is_there_and_on_by_the_settings(
    own: Project, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [])
    assert not build().get_repository_def().has_sensor_def(SENSOR)
    configure(monkeypatch, api)
    monkeypatch.delenv("SLACK_URL")  # loading needs no secret
    sensor = build().get_repository_def().get_sensor_def(SENSOR)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    configure(monkeypatch, api, default_status="stopped")
    sensor = build().get_repository_def().get_sensor_def(SENSOR)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    wrong: Any
    for wrong in ({}, {"slack": "https://hooks.slack.com/x"}, {"email": {"to": []}}):
        monkeypatch.setenv("ELT_ALERTS", json.dumps(wrong))
        with pytest.raises(ConfigError, match="alerts"):
            settings()


def test_a_target_says_what_is_wrong_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mail = {"to": ["a@example.com"], "from": "b@example.com", "host": "127.0.0.1", "security": "none",
            "user": "elt", "password": {"env": "SMTP_PASSWORD"}}  # fmt: skip

    def send(port: int, url: str) -> list[str]:
        monkeypatch.setenv("SLACK_URL", url)
        alerts = {"slack": {"env": "SLACK_URL"}, "email": {**mail, "port": port}}
        monkeypatch.setenv("ELT_ALERTS", json.dumps(alerts))
        configured = settings().alerts
        assert configured is not None
        errors = []
        for target in list_targets(configured):
            with pytest.raises(
                Exception, match=target.name if target.name == "slack" else "mail"
            ) as info:
                target.send(Alert("a\r\nBcc: c@example.com", ["b"]))
            errors.append(str(info.value))
        return errors

    monkeypatch.setenv("SMTP_PASSWORD", "wrong-password")
    with MailServer(login=LOGIN) as server:
        slack, refused = send(server.port, "T0SECRET")
        assert "alerts.slack is not the URL of a webhook" in slack
        assert "refuses the login" in refused and "[tool.elt.alerts.email]" in refused
        assert server.mails == []
        monkeypatch.setenv("SMTP_PASSWORD", LOGIN[1])
        port = server.port
    slack, down = send(port, "http://127.0.0.1:9/T0SECRET")
    assert "slack does not answer" in slack and "has not taken the alert" in down
    assert "T0SECRET" not in caplog.text + slack and "password" not in caplog.text + down
