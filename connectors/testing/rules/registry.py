"""The registry of all rules, in the order of the report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

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
