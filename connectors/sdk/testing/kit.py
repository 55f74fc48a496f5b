"""The conformance kit: it observes a connector, and checks the rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.sdk.testing.bad_configs import BadConfig
from connectors.sdk.testing.commands import Settings
from connectors.sdk.testing.connector import Connector, Execute, Run, Stop
from connectors.sdk.testing.containers import Containers
from connectors.sdk.testing.findings import (
    FAILED,
    NOT_APPLICABLE,
    NOT_CHECKED,
    PASSED,
    Blocked,
    Finding,
    NotApplicable,
    Note,
    Outcome,
    Report,
)
from connectors.sdk.testing.observations import Observations
from connectors.sdk.testing.process import run_process, stop_process
from connectors.sdk.testing.protocols.airbyte import Airbyte
from connectors.sdk.testing.protocols.singer import Singer
from connectors.sdk.testing.rules.registry import select_rules
from connectors.sdk.testing.rules.rule import Rule
from elt_assets.protocol.airbyte.log_text import printable

SECONDS = 600.0
"""Default time limit of each process."""


class Kit:
    """The conformance tests of one connector. Processes are started when a rule needs them, and only once.

    Args:
        command: the program and its first arguments.
        config: the config.
        tap: whether it is a Singer tap; otherwise it is an Airbyte source.
        bad_configs: configs that `check` must refuse, by a description such as "with an expired token".
        streams: the names of the streams to read; empty for all.
        rules: the names of the rules to check; None for all. `skip`: the names of those to leave out.
        ignore: top-level fields of records that are not compared, because they differ in each read.
        cuts: maximum number of states of a stream that a read is resumed from; None for all.
        cursors: the cursor field of streams whose cursor the user chooses, by their names; a path as
            "place.field".
        secrets: places in the config, as "credentials.password", whose values are secret, besides those that
            the specification marks.
        seconds: the time limit of each process.
        removal: the command that removes the container that `command` starts, whose name is `{container}` in
            both; empty for a command that starts none.
        on_run: called after each process.
        execute: runs a command; see `run_process`. `stop`: starts and stops one; see `stop_process`.

    Raises:
        ConfigError: there is no rule of a name.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: Mapping[str, Any],
        *,
        tap: bool = False,
        bad_configs: Mapping[str, Mapping[str, Any]] | None = None,
        streams: Sequence[str] = (),
        rules: Collection[str] | None = None,
        skip: Collection[str] = (),
        ignore: Sequence[str] = (),
        cuts: int | None = None,
        cursors: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        seconds: float = SECONDS,
        removal: Sequence[str] = (),
        on_run: Callable[[Run], None] = lambda _: None,
        execute: Execute = run_process,
        stop: Stop | None = stop_process,
    ):
        if removal:
            execute, stop = Containers(removal).run, None
        self.rules = select_rules(rules, skip)
        self.protocol = Singer() if tap else Airbyte()
        bad = [BadConfig(text, dict(config)) for text, config in (bad_configs or {}).items()]
        paths = {name: path.split(".") for name, path in (cursors or {}).items()}
        self._connector = Connector(
            self.protocol, command, config, seconds, secrets, on_run, execute, stop
        )
        self._observations = Observations(
            self._connector,
            Settings(streams, bad, ignore, cuts, paths),
            {stage for rule in self.rules for stage in rule.stages},
        )
        self._outcomes: dict[str, Outcome] = {}

    def outcome(self, rule: Rule) -> Outcome:
        """Return the result of a rule.

        Raises:
            ConfigError: the command cannot be started, or there is no stream of a given name.
        """
        if rule.name not in self._outcomes:
            self._outcomes[rule.name] = self._mask(self._check(rule))
        return self._outcomes[rule.name]

    def report(self) -> Report:
        """Return the results of all selected rules.

        Raises:
            ConfigError: as for `outcome`.
        """
        begin = time.monotonic()
        outcomes = [self.outcome(rule) for rule in self.rules]
        # Again, since a later process may have shown a secret of a config that the connector changed.
        masked = [self._mask(outcome) for outcome in outcomes]
        seconds = time.monotonic() - begin
        return Report(self.protocol.name, masked, len(self._connector.runs), seconds)

    def _check(self, rule: Rule) -> Outcome:
        results: list[Finding | Note] = []
        status, reason = PASSED, ""
        try:
            results.extend(rule.check(self._observations))
        except NotApplicable as error:
            status, reason = NOT_APPLICABLE, str(error)
        except Blocked as error:
            status, reason = NOT_CHECKED, str(error)
        findings = [result for result in results if isinstance(result, Finding)]
        notes = [result.text for result in results if isinstance(result, Note)]
        return Outcome(
            rule.name, rule.summary, FAILED if findings else status, reason, findings, notes
        )

    def _mask(self, outcome: Outcome) -> Outcome:
        """Return an outcome without secrets, and without characters that control a terminal."""
        show = self._format
        return replace(
            outcome,
            reason=show(outcome.reason),
            notes=[show(note) for note in outcome.notes],
            findings=list(self._mask_findings(outcome.findings)),
        )

    def _mask_findings(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        for finding in findings:
            yield replace(
                finding,
                expected=self._format(finding.expected),
                seen=self._format(finding.seen),
                stream=None if finding.stream is None else self._format(finding.stream),
                run=None if finding.run is None else self._format(finding.run),
            )

    def _format(self, text: str) -> str:
        return printable(self._connector.mask(text), keep="")
