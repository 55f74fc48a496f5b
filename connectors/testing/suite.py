"""Tests for pytest: one assignment makes a class with a test for each rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.testing.findings import NOT_APPLICABLE
from connectors.testing.kit import Kit
from connectors.testing.options import KitOptions
from connectors.testing.rules.rule import Rule


def connector_tests(
    command: Sequence[str],
    config: Mapping[str, Any] | str | Path | None = None,
    **options: Any,
) -> type:
    """Return a class of tests of a connector, to be assigned to a name that begins with `Test`.

        TestMySource = connector_tests([sys.executable, "-m", "my_source"], config={"token": "x"})

    It has one test for each rule: `test_spec_is_valid` … A rule that does not apply is skipped, with the
    reason. The connector is run when a test first needs it; all tests of the class share what was observed.

    Args:
        command: the program and its first arguments.
        config: the config, or the path of a JSON file with it; None for an empty config.
        **options: those of `KitOptions`, such as `tap=True` or `skip=["final-state-is-final"]`.

    Raises:
        ConfigError: there is no rule of a name.
        TypeError: there is no such option.
        OSError, ValueError: the file cannot be read, or is not JSON.
    """
    loaded = _load(config) if isinstance(config, str | Path) else config or {}
    kit = Kit(command, loaded, KitOptions(**options))
    members = {f"test_{rule.name.replace('-', '_')}": _test(kit, rule) for rule in kit.rules}
    return type("ConnectorTests", (), {**members, "__doc__": "Conformance tests of a connector."})


def _load(path: str | Path) -> dict[str, Any]:
    return dict(json.loads(Path(path).read_text(encoding="utf-8")))


def _test(kit: Kit, rule: Rule) -> Callable[[object], None]:
    def test(_self: object) -> None:
        import pytest  # noqa: PLC0415 - the command line of the kit does not need it

        outcome = kit.outcome(rule)
        if outcome.status == NOT_APPLICABLE:
            pytest.skip(outcome.reason)
        if not outcome.is_good:
            pytest.fail(outcome.text, pytrace=False)

    test.__doc__ = rule.summary
    return test
