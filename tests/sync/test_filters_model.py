"""Any record under any rules: against a model on plain dicts, and for what is left of it as bytes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path as File
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.protocol.messages import RawRecord
from elt_assets.sync.documents import SegmentDocuments, SelectiveSegmentWriter
from elt_assets.sync.field_selection import FieldSelection, Path
from elt_assets.sync.record_filter import RecordFilter, hash_value
from tests.support.examples import examples

SALT = b"pepper"
LEAF = "leaf"
NAMES = st.sampled_from(["a", "b", "ü"])


@dataclass
class Object:
    """A JSON object as it may be sent: a name may come twice, in two spellings."""

    pairs: list[tuple[str, Any]]


OBJECTS = st.deferred(lambda: st.lists(st.tuples(NAMES, VALUES), max_size=4).map(Object))
VALUES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.sampled_from([LEAF, None]) | OBJECTS | st.lists(VALUES, max_size=2)
)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
RULES = st.builds(
    FieldSelection,
    include=st.none() | PATHS,
    exclude=PATHS,
    hashed=PATHS,
    key=PATHS,
    cursor=st.just(()) | st.lists(NAMES, min_size=1, max_size=2).map(tuple),
)


def written(value: Any, at: Path = ()) -> str:
    """Encode as JSON; each leaf is the name of its place."""
    if isinstance(value, Object):
        pairs = [
            f"{spelled(name, number)} : {written(inner, (*at, name))}"
            for number, (name, inner) in enumerate(value.pairs)
        ]
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(written(item, at) for item in value)}]"
    return "null" if value is None else f'"S3CRET:{"/".join(at)}"'


def spelled(name: str, number: int) -> str:
    """Encode names with escapes only, every other time."""
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in name)
    return f'"{escaped}"' if number % 2 else json.dumps(name, ensure_ascii=False)


def within(path: Path, others: tuple[Path, ...]) -> bool:
    return any(path[: len(other)] == other for other in others)


def covered(path: Path, rules: FieldSelection) -> bool:
    if within(path, rules.key) or (rules.cursor and within(path, (rules.cursor,))):
        return True
    return not within(path, rules.exclude) if rules.include is None else within(path, rules.include)


def model(value: Any, rules: FieldSelection, at: Path = ()) -> list[Any]:
    """Return the rest of a value: it alone in a list, or nothing."""
    if at and at in rules.hashed:
        return [json.loads(bytes(hash_value(Raw(json.dumps(value).encode()), SALT)))]
    named = {*(rules.include or ()), *rules.exclude, *rules.hashed, *rules.key, rules.cursor}
    beneath = [path for path in named if len(path) > len(at) and path[: len(at)] == at]
    if at and all(
        covered(p, rules) == covered(at, rules) and p not in rules.hashed for p in beneath
    ):
        return [value] if covered(at, rules) else []
    if isinstance(value, list):
        return [[left for item in value for left in model(item, rules, at)]]
    if not isinstance(value, dict):
        return [None]
    pairs = ((name, model(inner, rules, (*at, name))) for name, inner in value.items())
    return [{name: left[0] for name, left in pairs if left}]


def staged(data: str, rules: FieldSelection) -> bytes:
    with TemporaryDirectory() as folder:
        writer = SelectiveSegmentWriter(
            File(folder, "s"), 0, RecordFilter(rules, SALT), SegmentDocuments("s", None)
        )
        writer.append(RawRecord("a", Raw(data.encode()), 1.0))
        return writer.close().path.read_bytes()


@settings(max_examples=examples(500), deadline=None)
@given(OBJECTS, RULES)
def test_any_filtered_record_equals_the_model(record: Object, rules: FieldSelection) -> None:
    data = written(record)
    line = staged(data, rules)
    assert [json.loads(line)["data"]] == model(json.loads(data), rules)
    for secret in re.findall(r"S3CRET:([^\"]*)", line.decode()):
        path = tuple(secret.split("/"))
        assert covered(path, rules)
        assert not within(path, rules.hashed)


def in_upper_case(value: Any) -> Any:
    """Return a value with the names of its fields in upper case."""
    if isinstance(value, list):
        return [in_upper_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name.upper(): in_upper_case(inner) for name, inner in value.items()}


@settings(max_examples=examples(200), deadline=None)
@given(OBJECTS, RULES)
def test_the_case_of_names_gets_around_no_rule(record: Object, rules: FieldSelection) -> None:
    rules = replace(rules, hashed=())  # the hash of an object contains the names of its fields
    data = json.loads(written(record))
    filtered = [
        RecordFilter(rules, SALT)(RawRecord("a", Raw(json.dumps(each).encode()), 1.0))
        for each in (data, in_upper_case(data))
    ]
    exact, upper = (json.loads(bytes(each.data)) for each in filtered if each is not None)
    assert upper == in_upper_case(exact)


@settings(max_examples=examples(200), deadline=None)
@given(OBJECTS, RULES)
def test_only_withheld_fields_are_recorded_as_changes(
    record: Object, rules: FieldSelection
) -> None:
    data = written(record)
    recorded = {
        c["field"] for c in json.loads(staged(data, rules)).get("meta", {}).get("changes", [])
    }
    assert recorded == set(lost(json.loads(data), model(json.loads(data), rules)[0]))


def lost(before: Any, after: Any, at: Path = ()) -> set[str]:
    """Return the places where a value became null."""
    if after is None and before is not None:
        return {".".join(at)}
    if isinstance(before, dict) and isinstance(after, dict):
        inner = (lost(before[name], after[name], (*at, name)) for name in after)
        return set().union(*inner)
    if isinstance(before, list) and isinstance(after, list):
        return set().union(*(lost(b, a, at) for b, a in zip(before, after, strict=True)))
    return set()
