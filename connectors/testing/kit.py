"""The conformance kit: it observes a connector, and checks the rules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.testing.connector import Connector, Processes
from connectors.testing.containers import Containers
from connectors.testing.findings import (
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
from connectors.testing.observations import Observations
from connectors.testing.options import KitOptions
from connectors.testing.protocols.airbyte import Airbyte
from connectors.testing.protocols.singer import Singer
from connectors.testing.rules.registry import select_rules
from connectors.testing.rules.rule import Rule
from elt_assets.protocol.airbyte.log_text import printable


class Kit:
    """The conformance tests of one connector. Processes are started when a rule needs them, and only once.

    Args:
        command: the program and its first arguments.
        config: the config.
        options: what is checked, and how.
        processes: how processes are started.

    Raises:
        ConfigError: there is no rule of a name.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: Mapping[str, Any],
        options: KitOptions = KitOptions(),  # noqa: B008 - it is frozen
        processes: Processes = Processes(),  # noqa: B008 - it is frozen
    ):
        if options.removal:
            execute = Containers(options.removal).run
            processes = replace(processes, execute=execute, stop=None, converse=None)
        self.rules = select_rules(options.rules, options.skip)
        self.protocol = Singer() if options.tap else Airbyte()
        self._connector = Connector(self.protocol, command, config, options, processes)
        self._observations = Observations(
            self._connector, options, {stage for rule in self.rules for stage in rule.stages}
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
