"""Charts as SVG, drawn on the server: columns by day, and what all charts share.

A chart is a `figure`: the drawing with a title and a description for those who cannot see it, a
legend, and the same numbers as a table below. Colours are classes of the style sheet (`pic-1` …),
so they follow the light and dark themes; no drawing contains a style, a script or an address. Every
text in it is escaped, whoever wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from itertools import count as counting

from markupsafe import Markup

from ferrule.core.value_class import frozen

WIDTH = 800
HEIGHT = 240
LEFT = 64
RIGHT = 8
TOP = 12
BOTTOM = 28
MIN_SCALE = 1e-6
"""The smallest number a chart is scaled to; smaller values are drawn as nothing."""
_numbers = counting(1)
"""Ids of titles: two charts on one page must not share them."""

NumberFormat = Callable[[float], str]
"""Formats a number for people."""


@frozen
class Series:
    """A row of numbers, one per column. `css` is the class of its colour."""

    name: str
    css: str
    values: Sequence[float]

    @property
    def total(self) -> float:
        return sum(self.values)


def days_up_to(last: str, number: int) -> list[str]:
    """Return the `number` days that end with `last` (`2026-11-22`), oldest first."""
    end = date.fromisoformat(last)
    return [(end - timedelta(days=back)).isoformat() for back in reversed(range(number))]


def draw_svg(
    title: str, description: str, width: int, height: int, inside: Markup, *, late: bool = False
) -> Markup:
    """Return an SVG with a title and a description.

    If it is wider than the screen and `late` is set, its end is shown first.
    """
    number = next(_numbers)
    return Markup(
        '<div class="pic-scroll{late}" tabindex="0" role="group" aria-label="{title}">'
        '<svg class="pic" role="img" aria-labelledby="pic{n}t pic{n}d" viewBox="0 0 {width} '
        '{height}">'
        '<title id="pic{n}t">{title}</title><desc '
        'id="pic{n}d">{description}</desc>{inside}</svg></div>'
    ).format(
        title=title,
        description=description,
        width=width,
        height=height,
        inside=inside,
        n=number,
        late=" late" if late else "",
    )


def render_figure(
    title: str, svg: Markup, legend: Sequence[tuple[str, str]], table: Markup
) -> Markup:
    """Return a drawing with its caption, a legend of (class, name), and its numbers as a table."""
    keys = Markup("").join(
        Markup(
            '<li><svg class="key" viewBox="0 0 10 10" aria-hidden="true"><rect class="{}" '
            'width="10" height="10" rx="2"/></svg>{}</li>'
        ).format(css, name)
        for css, name in legend
    )
    return Markup(
        '<figure class="picture"><figcaption>{}</figcaption>{}<ul class="legend">{}</ul>'
        '<details><summary>As a table</summary><div class="scroll" tabindex="0" '
        'role="region" aria-label="{}">{}</div></details></figure>'
    ).format(title, svg, keys, f"{title}, as a table", table)


def render_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return numbers as a table; the first column names the row."""
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(one) for one in heads)
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            row[0], Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row[1:])
        )
        for row in rows
    )
    return Markup(
        '<table class="numbers"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
    ).format(head, body)


def scale_ticks(most: float) -> list[float]:
    """Return a few round numbers from 0 to `most` or a little beyond, where lines are drawn."""
    if most < MIN_SCALE:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(most / 5))
    step = next((power * factor for factor in (1, 2, 5) if power * factor * 5 >= most), power * 10)
    # Multiplied, not added up: sums of steps would drift off the round numbers.
    return [at * step for at in range(math.ceil(most / step) + 1)]


def draw_columns(
    title: str, days: Sequence[str], series: Sequence[Series], format_value: NumberFormat
) -> Markup:
    """Draw stacked columns, one per day, with the numbers as a table."""
    series = [one for one in series if one.total]
    sums = [sum(one.values[at] for one in series) for at in range(len(days))]
    lines = scale_ticks(max(sums, default=0.0))
    inside = Markup("").join(
        [
            _grid(lines, format_value),
            _bars(days, series, lines[-1], format_value),
            _day_labels(days),
        ]
    )
    said = f"{len(days)} days from {days[0]} to {days[-1]}; " + (
        "; ".join(f"{one.name}: {format_value(one.total)} in all" for one in series) or "no data"
    )
    heads = ["Day", *(one.name for one in series), "Total"]
    rows = [
        [day, *(format_value(one.values[at]) for one in series), format_value(sums[at])]
        for at, day in enumerate(days)
        if sums[at]
    ]
    svg = draw_svg(title, said, WIDTH, HEIGHT, inside, late=True)
    return render_figure(
        title,
        svg,
        [(one.css, f"{one.name}: {format_value(one.total)}") for one in series],
        render_table(heads, rows),
    )


def _grid(lines: Sequence[float], shown: NumberFormat) -> Markup:
    return Markup("").join(
        Markup(
            '<line class="pic-axis" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
            '<text class="pic-text" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
        ).format(
            LEFT,
            WIDTH - RIGHT,
            _y(one, lines[-1]),
            _y(one, lines[-1]),
            LEFT - 8,
            _y(one, lines[-1]) + 4,
            shown(one),
        )
        for one in lines
    )


def _y(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM)


def _bars(
    days: Sequence[str], series: Sequence[Series], most: float, shown: NumberFormat
) -> Markup:
    step = (WIDTH - LEFT - RIGHT) / len(days)
    drawn: list[Markup] = []
    for at, day in enumerate(days):
        base = 0.0
        for one in series:
            value = one.values[at]
            if not value:
                continue
            top = _y(base + value, most)
            bottom = _y(base, most)
            base += value
            drawn.append(
                Markup(
                    '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" '
                    'height="{:.1f}"><title>{}: {}, {}</title></rect>'
                ).format(
                    one.css,
                    LEFT + at * step + step * 0.12,
                    top,
                    step * 0.76,
                    max(0.8, bottom - top),
                    day,
                    one.name,
                    shown(value),
                )
            )
    return Markup("").join(drawn)


def _day_labels(days: Sequence[str]) -> Markup:
    step = (WIDTH - LEFT - RIGHT) / len(days)
    every = max(1, -(-len(days) // 8))
    return Markup("").join(
        Markup('<text class="pic-text" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            LEFT + (at + 0.5) * step, HEIGHT - 8, day[5:]
        )
        for at, day in enumerate(days)
        if (len(days) - 1 - at) % every == 0
    )
