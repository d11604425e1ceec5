"""A model's Markdown in the console: laid out, and nothing of it acts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from ferrule.console.markdown import StreamedMarkdown, join_blocks, render_markdown

ALLOWED: dict[str, set[str]] = {
    "a": {"href", "rel", "target"},
    "p": {"class"},
    "pre": {"class", "tabindex", "data-language"},
    "span": {"class"},
    "code": set(),
    "div": {"class", "tabindex"},
    "h3": {"class"},
    "ol": {"start"},
    "th": {"scope", "class"},
    "td": {"class"},
    **{name: set() for name in ("em", "strong", "s", "br", "hr", "ul", "li", "blockquote")},
    **{name: set() for name in ("table", "thead", "tbody", "tr")},
}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ALLOWED or not {name for name, _ in attrs} <= ALLOWED[tag]:
            self.bad.append(self.get_starttag_text() or tag)
        for name, value in attrs:
            if name == "href":
                self.links.append(value or "")

    def handle_decl(self, decl: str) -> None:
        self.bad.append(decl)

    def handle_comment(self, data: str) -> None:
        self.bad.append(data)

    def handle_data(self, data: str) -> None:
        self.text += data


PARTS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- x -->", "<b onclick='x'>",
    "[a](javascript:alert(1))", "[a](JaVaScRiPt&#58;alert(1))", "[a](data:text/html,x)",
    "[a](https://h.example/?q=1 \"onmouseover=alert(1)\")", "<https://h.example/'\"><x>",
    "![p](https://h.example/p.png)", "![p](javascript:alert(1))", "[r]: https://h.example\n[r]",
    "[vb](vbscript:x)", "[f](file:///etc/passwd)", "[l](/questions/1)", "[l](//h.example)",
    "# ", "\n\n", "\n", "- ", "1. ", "> ", "```js\" onclick=x\n", "```\n", "`", "*", "**", "_", "~~",
    "|a|b|\n|-:|:-|\n|1|2|\n", "    ", "&lt;u&gt;", "&#x202e;", "\u202e", "\u200b", "word", " ", "\\",
    "]", "(", ")", "<", ">", '"', "'",
]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=6), max_size=14).map("".join))
def test_whatever_a_model_writes_only_layout_and_plain_links_come_out(text: str) -> None:
    shown = str(render_markdown(text))
    page = Page(shown)
    assert page.bad == []
    for link in page.links:
        assert link.lower().startswith(("http://", "https://", "mailto:"))
    # Nothing unseen is left: neither as it is nor as an entity that the browser would decode.
    assert not {"\u202e", "\u200b"} & set(page.text)


def test_markdown_is_laid_out() -> None:
    text = (
        "# Plan\nfirst *line*\nsecond `code`\n\n- one\n- two\n\n|n|t|\n|-:|---|\n|1|a|\n\n"
        "```python\nif a < b:\n    pass\n```\n~~no~~"
    )
    shown = str(render_markdown(text))
    for part in (
        '<h3 class="said-h1">Plan</h3>',
        "<p>first <em>line</em><br />\nsecond <code>code</code></p>",
        "<li>one</li>",
        '<th scope="col" class="n">n</th>',
        "<td>a</td>",
        '<p class="language small quiet">python</p>',
        '<pre class="code" tabindex="0" data-language="python">if a &lt; b:',
        "<s>no</s>",
    ):
        assert part in shown
    assert Page(shown).bad == []


def test_a_link_says_where_it_goes_and_a_picture_is_not_loaded() -> None:
    shown = str(render_markdown("[your bank](https://evil.example/?q=1) <https://a.example/>"))
    assert 'href="https://evil.example/?q=1"' in shown
    assert "https://evil.example/?q=1</span>" in shown
    assert shown.count("https://a.example/") == 2, "an address that is its own text stands once"
    picture = str(render_markdown("![chart](https://evil.example/p.png?data=secret)"))
    assert "<img" not in picture
    assert "chart" in picture and "https://evil.example/p.png?data=secret" in picture


def test_a_very_long_text_is_shown_without_its_layout() -> None:
    shown = str(render_markdown("**a** " * 40_000))
    assert shown.startswith('<div class="part"><div class="plain">**a** **a**')


@given(
    # Definitions of links reach back: until its end an answer shows them as text.
    st.lists(st.sampled_from([one for one in PARTS if "]: " not in one]), max_size=14),
    st.lists(st.integers(1, 9), min_size=1, max_size=40),
    st.lists(st.booleans(), min_size=1, max_size=40),
)
def test_an_arriving_text_looks_like_the_finished_one(
    parts: list[str], sizes: list[int], looks: list[bool]
) -> None:
    text = "".join(parts).replace("]:", "]")
    stream = StreamedMarkdown(lambda: 0.0)
    shown: list[Markup] = []
    count = at = number = 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        stream.add(text[at : at + size])
        if looks[number % len(looks)]:
            now = stream.look(count)
            shown += now.blocks
            count = now.count
        at += size
        number += 1
    whole = str(render_markdown(text))
    last = stream.look(count)
    stream_shows = join_blocks([*shown, *last.blocks, *last.tail])
    assert stream.text == text
    assert str(join_blocks(stream.finish())) == whole
    if not last.rest.strip():
        assert stream_shows == whole


@pytest.mark.parametrize(
    ("text", "rest"),
    [("one word ", " "), ("- an item\n", "\n"), ("a line\n\n", "\n\n"), ("end.", "")],
)
def test_the_space_that_a_layout_drops_divides_the_next_word_from_it(text: str, rest: str) -> None:
    stream = StreamedMarkdown(lambda: 0.0)
    stream.add(text)
    assert stream.look().tail and stream.look().rest == rest
    assert stream.text == text


@pytest.mark.parametrize("text", ["```py\nx = 1\n\n", "- a\n\n  ```\n  y\n\n"])
def test_code_shows_its_white_space_itself(text: str) -> None:
    stream = StreamedMarkdown(lambda: 0.0)
    stream.add(text)
    assert stream.look().rest == ""


def test_a_long_unfinished_block_is_laid_out_less_often() -> None:
    now = 0.0
    stream = StreamedMarkdown(lambda: now)
    stream.add("```text\n")
    versions: list[int] = []
    for _ in range(600):
        stream.add("a line of a very long listing, all of it one block\n" * 4)
        now += 0.05
        versions.append(stream.look().version)
    half = len(versions) // 2
    assert versions[half] > 5 and versions[-1] - versions[half] < versions[half] / 2
    assert stream.look().rest != "" and stream.look().count == 0
