"""The conformance kit on sources and taps that are broken on purpose, and on those that are not."""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.testing import RULES, Kit, KitOptions, Report
from connectors.testing.cli import main
from connectors.testing.connector import Processes
from connectors.testing.findings import FAILED, NOT_CHECKED, PASSED
from connectors.testing.process import Ended, Listener, Stopped
from elt_assets.errors import ConfigError
from tests.programs.broken import base
from tests.programs.broken.base import CONFIG
from tests.programs.broken.cursor import CursorSource
from tests.programs.broken.sliced import DEFECTS

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parents[2] / "programs" / "broken"
BROKEN = sorted(
    path.stem
    for path in FOLDER.glob("*.py")
    if path.stem not in ("base", "cursor", "sliced", "tap")
)
"""The programs: each is named by the rule that it violates, and a word more if it is not the only one."""
OF_SLICES = set.union(*DEFECTS.values())
"""The rules about slices: see `test_slices`."""


def program(name: str, *words: str) -> list[str]:
    return [sys.executable, "-S", "-m", f"tests.programs.broken.{name}", *words]


def in_this_process(command: Sequence[str], stdout: Path, stderr: Path, _seconds: float) -> Ended:
    """Run a broken source in this process: the processes of all of them would take ten seconds."""
    module, code = importlib.import_module(command[3]), 0
    source = module.Broken() if hasattr(module, "Broken") else module.Source()
    handler = signal.getsignal(signal.SIGTERM)
    with (
        stdout.open("w") as out,
        stderr.open("w") as log,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(log),
    ):
        try:
            base.main(source, command[4:])
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.signal(signal.SIGTERM, handler)  # one of the programs ignores it
    return Ended(code, 0.0)


def stopped_at_once(command: Sequence[str], _: Path, after: float) -> Stopped:
    """Stop a source without a process: a process takes a second."""
    assert after >= 1
    is_stubborn = command[3].endswith("sigterm_ends_a_read")
    return Stopped(Ended(None if is_stubborn else -15, after), 0)


def run_without_slices(
    command: Sequence[str], stdout: Path, stderr: Path, seconds: float, _: Listener
) -> Ended:
    """Run a source that has no slices."""
    return in_this_process(command, stdout, stderr, seconds)


HERE = Processes(execute=in_this_process, stop=stopped_at_once, converse=run_without_slices)
STOPPED = Processes(stop=stopped_at_once)


def report(
    *command: str,
    config: Mapping[str, Any] = CONFIG,
    processes: Processes = Processes(),  # noqa: B008 - it is frozen
    **options: Any,
) -> Report:
    return Kit(command, config, KitOptions(**options), processes).report()


def rule_of(name: str) -> str:
    return name.partition("__")[0].replace("_", "-")


def test_each_rule_has_a_source_that_violates_it() -> None:
    assert {rule_of(name) for name in BROKEN} | OF_SLICES == set(RULES)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_source_violates_only_its_rule(name: str) -> None:
    source = getattr(importlib.import_module(f"tests.programs.broken.{name}"), "Broken", None)
    config, cursors = getattr(source, "config_", CONFIG), getattr(source, "chosen", {})
    found = report(*program(name), config=config, cursors=cursors, processes=HERE)
    rules = {rule_of(name), *getattr(source, "also", ())}
    assert {*found.failed_rules} == rules, "\n".join(found.lines())
    assert not found.passed
    assert all(each.rule in each.text for each in found.outcomes if each.findings)
    assert "hunter2" not in "\n".join(found.lines()) + json.dumps(found.document())


@pytest.mark.parametrize("state", ["STREAM", "GLOBAL", "LEGACY"])
def test_a_source_that_follows_all_rules_passes(state: str) -> None:
    found = report(*program("base", state), processes=HERE)
    assert found.passed, "\n".join(found.lines())
    unused = {each.rule for each in found.outcomes if each.status != PASSED}
    expected = {"chosen-cursor-is-used"} | OF_SLICES
    assert unused == (expected if state == "STREAM" else {*expected, "refresh-resumes-exactly"})


def test_the_mark_of_a_stream_without_a_cursor_may_come_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class MarkingSource(base.Source):
        def read(self, stream: str, mode: str) -> None:
            super().read(stream, mode)
            mark = {"__ab_no_cursor_state_message": True}
            body = {"stream_descriptor": {"name": stream}, "stream_state": mark}
            self.say("STATE", state={"type": "STREAM", "stream": body})

    monkeypatch.setattr(base, "Source", MarkingSource)
    assert report(*program("base"), rules=["statuses-are-complete"], processes=HERE).passed


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_source_whose_states_are_cursor_values_passes(
    is_chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "Source", CursorSource)
    cursors = {"users": "updated"} if is_chosen else {}
    if is_chosen:
        users, colours = CursorSource().streams()
        open_users = {**users, "source_defined_cursor": False}
        monkeypatch.setattr(CursorSource, "streams", lambda _: [open_users, colours])
    found = report(*program("base"), cursors=cursors, processes=HERE)
    assert found.passed, "\n".join(found.lines())
    notes = [note for each in found.outcomes for note in each.notes]
    assert notes == []
    passed = {each.rule for each in found.outcomes if each.status == PASSED}
    assert passed >= {"bookmark-value-is-read-again", "last-state-is-not-past-the-data"}
    assert ("chosen-cursor-is-used" in passed) is is_chosen


@pytest.mark.parametrize(("name", "is_found"), [("base", False), ("sigterm_ends_a_read", True)])
def test_a_source_that_ignores_sigterm_is_found(name: str, is_found: bool) -> None:
    found = report(*program(name), rules=["sigterm-ends-a-read"])
    assert bool(found.failed_rules) is is_found
    assert found.outcomes[0].status in (PASSED, FAILED)


@pytest.mark.parametrize(
    ("defect", "rules"),
    [
        ("none", []),
        ("legacy", []),
        ("old", []),
        ("state", ["states-resume-exactly"]),
        ("order", ["records-are-of-configured-streams"]),
        ("stdout", ["only-messages-on-stdout"]),
        ("secret", ["no-secret-in-output"]),
        ("streams", ["only-selected-data-is-read"]),
        ("fields", ["only-selected-data-is-read"]),
    ],
)
def test_the_violations_of_a_tap_are_found(defect: str, rules: list[str]) -> None:
    found = report(*program("tap", defect), tap=True, processes=STOPPED)
    assert found.failed_rules == rules, "\n".join(found.lines())
    assert "Singer taps have no `check`" in "\n".join(found.lines())


def test_a_failed_source_is_reported_once() -> None:
    found = report(sys.executable, "-S", "-c", "import sys; sys.exit('no way')")
    assert set(found.failed_rules) == {
        *("spec-is-valid", "check-accepts-the-config", "discover-lists-streams", "exit-codes"),
    }
    blocked = [each for each in found.outcomes if each.status == NOT_CHECKED]
    assert {each.rule for each in blocked} > {"states-resume-exactly", "records-fit-their-schema"}
    assert all("see " in each.reason for each in blocked)


def test_rules_can_be_selected() -> None:
    options = KitOptions(rules=["spec-is-valid", "exit-codes"], skip=["exit-codes"])
    kit = Kit(program("base"), CONFIG, options)
    assert [rule.name for rule in kit.rules] == ["spec-is-valid"]
    assert kit.report().processes == 1
    with pytest.raises(ConfigError, match="no rule 'spec-is-good'"):
        Kit(program("base"), CONFIG, KitOptions(rules=["spec-is-good"]))


def test_the_states_to_resume_from_can_be_limited() -> None:
    rules = ["states-resume-exactly"]
    found = report(*program("base"), rules=rules, cuts=1)
    assert found.outcomes[0].notes == ["stream users: limited to 1 of 3 states"]
    assert found.document()["warnings"]
    assert report(*program("states_resume_exactly"), rules=rules, cuts=1).passed
    assert not report(*program("states_resume_exactly"), rules=rules, cuts=2).passed


def test_streams_can_be_selected() -> None:
    found = report(*program("states_resume_exactly"), streams=["colours"], processes=STOPPED)
    assert found.passed
    with pytest.raises(ConfigError, match="there is no stream 'flowers'"):
        report(*program("base"), streams=["flowers"])


def test_a_cursor_can_be_chosen(tmp_path: Path) -> None:
    """The stream has no cursor of its own: without one it is not read incrementally."""
    source = tmp_path / "source.py"
    source.write_text(
        "from tests.programs.broken.base import Source, main\n"
        "class Open(Source):\n"
        "    def streams(self):\n"
        "        users, colours = super().streams()\n"
        "        return [{k: v for k, v in users.items() if 'cursor' not in k}, colours]\n"
        "main(Open())\n"
    )
    command = [sys.executable, "-c", f"import runpy; runpy.run_path({str(source)!r})"]
    rules = ["states-resume-exactly"]
    assert "--cursor" in report(*command, rules=rules).outcomes[0].reason
    found = report(*command, rules=rules, cursors={"users": "updated"})
    assert found.outcomes[0].status == PASSED


def test_short_secrets_are_reported() -> None:
    config = {"token": "abc", "count": 2}
    found = report(*program("no_secret_in_output"), config=config, rules=["no-secret-in-output"])
    assert "fewer than 4 characters" in found.outcomes[0].reason


def test_further_secrets_can_be_named() -> None:
    config = {**CONFIG, "key": {"password": "hunter3-abc"}}
    settings: dict[str, Any] = {"config": config, "rules": ["no-secret-in-output"]}
    found = report(*program("no_secret_in_output"), **settings, secrets=["key.password"])
    assert {each.seen.split()[3] for each in found.outcomes[0].findings} == {
        *("config.token,", "config.key.password,"),
    }


def test_an_accepted_bad_config_is_reported() -> None:
    rules = ["check-refuses-a-bad-config"]
    bad = {"with an expired token": {"token": "expired"}}
    found = report(*program("base"), rules=rules, bad_configs=bad)
    assert [finding.run for finding in found.outcomes[0].findings] == [
        "`check` of a config with an expired token"
    ]


def test_a_source_that_hangs_is_stopped() -> None:
    hanging = "import sys, time; print(flush=True); time.sleep(60)"
    found = report(sys.executable, "-S", "-c", hanging, rules=["spec-is-valid"], seconds=0.2)
    [finding] = found.outcomes[0].findings
    assert "was stopped after 0 seconds, the time limit" in finding.seen


@pytest.mark.parametrize(("end", "seconds"), [("kill -9 $$", 60), ("sleep 60", 0.2)])
def test_a_container_is_removed_if_its_client_did_not_end_by_itself(
    end: str, seconds: float, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = ["sh", "-c", f"echo {{container}} >> {log}; {end}"]
    removal = ["sh", "-c", f"echo {{container}} is removed >> {log}"]
    found = report(*command, rules=["spec-is-valid"], seconds=seconds, removal=removal)
    assert found.failed_rules == ["spec-is-valid"]
    *started, removed = log.read_text().splitlines()
    assert removed.startswith("elt-")
    assert {f"{name} is removed" for name in started} <= {removed}


def test_the_kit_runs_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    options = ["--config", str(config), "--rule", "exit-codes", "--rule", "states-resume-exactly"]
    assert main([*options, "--", *program("base")]) == 0
    out = capsys.readouterr().out
    assert "passed         states-resume-exactly" in out
    assert "2 rules: 2 passed (" in out

    broken = program("states_resume_exactly")
    assert main([*options, "--json", "--verbose", "--", *broken]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["protocol"], document["passed"]) == ("Airbyte", False)
    [failed] = [each for each in document["rules"] if each["status"] == "failed"]
    assert failed["findings"][0]["seen"].endswith('missing records: 1 ({"id": 3})')
    assert "`read` of users from state 1 of 3: ended with exit code 0" in captured.err


def test_invalid_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no command of a connector is given" in capsys.readouterr().err
    assert main(["--json", "--", str(tmp_path / "none")]) == 2
    assert "cannot be started" in json.loads(capsys.readouterr().err)["error"]["message"]
    assert main(["--config", str(tmp_path / "none"), "--", "x"]) == 2
    assert main(["--rule", "none", "--", "x"]) == 2
    capsys.readouterr()
    for removal, command in (("rm x", "run"), ("rm {container}", "run")):
        assert main(["--removal", removal, "--", command]) == 2
        assert "has no {container}, which stands for" in capsys.readouterr().err
    for words in (["--cuts", "0"], ["--cursor", "users"]):
        with pytest.raises(SystemExit):
            main([*words, "--", "x"])
    assert main(["--list-rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RULES)
