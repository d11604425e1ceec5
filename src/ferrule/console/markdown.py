"""Markdown of a model's answers as HTML, of which nothing acts in a reader's browser.

Every top-level block is a `<div class="block">`, so that an answer that is still arriving looks
like the finished one (`StreamedMarkdown`), and `BLOCKS_OF_PART` of them are a `<div class="part">`,
so that a browser can leave out the parts that are off the screen.

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

import re
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from ferrule.core.value_class import frozen

from .invisible_marks import mark_invisible

MAX_MARKDOWN = 200_000
"""Characters of the longest text that is parsed; a longer one is shown as it is."""
Tokens = Sequence[Token]
Environment = MutableMapping[str, Any]
_SCHEMES = ("http://", "https://", "mailto:")
_ENDS_WITH_CODE = re.compile(r"</pre>(?:\s|</\w+>)*\Z")
"""A block whose last text is code, where white space is drawn."""

BLOCKS_OF_PART = 32
OPEN_CHARACTERS_PER_SECOND = 20_000
"""How often the unfinished end of an arriving text is laid out again: a longer end less often."""
OPEN_SHARE = 0.05
"""The most of the time that goes into laying out unfinished ends."""


def render_markdown(text: str) -> Markup:
    """Return a model's text as HTML; a very long one without its layout."""
    return join_blocks(render_blocks(text))


def render_blocks(text: str) -> list[Markup]:
    """Return the top-level blocks of a model's text as HTML; a very long text is one."""
    if len(text) > MAX_MARKDOWN:
        return [Markup('<div class="plain">{}</div>').format(mark_invisible(text))]
    return [block for _, block in _parse_blocks(text, {})]


def join_blocks(blocks: Sequence[Markup]) -> Markup:
    """Return the HTML of these blocks, in parts."""
    parts = (blocks[at : at + BLOCKS_OF_PART] for at in range(0, len(blocks), BLOCKS_OF_PART))
    return Markup("").join(
        Markup('<div class="part">{}</div>').format(Markup("").join(part)) for part in parts
    )


def _parse_blocks(text: str, environment: Environment) -> Iterator[tuple[int, Markup]]:
    """Yield each top-level block of a text: the number of its first line, and its HTML."""
    parser = _parser()
    tokens = parser.parse(text, environment)
    begin = 0
    for end, token in enumerate(tokens, 1):
        if token.level == 0 and token.nesting <= 0:
            # All that the renderer writes is escaped by its rules.
            inside = parser.renderer.render(tokens[begin:end], parser.options, environment)
            lines = tokens[begin].map
            yield lines[0] if lines else 0, Markup(f'<div class="block">{inside}</div>')
            begin = end


@frozen
class ArrivingText:
    """An answer that is arriving, for a page.

    Args:
        blocks: Finished blocks as HTML, those after the ones that the page has.
        count: How many finished blocks there are in all.
        version: Changes when `tail` is laid out again.
        tail: What follows the finished blocks, laid out as far as it had arrived then.
        rest: What has arrived since, after the white space at the end of `tail` that no layout
            shows and that divides it from the next word.
    """

    blocks: Sequence[Markup] = ()
    count: int = 0
    version: int = 0
    tail: Sequence[Markup] = ()
    rest: str = ""


class StreamedMarkdown:
    """A text that arrives in pieces. A finished block is laid out once, for all readers.

    A block is finished when another one begins after it: Markdown reads line by line and never goes
    back, but for the definition of a link below its use. The unfinished end is laid out again as
    the text grows, the longer it is the less often.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._blocks: list[Markup] = []
        self._finished: list[str] = []
        """The text of the finished blocks."""
        self._unfinished = ""
        """What follows it, as far as `_tail` shows it."""
        self._rest: list[str] = []
        self._length = 0
        self._environment: Environment = {}
        self._tail: list[Markup] = []
        self._space = ""
        self._version = 0
        self._next_layout = 0.0

    @property
    def text(self) -> str:
        """Everything that has arrived."""
        return "".join([*self._finished, self._unfinished, *self._rest])

    def add(self, piece: str) -> None:
        """Add the next piece."""
        self._rest.append(piece)
        self._length += len(piece)

    def look(self, after: int = 0) -> ArrivingText:
        """Return the text as it is now, without the first `after` finished blocks."""
        began = self._clock()
        if self._rest and self._length <= MAX_MARKDOWN and began >= self._next_layout:
            self._lay_out()
            ended = self._clock()
            pause = max(
                (ended - began) / OPEN_SHARE, len(self._unfinished) / OPEN_CHARACTERS_PER_SECOND
            )
            self._next_layout = ended + pause
        return ArrivingText(
            self._blocks[after:],
            len(self._blocks),
            self._version,
            self._tail,
            self._space + "".join(self._rest),
        )

    def finish(self) -> list[Markup]:
        """Return all blocks: those that were finished before, and the rest."""
        if self._length > MAX_MARKDOWN:
            return render_blocks(self.text)
        self._lay_out()
        return [*self._blocks, *self._tail]

    def _lay_out(self) -> None:
        text = "".join([self._unfinished, *self._rest])
        self._rest.clear()
        # A line that has not ended may still become something else.
        whole_lines = text[: text.rfind("\n") + 1]
        blocks = [*_parse_blocks(whole_lines, self._environment)]
        if len(blocks) > 1:
            end = _find_line(text, blocks[-1][0])
            self._blocks += [block for _, block in blocks[:-1]]
            self._finished.append(text[:end])
            text = text[end:]
        self._unfinished = text
        self._tail = [block for _, block in _parse_blocks(text, self._environment)]
        shows_space = bool(self._tail and _ENDS_WITH_CODE.search(self._tail[-1]))
        self._space = "" if shows_space else text[len(text.rstrip()) :]
        self._version += 1


def _find_line(text: str, number: int) -> int:
    """Return where a line of a text begins; the first has the number 0."""
    ends = islice(re.finditer("\r\n?|\n", text), number - 1, None) if number else iter(())
    return next((end.end() for end in ends), 0)


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


class _Renderer(RendererHTML):
    """The rules of the list above, by kind of token."""

    def text(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return str(mark_invisible(tokens[idx].content))

    def code_inline(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return f"<code>{mark_invisible(tokens[idx].content)}</code>"

    def code_block(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return _draw_code(tokens[idx].content, "")

    def fence(self, tokens: Tokens, idx: int, options: OptionsDict, env: Environment) -> str:
        return _draw_code(tokens[idx].content, tokens[idx].info.strip().partition(" ")[0])

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


def _draw_code(code: str, language: str) -> str:
    name = mark_invisible(language)
    head = f'<p class="language small quiet">{name}</p>' if language else ""
    tag = f'<pre class="code" tabindex="0" data-language="{escape(language)}">'
    return f'<div class="fence">{head}{tag}{mark_invisible(code)}</pre></div>\n'
