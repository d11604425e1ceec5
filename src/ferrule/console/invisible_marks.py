"""Characters that a person would not see in a text, spelled out and marked in HTML."""

from __future__ import annotations

from markupsafe import Markup, escape

from ferrule.core import invisible_characters


def mark_invisible(text: str) -> Markup:
    """Spell out and mark what a person would not see in a text (`core.invisible_characters`)."""
    return Markup(invisible_characters.escape_invisible(str(escape(text)), escape=_mark))


def mark_invisible_exactly(text: str) -> Markup:
    """Spell out and mark what a person would not see in a text they are asked to approve."""
    return Markup(invisible_characters.escape_for_approval(str(escape(text)), spell=_mark))


def _mark(character: str) -> str:
    return f'<span class="unseen">{invisible_characters.escape_character(character)}</span>'
