"""Copies of what a kill −9 leaves at each failpoint of a run, and what the next run makes of them.

A process that is killed leaves on disk what it had written, and nothing else. So a script runs once, and at
every failpoint the lake's folder is copied: each copy is what a kill there leaves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from elt_assets.failpoints import Failpoint, armed
from tests.lake.crashing import View, view
from tests.lake.harness import Lake

Run = Callable[[Lake, Callable[[], None]], object]
"""Go on from the present tables to the end; call a function whenever readers may see the tables.

Whatever a killed run has left, another run of the same script ends as one that was never killed does.
"""


@dataclass
class Camera:
    """Copies a lake's folder at the failpoints where a kill would leave something else than before.

    `closely`: one copy of all that differ. Else one of those that differ in nothing but files which no log
    names: the last, which had the most time to leave some.
    """

    lake: Lake
    album: Path
    closely: bool
    shots: dict[object, tuple[str, Path]] = field(default_factory=dict)
    points: set[Failpoint] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)  # a history is merged beside

    def click(self, point: Failpoint) -> None:
        with self.lock:
            self.points.add(point)
            self._click(point.name)

    def _click(self, where: str) -> None:
        state = tuple(sorted(self._counted_states()))
        if state not in self.shots:
            self.shots[state] = (where, self.album / str(next(self.numbers)) / where)
        elif self.closely:
            return
        folder = self.shots[state][1]
        self.shots[state] = (where, folder)
        self._copy_to(folder)

    def _copy_to(self, folder: Path) -> None:
        """Make a folder a copy of the lake: most of its files are there from the copy before."""
        former = set(files(folder))
        for path in files(self.lake.folder):
            copy = folder / path.relative_to(self.lake.folder)
            with contextlib.suppress(FileNotFoundError):  # a Spark job is at work
                status = path.stat()
                if copy not in former or copy.stat().st_mtime_ns != status.st_mtime_ns:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, copy)
                former.discard(copy)
        for copy in former:
            copy.unlink()

    def _counted_states(self) -> Iterator[str]:
        for path in files(self.lake.folder):
            if self.closely or path.parent.name == "_delta_log":
                yield str(path)


def files(folder: Path) -> Iterator[Path]:
    """Yield the paths of all files but those that tests stage."""
    for parent, _, names in os.walk(folder):
        if Path(parent).name != "staging":
            yield from (Path(parent, name) for name in names)


def photographed(lake: Lake, run: Run, *, closely: bool) -> tuple[Camera, list[View]]:
    """Run once; return what a kill leaves at each point, and all that readers may see."""
    album = lake.folder.parent / f"{lake.folder.name}-album"
    camera, cuts = Camera(lake, album, closely), [view(lake)]
    with armed(camera.click):
        run(lake, lambda: cuts.append(view(lake)))
    cuts.append(view(lake))
    return camera, cuts


def wrong_ends(camera: Camera, run: Run, cuts: Sequence[View]) -> list[str]:
    """Return where readers see none of the cuts, or a run after a kill ends with other contents."""
    wrong = []
    for where, shot in camera.shots.values():
        left = replace(camera.lake, folder=shot)
        seen = view(left)
        if seen not in cuts:
            wrong.append(f"{where}: readers see what never was: {seen}")
        run(left, lambda: None)
        wrong += [
            f"{where}: a run after it ends with {name} {rows}, not {expected}"
            for name, rows, expected in zip(View._fields, view(left), cuts[-1], strict=True)
            if rows != expected
        ]
    return wrong
