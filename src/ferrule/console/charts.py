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

WIDE = 620
NARROW = 310
"""Widths that every chart is drawn for: a screen, and a telephone. The style sheet shows the one
that fits, in its own size: a drawing that is stretched would stretch its text.
"""
HEIGHT = 240
LEFT = 64
RIGHT = 16
TOP = 12
BOTTOM = 28
DAY_LABEL = 100
"""Width of a day's label with its margin."""
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


def draw_svg(title: str, description: str, height: int, draw: Callable[[int], Markup]) -> Markup:
    """Return SVGs with a title and a description: what `draw` makes of each width."""
    drawn = Markup("").join(
        _draw_one(title, description, width, height, draw(width)) for width in (WIDE, NARROW)
    )
    return Markup(
        '<div class="pic-scroll" tabindex="0" role="group" aria-label="{}">{}</div>'
    ).format(title, drawn)


def _draw_one(title: str, description: str, width: int, height: int, inside: Markup) -> Markup:
    return Markup(
        '<svg class="pic {css}" role="img" aria-labelledby="pic{n}t pic{n}d" '
        'viewBox="0 0 {width} {height}"><title id="pic{n}t">{title}</title>'
        '<desc id="pic{n}d">{description}</desc>{inside}</svg>'
    ).format(
        css="pic-narrow" if width == NARROW else "pic-wide",
        title=title,
        description=description,
        width=width,
        height=height,
        inside=inside,
        n=next(_numbers),
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


def scale_ticks(most: float, *, whole: bool = False) -> list[float]:
    """Return a few round numbers from 0 to `most` or a little beyond, where lines are drawn.

    With `whole`, the values are counts, and no line lies between two whole numbers.
    """
    if most < MIN_SCALE:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(most / 5))
    step = next((power * factor for factor in (1, 2, 5) if power * factor * 5 >= most), power * 10)
    if whole:
        step = max(step, 1.0)
    # Multiplied, not added up: sums of steps would drift off the round numbers.
    return [at * step for at in range(math.ceil(most / step) + 1)]


def draw_columns(
    title: str,
    days: Sequence[str],
    series: Sequence[Series],
    format_value: NumberFormat,
    *,
    whole: bool = False,
) -> Markup:
    """Draw stacked columns, one per day, with the numbers as a table; "" if there is nothing.

    With `whole`, the numbers are counts.
    """
    series = [one for one in series if one.total]
    if not series:
        return Markup("")
    sums = [sum(one.values[at] for one in series) for at in range(len(days))]
    lines = scale_ticks(max(sums), whole=whole)

    def draw(width: int) -> Markup:
        parts = [
            _grid(lines, width, format_value),
            _bars(days, series, lines[-1], width, format_value),
            _day_labels(days, width),
        ]
        return Markup("").join(parts)

    said = f"{len(days)} days from {days[0]} to {days[-1]}; " + "; ".join(
        f"{one.name}: {format_value(one.total)} in all" for one in series
    )
    heads = ["Day", *(one.name for one in series), "Total"]
    rows = [
        [day, *(format_value(one.values[at]) for one in series), format_value(sums[at])]
        for at, day in enumerate(days)
        if sums[at]
    ]
    svg = draw_svg(title, said, HEIGHT, draw)
    return render_figure(
        title,
        svg,
        [(one.css, f"{one.name}: {format_value(one.total)}") for one in series],
        render_table(heads, rows),
    )


def _grid(lines: Sequence[float], width: int, shown: NumberFormat) -> Markup:
    return Markup("").join(
        Markup(
            '<line class="pic-axis" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
            '<text class="pic-text" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
        ).format(
            LEFT,
            width - RIGHT,
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
    days: Sequence[str], series: Sequence[Series], most: float, width: int, shown: NumberFormat
) -> Markup:
    step = (width - LEFT - RIGHT) / len(days)
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


def _day_labels(days: Sequence[str], width: int) -> Markup:
    step = (width - LEFT - RIGHT) / len(days)
    every = max(1, -(-len(days) // (width // DAY_LABEL)))
    return Markup("").join(
        Markup('<text class="pic-text" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            LEFT + (at + 0.5) * step, HEIGHT - 8, day[5:]
        )
        for at, day in enumerate(days)
        if (len(days) - 1 - at) % every == 0
    )
