"""The page of `elt status --html`: how the streams stand, in one file that any browser shows.

The page has no script, and refers to nothing outside of itself: it can be put on a share, attached to a mail,
or printed. It begins with the summary; then there is a line for each stream, those first that need a person,
with plots of the last thirty days. Every value is escaped, so the name of a stream is a text whatever it is.
The page has what `elt status` shows, and neither states nor configs.

Test: `tests/cli/test_status_page.py`, in a browser: `tests/e2e/test_status_page_in_browser.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from elt_assets.cli.status_report import (
    count_states,
    describe_seconds,
    describe_summary,
    describe_time,
    seconds_since,
)
from elt_assets.orchestration.attention import KINDS, NO_NEED
from elt_assets.orchestration.days import Day
from elt_assets.orchestration.status import StreamStatus
from elt_assets.protocol.messages import printable

_DAYS = 30
"""Days before the present one that the plots show."""
_WIDTH, _HEIGHT = 120, 26
"""Size of a plot."""
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'\">"
)
"""A browser that reads the page runs no script, and asks for no resource, whatever the page says."""
_STYLE = """
:root{color-scheme:light dark;--text:#1b1f24;--faint:#5a636e;--back:#fff;--line:#d5dae0;--plot:#2f6fb3;
--bad:#b3261e;--badback:#fbe9e7;--warn:#8a5a00;--warnback:#fff3d6;--good:#1a6b35;--goodback:#e6f4ea}
@media(prefers-color-scheme:dark){:root{--text:#e6e8eb;--faint:#9aa4b0;--back:#15181c;--line:#353c45;
--plot:#7fb3e8;--bad:#ff9c94;--badback:#45211f;--warn:#f0c36b;--warnback:#3d3115;--good:#85d6a0;
--goodback:#1c3826}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:100rem;background:var(--back);color:var(--text);
font:14px/1.45 system-ui,sans-serif}
h1{font-size:1.35rem;margin:0 0 .2rem}
h2{font-size:1.05rem;margin:1.4rem 0 .4rem}
p{margin:.3rem 0}
.faint{color:var(--faint)}
table{border-collapse:collapse;width:100%;table-layout:fixed}
th{width:9.5%}th:nth-child(1){width:17%}th:nth-child(2){width:32%}th:nth-child(3){width:13%}
th,td{text-align:left;vertical-align:top;padding:.45rem .6rem;border-bottom:1px solid var(--line)}
th{position:sticky;top:0;background:var(--back);font-weight:600}
td.name{font-weight:600;overflow-wrap:anywhere}
td.state{overflow-wrap:anywhere}
td.figure{white-space:nowrap}
small{display:block;font-weight:400;color:var(--faint)}
code{font:12px ui-monospace,monospace;background:color-mix(in srgb,var(--line) 45%,transparent);
padding:.05rem .3rem;border-radius:.25rem;overflow-wrap:anywhere}
.mark{display:inline-block;padding:0 .5rem;border-radius:.7rem;font-weight:600}
.bad{color:var(--bad);background:var(--badback)}
.warn{color:var(--warn);background:var(--warnback)}
.good{color:var(--good);background:var(--goodback)}
svg{display:block;margin-top:.15rem;max-width:100%}
polyline{fill:none;stroke:var(--plot);stroke-width:1.5}
circle{fill:var(--plot)}
line{stroke:var(--line)}
@media print{body{max-width:none;padding:0;font-size:10px}th{position:static}thead{display:table-header-group}
tr{break-inside:avoid}.mark{border:1px solid currentColor}code{font-size:9px}@page{size:landscape;margin:1cm}}
@media(max-width:60rem){thead{display:none}table,tbody,tr,td{display:block}td{border:0;padding:.15rem 0}
tr{border-bottom:1px solid var(--line);padding:.6rem 0}td.figure::before{content:attr(data-label) " ";
color:var(--faint)}}
"""


def render_page(
    statuses: Sequence[StreamStatus],
    broken: Mapping[str, str],
    time: dt.datetime | None = None,
) -> str:
    """Return the page.

    Args:
        statuses: the streams, in the order in which they are shown.
        broken: why connections cannot be loaded, by their names.
        time: the present; default: that of the clock.
    """
    time = time or dt.datetime.now(dt.timezone.utc)
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            _POLICY,
            f"<title>Streams: {_text(_short_summary(statuses))}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{_text(describe_summary(statuses))}</h1>",
            f'<p class="faint">{time:%Y-%m-%d %H:%M} UTC. The plots show the last {_DAYS} days.</p>',
            *(
                f'<p><span class="mark bad">not loaded</span> {_text(name)}: {_text(error)}</p>'
                for name, error in broken.items()
            ),
            *_render_sections(statuses, time),
            "</body></html>\n",
        ]
    )


def _short_summary(statuses: Sequence[StreamStatus]) -> str:
    fine, _ = count_states(statuses)
    return f"{fine:,} of {len(statuses):,} fine"


def _render_sections(statuses: Sequence[StreamStatus], time: dt.datetime) -> Iterator[str]:
    for needs_person, group in groupby(statuses, key=lambda status: status.needs_person):
        yield f"<h2>{'Need a person' if needs_person else 'Fine'}</h2><table><thead><tr>"
        yield from (f'<th scope="col">{name}</th>' for name in ("Stream", "State", "Last sync"))
        yield from (f'<th scope="col">{name}</th>' for name, *_ in _FIGURES)
        yield "</tr></thead><tbody>"
        for status in group:
            yield f"<tr>{''.join(_render_cells(status, time.date()))}</tr>\n"
        yield "</tbody></table>"


def _render_cells(status: StreamStatus, today: dt.date) -> Iterator[str]:
    name = _text(f"{status.connection}/{status.stream}")
    yield f'<td class="name">{name}<small>{_text(status.policy)}</small></td>'
    yield f'<td class="state">{"".join(_render_state(status))}</td>'
    last = "–" if status.complete is None else describe_time(status.complete)
    result = "" if status.result == "complete" else f"<small>{_text(status.result)}</small>"
    yield f'<td data-label="last sync">{_text(last)}{result}</td>'
    for label, attribute, describe in _FIGURES:
        value = _find_value(status, attribute)
        value_text = "–" if value is None else describe(value)
        plot = _plot(
            label, [_find_day_value(status, today, ago, attribute) for ago in range(_DAYS, -1, -1)]
        )
        yield f'<td class="figure" data-label="{label.lower()}">{_text(value_text)}{plot}</td>'


def _render_state(status: StreamStatus) -> Iterator[str]:
    if status.state is None:
        yield '<span class="mark good">fine</span>'
    for concern in status.concerns:
        is_warning = concern.kind == NO_NEED
        mark = "warning" if is_warning else _MARKS.get(concern.kind, concern.kind)
        yield f'<p><span class="mark {"warn" if is_warning else "bad"}">{_text(mark)}</span> '
        failure = status.sync.failure if concern.kind == "failed" else None
        when = "" if failure is None else f"{describe_seconds(seconds_since(failure.time))} ago: "
        yield f"{_text(when + concern.text)}<br>next: <code>{_text(concern.next_step)}</code></p>"
    if status.stale is None and status.rule is None:
        yield "<small>without a schedule: never stale</small>"
    elif status.rule is not None:
        yield f"<small>{_text(status.rule.text)}</small>"
    parts = status.partitions
    if parts is not None:
        text = f"{parts.complete:,} of {parts.all:,} partitions, {parts.failed:,} failed"
        yield f"<small>{text}</small>"


_MARKS = {"check": "failed check", "never": "never synced", "unknown": "no event"}
assert _MARKS.keys() <= KINDS.keys()


def _describe_rows(value: float) -> str:
    return f"{value:,.0f}"


def _describe_bytes(value: float) -> str:
    unit, size = next((unit for unit in _UNITS if value >= unit[1]), ("B", 1))
    return f"{value / size:,.1f} {unit}" if size > 1 else f"{value:,.0f} B"


def _describe_duration(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else describe_seconds(value)


_FIGURES: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("Rows", "rows", _describe_rows),
    ("Duration", "seconds", _describe_duration),
    ("Lag", "lag", _describe_duration),
    ("Size", "size", _describe_bytes),
)
"""The figures with plots: their names, the attributes of a day, and their texts."""


def _find_value(status: StreamStatus, attribute: str) -> float | None:
    if attribute == "rows":
        return None if status.table is None else status.table.rows
    if attribute == "lag":
        return status.lag
    if attribute == "seconds":
        return None if status.sync.figures is None else status.sync.figures.seconds
    newest = list(status.days.values())[-1:]
    return newest[0].size if newest else None


def _find_day_value(status: StreamStatus, today: dt.date, ago: int, attribute: str) -> float | None:
    day = status.days.get((today - dt.timedelta(days=ago)).isoformat(), Day())
    value: float | None = getattr(day, attribute) if day.syncs else None
    return value


def _plot(label: str, values: Sequence[float | None]) -> str:
    """Return a line over the days; days without a value are a gap, and a single day is a point."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    most, step = max(numbers) or 1, _WIDTH / (len(values) - 1)
    parts, points = [], list[str]()
    for place, value in enumerate([*values, None]):
        if value is not None:
            points.append(f"{place * step:.0f},{_HEIGHT - 2 - value / most * (_HEIGHT - 5):.1f}")
            continue
        if len(points) > 1:
            parts.append(f'<polyline points="{" ".join(points)}"/>')
        elif points:
            x, y = points[0].split(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="1.8"/>')
        points = []
    text = (
        f"{label}: {len(numbers)} days, at most {max(numbers):,.0f}, at least {min(numbers):,.0f}"
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="-2 0 {_WIDTH + 4} {_HEIGHT}" role="img" '
        f'aria-label="{text}"><title>{text}</title>'
        f'<line x1="0" y1="{_HEIGHT - 1}" x2="{_WIDTH}" y2="{_HEIGHT - 1}"/>{"".join(parts)}</svg>'
    )


def _text(value: str) -> str:
    """Return a text for the page; characters that control a terminal or turn the direction are shown."""
    return escape(printable(value, keep="\n"), quote=True).replace("\n", "<br>")
