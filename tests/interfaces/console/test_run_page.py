"""The page of a run while an answer streams, in Chromium: its script with a stream and responses of
the test's own, so that they come in the order that is tried.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ferrule.console

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
MISSING = [
    reason
    for reason, there in (
        ("playwright is not installed", importlib.util.find_spec("playwright") is not None),
        ("there is no Chromium here", CHROMIUM is not None),
    )
    if not there
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))

SCRIPT = Path(ferrule.console.__file__).with_name("static") / "run.js"
AROUND = """
window.ferrule = { met() {}, localize() {}, decorate() {}, say() {} };
window.htmx = { process() {} };
window.EventSource = class {
  constructor() { window.stream = this; this.on = {}; }
  addEventListener(kind, take) { this.on[kind] = take; }
  close() {}
};
window.answers = [];
window.fetch = async () => {
  const text = window.answers.shift();
  return { status: text ? 200 : 204, ok: true, text: async () => text };
};
window.say = (place, text) => window.stream.on["piece.text"](
  { data: JSON.stringify({ sequence: place, payload: { text } }) });
"""


def _section(
    *,
    place: str,
    mark: str,
    begins: bool,
    entries: str = "",
    tail: str = "",
    state: str = "running",
) -> str:
    """A response with the entries that changed and the answer that streams."""
    return f"""<section class="run" data-session="s" data-mark="m{place}" data-cursor="" data-state="{state}"
      data-known="{state}" data-whole="no">
      <div data-part="bar"></div><div data-part="told"></div><ol data-part="entries">{entries}</ol><div data-part="below"></div>
      <div data-part="live" data-place="{place}" data-thought="{place}" data-mark="{mark}"
        data-begins="{"yes" if begins else "no"}" data-tail="new">
        <div data-live="reasoning" hidden></div>
        <div data-live="text"><div data-blocks></div><div data-tail>{tail}</div></div>
        <div data-live="calls"></div><div data-writing hidden><article><h3></h3><dl></dl></article></div>
      </div>
      <p data-part="working"></p><div data-announce></div>
    </section>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = _open(browser, _section(place="2", mark="1.0.0", begins=True))
    yield opened
    opened.close()


def _meet(page: Any, response: str) -> None:
    """Let the page fetch this response and merge it."""
    page.evaluate("answer => window.answers.push(answer)", response)
    page.wait_for_function("() => !window.answers.length")
    page.wait_for_function(
        "mark => document.querySelector('section.run').dataset.mark === mark",
        arg=response.split('data-mark="', 1)[1].split('"', 1)[0],
    )


def _open(browser: Any, section: str) -> Any:
    """Open a page that the server has sent with this section."""
    opened = browser.new_page()
    opened.set_content(f'<body data-root=""><main data-kinds="piece.text">{section}</main></body>')
    opened.add_script_tag(content=AROUND)
    opened.add_script_tag(content=SCRIPT.read_text())
    return opened


def _live(page: Any) -> str:
    """What stands in the place of the answer that streams."""
    return str(page.locator('[data-live="text"]').inner_text()).strip()


def test_what_streamed_is_gone_once_the_answer_is_an_entry(page: Any) -> None:
    page.evaluate("say('2.1', 'one '); say('2.2', 'two')")
    page.wait_for_function(
        "() => document.querySelector('[data-blocks] + [data-tail]').textContent === 'one two'"
    )
    answered = '<li id="e1">one two</li>'
    _meet(page, _section(place="3", mark="2.0.0", begins=True, entries=answered, state="done"))
    assert page.locator("#e1").inner_text() == "one two"
    assert _live(page) == ""


def test_a_piece_that_comes_after_its_answer_is_not_shown(page: Any) -> None:
    page.evaluate("say('2.1', 'one ')")
    page.wait_for_function(
        "() => document.querySelector('[data-blocks] + [data-tail]').textContent === 'one '"
    )
    answered = '<li id="e1">one two</li>'
    _meet(page, _section(place="3", mark="2.0.0", begins=True, entries=answered))
    page.evaluate("say('2.2', 'two'); say('3.1', 'next')")
    page.wait_for_function(
        "() => document.querySelector('[data-blocks] + [data-tail]').textContent.includes('next')"
    )
    assert _live(page) == "next"


def test_words_after_a_layout_follow_its_last_word_with_the_space_between(page: Any) -> None:
    page.evaluate("say('2.1', 'one ')")
    laid = '<div class="block"><p>one</p></div><span class="chunk"> </span>'
    _meet(page, _section(place="2.1", mark="1.0.1", begins=False, tail=laid))
    page.evaluate("say('2.2', 'two')")
    page.wait_for_function(
        "() => document.querySelector('[data-blocks] + [data-tail]').textContent.includes('two')"
    )
    assert page.locator("[data-blocks] + [data-tail] p").inner_text() == "one two"


def test_a_page_that_is_loaded_while_an_answer_streams_has_its_beginning(browser: Any) -> None:
    laid = '<div class="block"><p>one</p></div><span class="chunk"> </span>'
    page = _open(browser, _section(place="2.5", mark="1.0.1", begins=True, tail=laid))
    page.evaluate("say('2.5', 'again'); say('2.6', 'two')")
    page.wait_for_function(
        "() => document.querySelector('[data-blocks] + [data-tail]').textContent.includes('two')"
    )
    assert page.locator("[data-blocks] + [data-tail] p").inner_text() == "one two"
    page.close()


def test_a_question_that_is_longer_than_the_window_is_read_from_its_beginning(page: Any) -> None:
    asks = '<li id="e1"><form class="question" style="display: block; height: 2000px"></form></li>'
    _meet(page, _section(place="3", mark="2.0.0", begins=True, entries=asks, state="waiting"))
    top = "document.querySelector('form.question').getBoundingClientRect().top"
    assert 0 <= page.evaluate(top) < 100
    answered = '<li id="e1"><div style="height: 2000px"></div></li>'
    _meet(page, _section(place="4", mark="2.0.0", begins=False, entries=answered))
    end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 1"
    assert page.evaluate(end), "whoever answered follows what comes of it"
