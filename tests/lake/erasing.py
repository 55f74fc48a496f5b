"""Erasures of rows as a step of the machine of `tests/lake/modelled.py`: at any moment, killed, run again.

`Erasing` is used by `test_erasure_model`, and by `publishing.histories`, which publishes beside it. What is
selected is computed from the rows that the oracle knows, and what is done so far from the logs of the tables.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from elt_assets.connection.read_only_query import check_condition
from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Erasure, KeyLog, erase
from elt_assets.lake.delta.commit_metadata import ERASURE
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import DEAD_LETTER, HISTORY, SUFFIXES
from elt_assets.storage.location import Location
from tests.lake.crashing import done_at
from tests.lake.modelled import KILLS, STEPS, Machine, app_id, configured
from tests.lake.oracle import Event, Part, Stream, landed
from tests.lake.plain import rows_of
from tests.lake.staging import APP
from tests.support.value_search import find_value

MEANWHILE = st.sampled_from(["nothing", "nothing", "sync", "maintain", "publish"])


@dataclass(frozen=True)
class Request:
    """What a user wants to erase: rows with some texts, or with some ids."""

    texts: frozenset[str] = frozenset()
    ids: frozenset[int] = frozenset()
    by_file: bool = False  # `--keys`, not `--where`

    @property
    def condition(self) -> str:
        if self.texts:
            return f"text in ({', '.join(map(repr, sorted(self.texts)))})"
        return f"id in ({', '.join(map(str, sorted(self.ids)))})"

    def selects(self, text: Any, ident: Any) -> bool:
        return text in self.texts or ident in self.ids


@dataclass(frozen=True)
class Selected:
    """What an erasure removes: all rows of some keys, and those without a key that are request."""

    request: Request
    stream: Stream
    keys: frozenset[Any]

    def has(self, text: Any, ident: Any) -> bool:
        if self.stream.key is not None and ident is not None:
            return ident in self.keys
        return not self.request.by_file and self.request.selects(text, ident)

    def leave(self, events: Sequence[Event]) -> tuple[Event, ...]:
        return tuple(e for e in events if not self.has(e.text, e.id))

    def leave_rejected(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """A line that is no object has no fields to be found by."""
        return tuple(e for e in events if not e.is_readable or not self.has(e.text, e.id))


class Erasing(Machine):
    """A machine of whose table rows are erased."""

    @precondition(lambda self: self.has("erase"))
    @rule(
        choice=st.integers(0, 99),
        how=st.sampled_from(["text", "text", "texts", "ids", "file"]),
        kill=KILLS,
        meanwhile=MEANWHILE,
        overtaken=st.none() | st.tuples(st.integers(0, 1), st.integers(1, 4)),
    )
    def erase(self, choice: int, how: str, kill: Any, meanwhile: str, overtaken: Any) -> None:
        """Rows are erased; perhaps the erasure is killed, other things happen, and it is run again."""
        if not Table(self.uri, APP).writers:
            return
        STEPS["erase"] += 1
        request = self._choose(choice, how)
        is_building = any(part.building is not None for part in self.parts.values())
        self.erased: set[str] = set()
        beside = None
        if overtaken is not None and not is_building and self.has("beside"):
            beside = (overtaken[1], overtaken[0])
        if not self._erase(request, None if beside else kill, beside):
            if not is_building:
                self._meanwhile(meanwhile, choice)
            assert self._erase(request, None, None)
        for text in sorted(self.erased - self._texts())[:2]:
            STEPS["values searched for"] += 1
            assert not find_value(text, *self._folders()), f"{text} was erased, and is there"

    def _choose(self, choice: int, how: str) -> Request:
        texts = sorted(self._texts())
        if how == "file" and self.stream.key is not None:
            return Request(ids=frozenset({1 + choice % 3}), by_file=True)
        if how in ("ids", "file") or not texts:
            return Request(ids=frozenset({1 + choice % 3, 4}))
        number = 2 if how == "texts" else 1
        return Request(texts=frozenset(texts[(choice + n) % len(texts)] for n in range(number)))

    def _texts(self) -> set[str]:
        """The texts of all readable events that the tables have."""
        parts = self.parts.values()
        events = [e for part in parts for e in (*part.rows, *part.buried, *part.dead)]
        readable = {e.text for e in events if e.is_readable}
        return readable | {str(row["text"]) for row in self._versions()}

    def _versions(self) -> list[dict[str, Any]]:
        """The rows of the history that the table names, ends of keys included."""
        rows: list[dict[str, Any]] = []
        for name in self.parts:
            main = Table(self.uri, app_id(name))
            table = self._companion_table(main, HISTORY)
            if table is not None:
                files = (*table.files, *table.metadata.hidden)
                rows += [row for file in files for row in rows_of(table.uri, file)]
        return rows

    def _folders(self) -> list[Any]:
        names = ["users", *(f"users{suffix}" for suffix in SUFFIXES.values()), "catalog"]
        return [self.folder / name for name in names]

    # One run of `elt erase`

    def _erase(self, request: Request, kill: Any, beside: tuple[int, int] | None) -> bool:
        """Erase rows; return whether that was completed."""
        stream = self.stream
        selected = self._select(request, stream)
        history = Counter(self._signs_of_history(selected))
        begun = {kind: self._version_of(kind) for kind in (None, *SUFFIXES)}
        place = Location.parse(self.uri)
        failed: list[ConfigError] = []

        def interrupt() -> None:
            nonlocal selected
            assert beside is not None
            live = self.slots.get(beside[1])
            if live is not None:
                STEPS["sync beside an erasure"] += 1
                self._adopt_erasure(selected, begun)
                self._commit(beside[1], live, final=True)
                selected = self._select(request, stream)

        others = (
            done_at(Failpoint.COMMIT_READY, interrupt, beside[0])
            if beside
            else contextlib.nullcontext()
        )
        with others, self._killed(kill) as is_killed:
            try:
                erasure = Erasure(
                    self.world.provider,
                    place,
                    APP,
                    configured(stream),
                    f"erasure-{next(self.count)}",
                )
                erase(
                    erasure,
                    self._selection(erasure, request),
                    KeyLog(b"salt", "fingerprint"),
                    publish=self._expire,
                )
            except ConfigError as error:
                failed.append(error)
        if failed:
            assert self.has("catalog") and "columns" in str(failed[0]), failed
            STEPS["erasures refused"] += 1
            self.erased.clear()
            return True
        self._adopt_erasure(selected, begun)
        if is_killed():
            return False
        self.versions.clear()
        self.histories.clear()
        if not beside:
            after = Counter(self._signs_of_history(None))
            assert after == history, "other versions in the history than those that were to stay"
        return True

    def _selection(self, erasure: Erasure, request: Request) -> Selection:
        if request.by_file:
            return Selection(erasure.key, keys=pa.table({"id": sorted(request.ids)}))
        return Selection(erasure.key, check_condition(request.condition))

    def _select(self, request: Request, stream: Stream) -> Selected:
        """What is selected by the rows that are there, and what an erasure before has not finished."""
        there: list[tuple[Any, Any]] = [(row["text"], row["id"]) for row in self._versions()]
        for part in self.parts.values():
            events = [*part.rows, *part.buried, *(e for e in part.dead if e.is_readable)]
            if part.building is not None:
                rows, buried = landed(stream, (), (), part.building.rows)
                events += [*rows, *buried]
            there += [(event.text, event.id) for event in events]
        keys = {ident for text, ident in there if request.selects(text, ident)} - {None}
        keys = self._read_unfinished() | (request.ids if request.by_file else keys)
        selected = Selected(request, stream, frozenset(keys))
        self.erased |= {text for text, ident in there if selected.has(text, ident)}
        return selected

    def _read_unfinished(self) -> set[Any]:
        """The keys that an erasure which did not end has left to the next one."""
        files = (self.folder / "users" / "_erasures" / "unfinished").glob("*.parquet")
        return {ident for file in files for ident in pq.read_table(file)["id"].to_pylist()}

    def _expire(self, _table: Table, _kind: str | None) -> bool:
        """What `elt erase` does in a catalog before files are removed."""
        return False

    def _signs_of_history(self, without: Selected | None) -> list[Any]:
        return [
            (row["id"], row["text"])
            for row in self._versions()
            if without is None or not without.has(row["text"], row["id"])
        ]

    # How far an erasure has come

    def _version_of(self, kind: str | None) -> int:
        table = Table(self.uri + SUFFIXES.get(kind or "", ""), APP)
        return table.version if table.exists else -1

    def _list_erasers(self, kind: str | None, since: int) -> set[str]:
        """The writers of a table that have committed an erasure since a version."""
        table = Table(self.uri + SUFFIXES.get(kind or "", ""), APP)
        if not table.exists:
            return set()
        return {e["elt.app"] for e in table.commits_since(since) if ERASURE in e}

    def _adopt_erasure(self, selected: Selected, begun: dict[str | None, int]) -> None:
        """Leave out in the oracle what an erasure has committed; `begun` is then the present versions."""
        main = self._list_erasers(None, begun[None])
        dead = self._list_erasers(DEAD_LETTER, begun[DEAD_LETTER])
        begun.update({kind: self._version_of(kind) for kind in begun})
        for name, part in self.parts.items():
            if main:
                self.epochs[name] += 1
            self.parts[name] = self._leave_out(
                part,
                selected,
                rows=bool(main),  # they go with the first writer
                hidden=app_id(name) in main,
                dead=bool(dead),
            )
        if main or dead:
            self.versions.clear()
            self.histories.clear()

    def _leave_out(
        self, part: Part, selected: Selected, *, rows: bool, hidden: bool, dead: bool
    ) -> Part:
        if rows:
            part = replace(part, rows=selected.leave(part.rows))
        if dead:
            part = replace(part, dead=selected.leave_rejected(part.dead))
        building = part.building
        if building is not None and hidden:
            building = replace(building, rows=selected.leave(building.rows))
        if building is not None and dead:
            building = replace(building, dead=selected.leave_rejected(building.dead))
        buried = selected.leave(part.buried) if hidden else part.buried
        return replace(part, buried=buried, building=building)

    # Meanwhile

    def _meanwhile(self, what: str, choice: int) -> None:
        """What may happen between an erasure that was killed and its next run."""
        STEPS[f"meanwhile: {what}"] += 1
        if what == "sync":
            self.sync(0, choice % 2, 0, [(choice % 4, 4, "plain"), (1, 3, "bad")], True, None)
        elif what == "maintain" and self.has("maintain"):
            self._maintain(None)
        elif what == "publish":
            self._publish_all()

    def _publish_all(self) -> None:
        """Nothing here publishes."""

    def _beside(self, what: str, slot: int, choice: int) -> None:
        if what == "erase" and self.has("erase") and Table(self.uri, APP).writers:
            STEPS["beside: erase"] += 1
            self.erased = set()
            assert self._erase(self._choose(choice, "text"), None, None)
        else:
            super()._beside(what, slot, choice)
