"""The results of a part of the benchmark: a table of figures and ratios, and the bars they must clear."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

MISSING = "–"


@dataclass(frozen=True)
class Bar:
    """A promise about our own figures: at most `limit`, or at least that where `least`.

    `measured` is None where a peer was left out.
    """

    what: str
    measured: float | None
    limit: float
    unit: str = "×"
    least: bool = False

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.least else self.measured <= self.limit

    @property
    def text(self) -> str:
        return f"{self.what}, at {'least' if self.least else 'most'} {self.limit:g}{self.unit}"

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return f"  {MISSING}     {self.text}: not measured"
        return f"  {'pass' if self.met else 'MISS'}  {self.text}: {self.measured:.2f}{self.unit}"


@dataclass(frozen=True)
class Report:
    """`headings` and `rows` as they are shown; `note`: how to read them; `figures`: the same for
    programs."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str
    bars: Sequence[Bar]
    figures: Sequence[Mapping[str, object]]

    def show(self) -> None:
        table = Table(title=self.title)
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        console = Console(width=None if sys.stdout.isatty() else 140)
        console.print(table)
        console.print(f"  {self.note}", highlight=False)
        for bar in self.bars:
            console.print(bar.verdict, highlight=False)

    def to_json(self) -> dict[str, object]:
        bars = [asdict(bar) | {"met": bar.met} for bar in self.bars]
        return {"results": list(self.figures), "bars": bars}


def ratio(longer: float | None, shorter: float | None) -> str:
    return MISSING if longer is None or shorter is None else f"{longer / shorter:.2f}"


def machine() -> dict[str, object]:
    """The machine, and the number of processes that wanted its cores in the last quarter of an hour."""
    return {
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
    }
