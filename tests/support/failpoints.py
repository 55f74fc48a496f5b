"""The tests that end a process at each failpoint."""

from __future__ import annotations

from collections.abc import Collection

from elt_assets.failpoints import Failpoint

_POINTS = "tests/lake/test_crash_points.py::"
_FIRST = f"{_POINTS}test_a_first_sync_survives_a_kill_at_any_point"
_SESSION = f"{_POINTS}test_a_session_survives_a_kill_at_any_point"
_HISTORY = f"{_POINTS}test_a_history_that_begins_survives_a_kill_at_any_point"
_ROLLBACK = f"{_POINTS}test_a_rollback_survives_a_kill_at_any_point"
_WIDENING = f"{_POINTS}test_a_widening_of_types_survives_a_kill_at_any_point"
_COMPACTION = f"{_POINTS}test_a_compaction_survives_a_kill_at_any_point"
_VACUUM = f"{_POINTS}test_a_vacuum_survives_a_kill_at_any_point"
_REPLAY = f"{_POINTS}test_a_replay_survives_a_kill_at_any_point"
_MOVE = "tests/lake/test_moving.py::test_a_move_survives_a_kill_at_any_point"
_REMOVAL = "tests/lake/test_removal.py::test_a_removal_survives_a_kill_at_any_point"
_PUBLICATION = (
    "tests/lake/publishing/test_publish_kills.py::test_a_publication_survives_a_kill_at_any_point"
)
_ERASURE = "tests/lake/test_erasure.py::test_an_erasure_survives_a_kill_at_any_point"
_EVENTS = "tests/orchestration/test_crash_events.py::"
_PARTITIONS = f"{_EVENTS}test_partitions_survive_a_kill_between_commit_and_event"

KILLED_IN: dict[Failpoint, str] = {
    Failpoint.SEGMENT_CLOSED: _SESSION,
    Failpoint.DOCUMENT_STORED: "tests/lake/test_documents.py::"
    "test_a_transfer_survives_a_kill_at_any_point",
    Failpoint.SEGMENT_PARSED: _FIRST,
    Failpoint.FILES_WRITTEN: _HISTORY,
    Failpoint.SEGMENT_WRITTEN: _SESSION,
    Failpoint.FILES_SPLIT: f"{_POINTS}test_a_merge_survives_a_kill_at_any_point",
    Failpoint.KEYS_MERGED: f"{_POINTS}test_a_merge_survives_a_kill_at_any_point",
    Failpoint.HISTORY_REFRESHED: _HISTORY,
    Failpoint.TABLE_CREATED: _FIRST,
    Failpoint.TABLE_ALTERED: f"{_POINTS}test_a_new_column_survives_a_kill_at_any_point",
    Failpoint.COMMIT_BUILT: _FIRST,
    Failpoint.COMPANIONS_RECORDED: _FIRST,
    Failpoint.ATTACHMENT_WRITTEN: f"{_POINTS}test_attached_states_survive_a_kill_at_any_point",
    Failpoint.COMMIT_READY: _FIRST,
    Failpoint.COMMIT_PUBLISHED: _FIRST,
    Failpoint.COMPANION_COMMITTED: _FIRST,
    Failpoint.TABLE_COMMITTED: _FIRST,
    Failpoint.STATE_STORED: f"{_POINTS}test_states_alone_survive_a_kill_at_any_point",
    Failpoint.FILE_UNNEEDED: _VACUUM,
    Failpoint.FOLDER_UNNEEDED: _REPLAY,
    Failpoint.ACKNOWLEDGED: _SESSION,
    Failpoint.SHARED_ACKNOWLEDGED: "tests/lake/test_shared_states_model.py::"
    "test_shared_states_survive_a_kill_at_each_failpoint",
    Failpoint.STATE_OBSERVED: _PARTITIONS,
    Failpoint.STREAM_COMPLETE: _PARTITIONS,
    Failpoint.EVENT_RECOVERED: _PARTITIONS,
    Failpoint.COMPANION_ROLLED_BACK: _ROLLBACK,
    Failpoint.TABLE_WIDENED: _WIDENING,
    Failpoint.HIDDEN_WIDENED: _WIDENING,
    Failpoint.STATE_SET: f"{_POINTS}test_a_state_set_by_hand_survives_a_kill_at_any_point",
    Failpoint.REPLAY_STAGED: _REPLAY,
    Failpoint.FRESH_RECORDS_WRITTEN: f"{_POINTS}test_an_expiry_survives_a_kill_at_any_point",
    Failpoint.FILES_COMBINED: _COMPACTION,
    Failpoint.COMPACTION_PUBLISHED: _COMPACTION,
    Failpoint.MOVE_BEGUN: _MOVE,
    Failpoint.WRITER_CHANGED: _MOVE,
    Failpoint.TABLE_COPIED: "tests/lake/test_moving.py::test_a_move_in_a_store_survives_a_kill_at_any_point",
    Failpoint.TABLE_MOVED: _MOVE,
    Failpoint.TABLE_RELOCATED: "tests/lake/test_relocation.py::"
    "test_a_relocation_survives_a_kill_at_any_point",
    Failpoint.REMOVAL_BEGUN: _REMOVAL,
    Failpoint.TABLE_REMOVED: _REMOVAL,
    Failpoint.PART_REMOVED: "tests/cli/test_remove.py::test_a_removal_survives_a_kill_at_any_point",
    Failpoint.VACUUM_PLANNED: _VACUUM,
    Failpoint.ICEBERG_CREATED: _PUBLICATION,
    Failpoint.SNAPSHOT_WRITTEN: _PUBLICATION,
    Failpoint.SNAPSHOT_PUBLISHED: _PUBLICATION,
    Failpoint.SNAPSHOTS_EXPIRED: _PUBLICATION,
    Failpoint.ICEBERG_DROPPED: _PUBLICATION,
    Failpoint.ROWS_TAKEN_OUT: _ERASURE,
    Failpoint.KEYS_SUPPRESSED: _ERASURE,
    Failpoint.ROWS_ERASED: _ERASURE,
    Failpoint.OLD_FILES_REMOVED: _ERASURE,
    Failpoint.CHECKPOINT_WRITTEN: _ERASURE,
    Failpoint.LOG_CUT: _ERASURE,
}
"""A test that ends a process at the failpoint, and fails if it is never reached; others may do so too."""


def assert_reached(test: str, points: Collection[Failpoint | None]) -> None:
    """Assert that a test has reached the failpoints that the table says.

    Args:
        test: its node id; that of an example stands for the test.
    """
    due = {point for point, killer in KILLED_IN.items() if killer == test.partition("[")[0]}
    missing = sorted(point.name for point in due if point not in points)
    assert not missing, f"{test} never reached {missing}"
