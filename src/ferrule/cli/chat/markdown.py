"""Render a model's Markdown as rows for a terminal, with nothing that the terminal would obey.

`rich` lays out what `markdown-it-py` has parsed. Three rules differ from what they do by default,
since the text is a model's:

* All of it is shown: HTML, images, link targets and definitions of links are text like any other,
  and a line ends where the model ended it.
* No links of the terminal are made: they would be control sequences with a stranger's address.
* Characters are escaped after parsing, because Markdown can spell them (`&#x202e;`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.lexers import (
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType]  its options are untyped
)
from pygments.util import ClassNotFound
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from ferrule.cli.terminal import escape_invisible, style_text
from ferrule.core.lazy_patterns import compile_lazily

MAX_HIGHLIGHTED_LINE = 1_000
"""A longer line of code is shown without colours: expressions of lexers can be slow on it."""
CODE_INDENT = 2
_CODE_THEME = "ansi_dark"
"""Colours of the person's own palette, on the person's own background."""
_LEAD = compile_lazily(r"\s*(?:[│▸✓✗!…›+-] +)?")
_STYLES = compile_lazily(r"\x1b\[[\d;]*m")
_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.code": "cyan",
        "markdown.block_quote": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)


@lru_cache(maxsize=1)
def markdown_parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables and strikethrough, without what hides text."""
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["strikethrough", "table"]).disable(["image", "reference"])


class RowRenderer:
    """Renders Markdown, code and styled text as rows of at most `width` columns.

    Attributes:
        width: The columns of the terminal; may be changed at any time.

    Args:
        width: See above.
        colour: Whether rows may have colours; if not, they have no styles at all.
        ascii_only: Draw with ASCII characters alone.
    """

    def __init__(self, width: int, *, colour: bool, ascii_only: bool = False) -> None:
        self.width = width
        self._is_ascii = ascii_only
        self._console = Console(
            file=io.TextIOWrapper(io.BytesIO(), "ascii" if ascii_only else "utf-8"),
            force_terminal=colour,
            no_color=not colour,
            color_system="standard" if colour else None,
            theme=_THEME,
            highlight=False,
            emoji=False,
            markup=False,
            legacy_windows=False,
            _environ={},
        )

    def render_markdown(self, text: str) -> list[str]:
        """Render whole blocks of Markdown."""
        return self._render(_Markdown.parse(text))

    def render_code(self, code: str, lexer: Lexer | None, *, skip: int = 0) -> list[str]:
        """Render lines of code, indented. Long lines are broken anywhere, as they have no words.

        Args:
            code: The lines.
            lexer: Chooses the colours; None for none.
            skip: How many lines at the beginning are only there for the colours of the others.
        """
        shown = escape_invisible(code, keep_joiners=True).expandtabs(4)
        width = max(self.width - CODE_INDENT, 2)
        rows = Text(no_wrap=True, overflow="ignore")
        for line in _highlight(shown, lexer).split("\n", allow_blank=True)[skip:]:
            for piece in line.divide(range(width, len(line), width)):
                rows.append(" " * CODE_INDENT).append_text(piece).append("\n")
        rows.right_crop(1)
        return self._render(rows, trimmed=False)

    def render_text(self, text: str, style: str = "") -> list[str]:
        """Render plain text in one style, wrapped at words."""
        return self._render(Text(escape_invisible(text, keep_joiners=True), style=style))

    def render_message(self, text: str, style: str = "") -> list[str]:
        """Render lines of ours, wrapped at words; further rows are indented as the first one."""
        rows: list[str] = []
        for line in escape_invisible(text, keep_joiners=True).expandtabs(4).split("\n"):
            lead = _LEAD.match(line)
            mark = lead[0] if lead is not None else ""
            further = mark if "│" in mark else " " * len(mark)
            width = max(self.width - len(mark), 8)
            wrapped = Text(line[len(mark) :]).wrap(self._console, width) or [Text("")]
            for number, piece in enumerate(wrapped):
                shown = (further if number else mark) + piece.plain.rstrip()
                rows.append(self.style(shown.rstrip(), style))
        return rows

    def style(self, text: str, style: str) -> str:
        """Return a text with the codes of its style, if there are colours."""
        return style_text(text, style) if self._console.color_system else text

    def fit_row(self, text: str, style: str) -> str:
        """Return one row, cut to the width."""
        shown = Text(escape_invisible(text.split("\n", 1)[0], keep_joiners=True).expandtabs(4))
        shown.truncate(self.width, overflow="crop" if self._is_ascii else "ellipsis")
        return self.style(shown.plain, style)

    def _render(self, content: RenderableType, *, trimmed: bool = True) -> list[str]:
        console = self._console
        console.width = max(self.width, 4)
        with console.capture() as captured:
            console.print(content, soft_wrap=False)
        rows = captured.get().removesuffix("\n").split("\n")
        while trimmed and len(rows) > 1 and _is_blank(rows[-1]):
            rows.pop()
        while trimmed and len(rows) > 1 and _is_blank(rows[0]):
            del rows[0]
        return [_strip_padding(row) for row in rows]


def find_lexer(language: str) -> Lexer | None:
    """Return the lexer for the language that a fence names; None if there is none."""
    name = language.strip().split(" ")[0].strip("{}.").lower()
    if not name or not re.fullmatch(r"[\w+#.-]{1,32}", name):
        return None
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _highlight(code: str, lexer: Lexer | None) -> Text:
    """Return code in the colours of its language."""
    if lexer is None or max(map(len, code.split("\n"))) > MAX_HIGHLIGHTED_LINE:
        return Text(code)
    text = Syntax(code, lexer, theme=_CODE_THEME).highlight(code)
    added = len(text) - len(code)
    if added > 0:
        text.right_crop(added)
    return text


def _is_blank(row: str) -> bool:
    return not _STYLES.sub("", row).strip()


def _strip_padding(row: str) -> str:
    """Remove the blanks that fill a row up to the width, also behind the last style."""
    body, style = row, ""
    if row.endswith("\x1b[0m"):
        body, style = row.removesuffix("\x1b[0m"), "\x1b[0m"
    body = body.rstrip(" ")
    return body if style and body.endswith("\x1b[0m") else body + style


class _Heading(rich_markdown.Heading):
    """A heading at the left: nothing is centred in a conversation."""

    LEVEL_ALIGN: ClassVar[dict[str, Any]] = {}


class _CodeBlock(rich_markdown.CodeBlock):
    """Code in a list or a quote."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = _highlight(str(self.text).rstrip(), find_lexer(self.lexer_name))
        shown.no_wrap = False
        shown.overflow = "fold"
        yield shown


class _Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, Any]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }

    @staticmethod
    @lru_cache(maxsize=1)
    def empty() -> _Markdown:
        """Return the document that all others are copies of: making one makes a parser, too."""
        return _Markdown("", hyperlinks=False, code_theme=_CODE_THEME)

    @classmethod
    def parse(cls, text: str) -> _Markdown:
        """Return a document with this text."""
        document = copy(cls.empty())
        document.parsed = markdown_parser().parse(text)
        _adapt_tokens(document.parsed)
        return document


def _adapt_tokens(tokens: Sequence[Token]) -> None:
    """Escape what a reader would not see, in every text and address, and keep the ends of lines."""
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        token.content = escape_invisible(token.content, keep_joiners=True)
        token.info = escape_invisible(token.info)
        for name, value in token.attrs.items():
            if isinstance(value, str):
                token.attrs[name] = escape_invisible(value)
        if token.children:
            _adapt_tokens(token.children)


def first_lines_of_blocks(tokens: Iterable[Token]) -> list[int]:
    """Return the lines at which the blocks of a document begin.

    Items of a list count as blocks of their own: each is finished when the next one begins.
    """
    starts: set[int] = set()
    for token in tokens:
        is_item = token.type == "list_item_open" and token.level == 1
        if token.map is not None and (token.level == 0 or is_item):
            starts.add(token.map[0])
    return sorted(starts)
