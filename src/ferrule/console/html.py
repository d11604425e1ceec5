"""HTML of the console: auto-escaping templates, and the filters that format values in them.

Texts of models, tools and strangers are data. They reach a page only as escaped text nodes and
attribute values, but for the answers of models, whose Markdown is laid out (`markdown`). A template
that uses an undefined name raises.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ferrule.core.limits import GO_ON
from ferrule.core.vocabulary import Refuser
from ferrule.permissions.approval_text import list_unshown_arguments

from .call_cards import (
    MAX_PREVIEW,
    change_lines,
    format_value,
    indent_json,
    preview_lines,
    shorten,
    summarize_arguments,
)
from .invisible_marks import mark_invisible, mark_invisible_exactly
from .markdown import join_blocks

REFUSERS: dict[Refuser, str] = {
    "rule": "a rule",
    "gate": "the gate itself",
    "person": "a person",
    "hook": "a hook",
    "tool": "the tool's own check",
    "sandbox": "the sandbox",
    "mode": "the mode",
    "nobody": "nobody: no one was available to ask",
    "error": "an error while asking",
    "limit": "a limit of the run",
}
"""Who refused a call, in words for the reader, behind `by`."""


@cache
def template_environment() -> Environment:
    """Return the template environment of this package, created once and safe to share."""
    made = Environment(
        loader=PackageLoader("ferrule.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast("dict[str, Any]", made.filters)
    filters |= {
        "moment": format_time,
        "duration": format_duration,
        "size": format_size,
        "count": format_count,
        "pretty": indent_json,
        "visible": mark_invisible,
        "exact": mark_invisible_exactly,
        "plural": format_plural,
        "brief": summarize_arguments,
        "cut": shorten,
        "lines": preview_lines,
        "change": change_lines,
        "parts": join_blocks,
        "ticks": format_ticks,
        "exact_ticks": partial(format_ticks, mark=mark_invisible_exactly),
        "value": format_value,
        "refuser": REFUSERS.__getitem__,
        "unshown_arguments": list_unshown_arguments,
    }
    cast("dict[str, Any]", made.globals).update(PREVIEW=MAX_PREVIEW, GO_ON=GO_ON)
    return made


def format_ticks(text: str, mark: Callable[[str], Markup] = mark_invisible) -> Markup:
    """Format a message of ours: what stands in backticks is code.

    Args:
        text: The message.
        mark: What spells out characters that nobody sees.
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return mark(text)
    shown = (
        Markup("<code>{}</code>").format(mark(part)) if at % 2 else mark(part)
        for at, part in enumerate(parts)
    )
    return Markup("").join(shown)


def format_time(milliseconds: int) -> Markup:
    """Format a time (ms since 1970) as `<time>`: UTC here, the reader's time zone in a browser."""
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    shown = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" data-moment>{} UTC</time>').format(
        at.isoformat(timespec="milliseconds"), shown
    )


def format_duration(seconds: float) -> str:
    """Format seconds: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 3 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_size(octets: int) -> str:
    """Format a number of bytes in units of 1024."""
    amount = float(octets)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def format_count(number: int) -> str:
    """Format a number with thin spaces between thousands, so that no language misreads it."""
    return f"{number:,}".replace(",", "\u202f")


def format_plural(number: int, word: str) -> str:
    """Format a number with its noun: `1 call`, `2 calls`."""
    return f"{format_count(number)} {word}" if number == 1 else f"{format_count(number)} {word}s"
