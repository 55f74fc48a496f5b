"""The conformance kit checks the rules of one connector. `cli` prints its report, `suite` makes tests."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from connectors.testing.connector import Connector, Processes
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
from connectors.testing.process import Containers
from connectors.testing.protocols.airbyte import Airbyte
from connectors.testing.protocols.singer import Singer
from connectors.testing.rules import (
    answers,
    bookmarks,
    output,
    progress,
    records,
    slices,
    states,
)
from connectors.testing.rules.rule import Rule
from elt_assets.errors import ConfigError
from elt_assets.protocol.messages import printable

_ALL = (
    answers.spec_is_valid,
    answers.spec_allows_the_config,
    answers.check_accepts_the_config,
    answers.check_refuses_a_bad_config,
    answers.discover_lists_streams,
    answers.discover_is_stable,
    answers.streams_are_well_described,
    records.records_are_of_configured_streams,
    records.only_selected_data_is_read,
    records.records_fit_their_schema,
    records.fields_are_declared,
    records.primary_key_is_present_and_unique,
    states.state_follows_the_last_record,
    states.states_resume_exactly,
    states.final_state_is_final,
    bookmarks.bookmark_value_is_read_again,
    bookmarks.last_state_is_not_past_the_data,
    bookmarks.reads_without_data_keep_the_state,
    bookmarks.chosen_cursor_is_used,
    bookmarks.state_types_do_not_change,
    records.states_are_of_configured_streams,
    states.full_refresh_ignores_state,
    states.refresh_resumes_exactly,
    slices.slices_are_read_elsewhere,
    slices.slices_are_read_again_alike,
    slices.slices_have_the_same_records,
    slices.slices_and_records_share_states,
    slices.waits_end_when_slices_are_read,
    progress.statuses_are_complete,
    progress.estimates_are_plausible,
    progress.record_counts_match_states,
    output.exit_codes,
    output.only_messages_on_stdout,
    output.messages_have_required_fields,
    output.times_are_in_milliseconds,
    output.sigterm_ends_a_read,
    output.no_secret_in_output,
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _ALL})
"""All rules by name."""


def select_rules(names: Collection[str] | None = None, skip: Collection[str] = ()) -> list[Rule]:
    """Return the rules of these names, or all, without those to skip.

    Raises:
        ConfigError: there is no rule of a name.
    """
    unknown = [name for name in (*(names or ()), *skip) if name not in RULES]
    if unknown:
        raise ConfigError(
            f"there is no rule {unknown[0]!r}", guidance=f"the rules: {', '.join(RULES)}"
        )
    return [
        rule for name, rule in RULES.items() if (not names or name in names) and name not in skip
    ]


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
