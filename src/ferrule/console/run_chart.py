"""The waterfall chart of a run: a bar per model answer, wait for a person, and tool call."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from ferrule.core.events import JournalRecord
from ferrule.storage.statistics.timeline import Span, Timeline, build_timeline

from .charts import WIDE, draw_svg, render_figure, render_table, scale_ticks
from .html import format_duration, format_plural

ROW = 22
HEAD = 26
LETTER = 8
"""Width of a letter of a label. Longer names are cut: the tooltip and the table have them whole."""
LEGEND = (
    ("pic-model", "model answer"),
    ("pic-person", "wait for a person"),
    ("pic-tool", "tool call"),
    ("pic-bad", "refused or failed"),
)


def draw_waterfall(records: Iterable[JournalRecord], run: str = "") -> Markup:
    """Draw the chart of this run, or of the last one in the records.

    Returns an empty text for a run in which nothing took time.
    """
    line = build_timeline(records, run=run)
    if not line.spans:
        return Markup("")
    length = max(1, line.end - line.start)
    title = f"Timeline of the run: {format_duration(length / 1000)}, {_describe_count(line)}"
    height = HEAD + ROW * len(line.spans) + 6

    def draw(width: int) -> Markup:
        bars = [_bar(span, at, line, width) for at, span in enumerate(line.spans)]
        return Markup("").join([_ruler(length, width, height), *bars])

    svg = draw_svg(title, _describe(line), height, draw)
    rows = [
        [
            _label(span),
            format_duration((span.start - line.start) / 1000),
            format_duration((span.end - span.start) / 1000),
            span.outcome,
        ]
        for span in line.spans
    ]
    return render_figure(
        title, svg, LEGEND, render_table(["Step", "Starts after", "Duration", "Outcome"], rows)
    )


def _describe_count(line: Timeline) -> str:
    shown = len(line.spans)
    return (
        format_plural(shown, "step")
        if not line.more
        else f"the first {shown} of {shown + line.more} steps"
    )


def _describe(line: Timeline) -> str:
    """Describe in words what the chart shows."""
    parts: list[str] = []
    for kind, name in (("model", "the model"), ("person", "a person"), ("tool", "tools")):
        spans = [span for span in line.spans if span.kind == kind]
        if spans:
            took = sum(span.end - span.start for span in spans) / 1000
            parts.append(f"{name}: {len(spans)} times, {format_duration(took)}")
    failed = sum(span.is_failed for span in line.spans)
    return "; ".join([*parts, f"{failed} of them refused or failed"]) + "."


def _label(span: Span) -> str:
    return f"waiting: {span.label}" if span.kind == "person" else span.label


def _css(span: Span) -> str:
    return "pic-bad" if span.is_failed else f"pic-{span.kind}"


def _label_width(width: int) -> int:
    return 190 if width == WIDE else 110


def _x(milliseconds: int | float, length: int, width: int) -> float:
    labels = _label_width(width)
    return labels + milliseconds / length * (width - labels - 12)


def _ruler(length: int, width: int, height: int) -> Markup:
    ticks = [one for one in scale_ticks(length / 1000) if one * 1000 <= length]
    label = LETTER * (2 + max(len(format_duration(one)) for one in ticks))
    every = -(-len(ticks) * label // (width - _label_width(width)))
    return Markup("").join(
        Markup(
            '<line class="pic-axis" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height}"/>'
            '<text class="pic-text" x="{text_x:.1f}" y="14" text-anchor="middle">{shown}</text>'
        ).format(
            x=(x := _x(one * 1000, length, width)),
            text_x=min(x, width - label / 2),
            top=HEAD - 6,
            height=height,
            shown=format_duration(one),
        )
        for one in ticks[::every]
    )


def _bar(span: Span, at: int, line: Timeline, width: int) -> Markup:
    length = max(1, line.end - line.start)
    left = _x(span.start - line.start, length, width)
    right = _x(span.end - line.start, length, width)
    top = HEAD + at * ROW
    name = _label(span)
    letters = _label_width(width) // LETTER
    label = name if len(name) <= letters else f"{name[: letters - 1]}…"
    said = (
        f"{name}: after {format_duration((span.start - line.start) / 1000)}, takes "
        f"{format_duration((span.end - span.start) / 1000)}, {span.outcome}"
    )
    return Markup(
        '<g><title>{said}</title><text class="pic-text" x="{label_x}" y="{text_y}" '
        'text-anchor="end">{label}</text>'
        '<rect class="{css}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}" '
        'rx="3"/></g>'
    ).format(
        said=said,
        label_x=_label_width(width) - 10,
        text_y=top + 14,
        label=label,
        css=_css(span),
        left=left,
        top=top + 3,
        width=max(2.5, right - left),
        height=ROW - 7,
    )
