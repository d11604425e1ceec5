"""Markdown of a model's answers as HTML, of which nothing acts in a reader's browser.

`markdown-it-py` parses CommonMark with tables; what is drawn differs from its own rules, since the
text is a model's:

* HTML is text like any other.
* Pictures are not loaded: an address could carry what a model has read to a stranger. They are
  shown by their text and address.
* Links go to `http`, `https` and `mailto` only, and their address stands beside their text.
* A line ends where the model ended it.
* Characters that nobody would see are spelled out after parsing, because Markdown can spell them
  (`&#x202e;`).

Whoever follows a link tells its host what the address says: the page cannot prevent that.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from .invisible_marks import mark_invisible

MAX_MARKDOWN = 200_000
"""Characters of the longest text that is parsed; a longer one is shown as it is."""
_SCHEMES = ("http://", "https://", "mailto:")


def render_markdown(text: str) -> Markup:
    """Return a model's text as HTML; a very long one without its layout."""
    if len(text) > MAX_MARKDOWN:
        return Markup('<div class="plain">{}</div>').format(mark_invisible(text))
    # All that the renderer writes is escaped by its rules.
    return Markup(_parser().render(text))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer
    ).enable(["table", "strikethrough"])
    # Addresses that may not be linked are refused here, and their Markdown stays text.
    parser.validateLink = _is_linked  # pyright: ignore[reportAttributeAccessIssue]  the parser's own way to set it
    return parser


def _is_linked(address: str) -> bool:
    return address.lower().startswith(_SCHEMES)


Tokens = Sequence[Token]
Environment = MutableMapping[str, Any]


class _Renderer(RendererHTML):
    """The rules of the list above, by kind of token."""

    def text(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return str(mark_invisible(tokens[idx].content))

    def code_inline(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return f"<code>{mark_invisible(tokens[idx].content)}</code>"

    def code_block(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return f'<pre class="code" tabindex="0">{mark_invisible(tokens[idx].content)}</pre>\n'

    def fence(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        language = tokens[idx].info.strip().partition(" ")[0]
        name = f'<p class="language small quiet">{mark_invisible(language)}</p>' if language else ""
        return name + self.code_block(tokens, idx, options, env)

    def image(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        token = tokens[idx]
        address = mark_invisible(str(token.attrs.get("src", "")))
        shown = mark_invisible(self.renderInlineAsText(token.children or [], options, env))
        return f'<span class="not-loaded">{shown or "picture"} <code>{address}</code></span>'

    def link_open(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        address = escape(str(tokens[idx].attrs.get("href", "")))
        return f'<a href="{address}" rel="noopener noreferrer nofollow" target="_blank">'

    def link_close(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        begin = max(at for at in range(idx) if tokens[at].type == "link_open")
        address = str(tokens[begin].attrs.get("href", ""))
        said = "".join(token.content for token in tokens[begin:idx])
        if said == address.removeprefix("mailto:"):
            return "</a>"
        return f'</a> <span class="address small quiet">{mark_invisible(address)}</span>'

    # The page's own headings are `h1` and `h2`; those of an answer stand below, all on one level.
    def heading_open(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return f'<h3 class="said-{tokens[idx].tag}">'

    def heading_close(
        self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment
    ) -> str:
        return "</h3>\n"

    def table_open(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return '<div class="wide" tabindex="0"><table>\n'

    def table_close(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return f'<th scope="col"{_align(tokens[idx])}>'

    def td_open(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return f"<td{_align(tokens[idx])}>"


def _align(cell: Token) -> str:
    """Return the alignment of a cell as a class: the page's policy refuses styles in elements."""
    return ' class="n"' if "right" in str(cell.attrs.get("style", "")) else ""
