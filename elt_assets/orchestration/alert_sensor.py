"""The sensor `elt_alerts`: tells people what goes wrong, once, and when it is over.

`project` adds it to the definitions if the settings have `[tool.elt.alerts]`. What is wrong is what
`elt status` says (`attention`), and failed jobs of the connections and the project.

**Once, and with an all-clear.** A tick compares what is wrong with what each target was told, which is in
the sensor's cursor. New problems are one message, grouped by their cause; those that are over are in the same
message. Nothing else is said.

**Not lost.** A target was told when it has taken the message. If it is down, the tick logs that, names it in
its result, and the next tick sends again what is still wrong. A target that takes a message and does not
answer in time gets it again. No run waits for a target or fails by it: the sensor is evaluated beside the
runs.

**Changes of columns** are no state. They are taken from the events since the last tick, and told once.

Test: `tests/orchestration/test_alert_sensor.py`
"""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import dagster as dg

from elt_assets import paths
from elt_assets.orchestration.attention import Kind
from elt_assets.orchestration.failures import one_line
from elt_assets.orchestration.last_syncs import find_failed_job
from elt_assets.orchestration.metadata import SCHEMA_CHANGES, unwrap
from elt_assets.orchestration.resources import LAKE_KEY, LakeResource
from elt_assets.orchestration.source_jobs import DRIFT
from elt_assets.orchestration.status import StreamStatus, stream_statuses
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_jobs import MAINTENANCE_JOB, REPLAY_JOB
from elt_assets.pipeline.alert_targets import Alert, AlertTarget, list_targets
from elt_assets.settings import AlertSettings, settings

NAME = "elt_alerts"
INTERVAL = 60
"""Seconds between two ticks, at the least."""
WAIT = 25.0
"""Seconds that a tick waits for all targets: less than Dagster's limit for a tick, 60 seconds."""
MAX_EVENTS = 1_000
"""Number of events in which a tick looks for changes of columns; the next one goes on."""
_MAX_NAMES, _MAX_TEXT = 5, 500
_CHOICES: Mapping[Kind, str] = {"failed": "failed", "unreadable": "failed", "stale": "stale"}
_TITLES = {"failed": "failed", "stale": "stale", "check": "failed checks", "schema": "new columns"}


@dataclass
class Problem:
    """Something that goes wrong, or a change of columns. `told`: the targets that know of it.

    `cause`: equal for problems that share a paragraph. `is_over`: it goes wrong no more, and not all targets
    that know of it know that.
    """

    kind: str
    subject: str  # connection and stream, or the name of a job
    text: str
    next_step: str = ""
    cause: str = ""
    told: list[str] = field(default_factory=list)
    is_over: bool = False


Problems = dict[str, Problem]


@dataclass
class _Cursor:
    """What a tick leaves for the next one. `seen`: the last event of each type; `drifts`: those told last."""

    problems: Problems = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    drifts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "_Cursor":
        if text is None:
            return cls()
        value = json.loads(text)
        problems = {key: Problem(**problem) for key, problem in value["problems"].items()}
        return cls(problems, value["seen"], value["drifts"])

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def alert_sensors(streams: Sequence[StreamAsset]) -> list[dg.SensorDefinition]:
    """Return the sensor of alerts if the settings have `[tool.elt.alerts]`; else no sensor."""
    configured = settings().alerts
    if configured is None:
        return []
    is_on = configured.default_status == "running"
    status = dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED
    targets = list_targets(configured)
    names = ", ".join(target.name for target in targets)

    @dg.sensor(
        name=NAME,
        description=f"Tells {names} of failed runs and checks, stale streams and changes of columns.",
        minimum_interval_seconds=INTERVAL,
        default_status=status,
        required_resource_keys={LAKE_KEY},
    )
    def alert(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        cursor = _Cursor.parse(context.cursor)
        lake: LakeResource = context.resources.elt_lake
        statuses = stream_statuses(streams, lake.location, context.instance)
        current = dict(_find_problems(statuses, configured))
        if "failed" in configured.on:
            current |= dict(_find_failed_jobs(streams, context.instance))
        _compare(cursor.problems, current)
        if "schema" in configured.on:
            keys = [asset.key for asset in streams]
            subjects = dict(zip(keys, map(_name_subject, statuses), strict=True))
            changes = _find_changes(subjects, cursor, context.instance)
            cursor.problems |= {
                key: change for key, change in changes if key not in cursor.problems
            }
        failures = _tell(targets, cursor.problems)
        for name, reason in failures.items():
            context.log.warning(f"{name} was not told, and is told at the next tick: {reason}")
        _forget(cursor.problems, [target.name for target in targets])
        return dg.SensorResult(
            skip_reason="; ".join(f"{name}: {reason}" for name, reason in failures.items())
            or f"{sum(not problem.is_over for problem in cursor.problems.values()):,} problems are known",
            cursor=cursor.to_json(),
        )

    return [alert]


def _find_problems(
    statuses: Sequence[StreamStatus], configured: AlertSettings
) -> Iterator[tuple[str, Problem]]:
    """Yield what is wrong with streams, by keys that stay the same as long as it is."""
    for status in statuses:
        subject = _name_subject(status)
        for concern in status.concerns:
            choice = _CHOICES.get(concern.kind)
            if choice in configured.on:
                text = concern.text[:_MAX_TEXT]
                cause = f"{status.connection}: {concern.cause}"[:_MAX_TEXT]
                yield (
                    f"{concern.kind} {subject}",
                    Problem(str(choice), subject, text, concern.next_step, cause),
                )
        if "checks" not in configured.on:
            continue
        for check in status.failed_checks:
            if check.is_error or configured.warnings:
                text = f"the check {check.check} failed (severity {check.severity})"
                cause = f"{status.connection}: {text}"
                yield f"check {subject} {check.check}", Problem("check", subject, text, cause=cause)


def _name_subject(status: StreamStatus) -> str:
    return f"{status.connection}/{status.stream}"


def _find_failed_jobs(
    streams: Sequence[StreamAsset], instance: dg.DagsterInstance
) -> Iterator[tuple[str, Problem]]:
    """Yield the jobs of connections and of the project whose last run failed."""
    connections = dict.fromkeys(asset.connection.name for asset in streams)
    jobs = [f"{name}_{verb}" for name in connections for verb in ("check", "discover")]
    for name in [*jobs, MAINTENANCE_JOB, REPLAY_JOB]:
        failure = find_failed_job(name, instance)
        if failure is not None:
            text = failure.message[:_MAX_TEXT]
            yield f"failed job {name}", Problem("failed", f"job {name}", text, cause=f"job {text}")


def _compare(problems: Problems, current: Mapping[str, Problem]) -> None:
    """Bring the known problems up to date with those that there are."""
    for key, problem in problems.items():
        if problem.kind != "schema":
            problem.is_over = key not in current
    for key, problem in current.items():
        problems.setdefault(key, problem)


def _find_changes(
    subjects: Mapping[dg.AssetKey, str], cursor: _Cursor, instance: dg.DagsterInstance
) -> Iterator[tuple[str, Problem]]:
    """Yield the changes of columns in the events since the last tick; the first tick only begins."""
    for kind, key in (
        (dg.DagsterEventType.ASSET_MATERIALIZATION, SCHEMA_CHANGES),
        (dg.DagsterEventType.ASSET_OBSERVATION, DRIFT),
    ):
        seen = cursor.seen.get(kind.value)
        records = instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(kind, after_cursor=seen),
            limit=1 if seen is None else MAX_EVENTS,
            ascending=seen is not None,
        )
        cursor.seen[kind.value] = max([record.storage_id for record in records], default=seen or 0)
        for record in records if seen is not None else ():
            event = record.asset_materialization or record.event_log_entry.asset_observation
            subject = None if event is None else subjects.get(event.asset_key)
            sentences = None if event is None else unwrap(event.metadata.get(key))
            if subject is None or not sentences:
                continue
            text = "; ".join(map(str, sentences))[:_MAX_TEXT]
            if key == DRIFT and cursor.drifts.get(subject) == text:
                continue  # each comparison says it again, until catalog.json is brought up to date
            cursor.drifts |= {subject: text} if key == DRIFT else {}
            yield (
                f"schema {record.storage_id}",
                Problem("schema", subject, text, cause=subject + text),
            )


def _tell(targets: Sequence[AlertTarget], problems: Problems) -> dict[str, str]:
    """Send each target what it does not know; return why some have not taken it.

    The targets are called at the same time, and none is waited for longer than `WAIT`.
    """
    outcomes: dict[str, str | None] = {}

    def send(target: AlertTarget, alert: Alert) -> None:
        try:
            target.send(alert)
            outcomes[target.name] = None
        except Exception as error:  # noqa: BLE001 - no target may keep another one from its message
            outcomes[target.name] = one_line(error)

    threads = {}
    for target in targets:
        new = [p for p in problems.values() if not p.is_over and target.name not in p.told]
        over = [p for p in problems.values() if p.is_over and target.name in p.told]
        if new or over:
            alert = _compose(new, over)
            thread = threading.Thread(target=send, args=(target, alert), daemon=True)
            thread.start()
            threads[target.name] = thread, new, over
    failures = {}
    for name, (thread, new, over) in threads.items():
        thread.join(WAIT / len(threads))
        reason = outcomes.get(name, f"no answer after {WAIT:.0f} seconds")
        if reason is not None:
            failures[name] = reason
            continue
        for problem in new:
            problem.told.append(name)
        for problem in over:
            problem.told.remove(name)
    return failures


def _forget(problems: Problems, targets: Sequence[str]) -> None:
    """Remove the problems that no target has to be told of any more."""
    for key, problem in list(problems.items()):
        problem.told = [name for name in problem.told if name in targets]
        is_told = set(targets) <= set(problem.told)
        if (problem.is_over and not problem.told) or (problem.kind == "schema" and is_told):
            del problems[key]


def _compose(new: Sequence[Problem], over: Sequence[Problem]) -> Alert:
    """Return one message for all that is new, and all that is over."""
    counts = Counter(problem.kind for problem in new)
    titles = [f"{number:,} {_TITLES[kind]}" for kind, number in counts.items()]
    titles += [f"all clear for {len(over):,}"] if over else []
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in new:
        groups.setdefault((problem.kind, problem.cause), []).append(problem)
    paragraphs = [_describe(kind, group) for (kind, _), group in groups.items()]
    if over:
        names = sorted({f"{problem.subject} ({problem.kind})" for problem in over})
        paragraphs.append(f"All clear: {_join(names)}")
    url = paths.ui_url()
    return Alert(f"elt: {', '.join(titles)}", [*paragraphs, *([url] if url else [])])


def _describe(kind: str, group: Sequence[Problem]) -> str:
    first, names = group[0], sorted(problem.subject for problem in group)
    count = f"{len(names):,} × " if len(names) > 1 else ""
    step = f"\nnext: {first.next_step}" if first.next_step else ""
    return f"{count}{_TITLES[kind]}: {_join(names)}: {first.text}{step}"


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more
