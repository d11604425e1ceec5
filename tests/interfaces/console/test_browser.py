"""The console as a person uses it: Chromium, the real server as a process, and a real model on this
machine that calls the tools.

One story, because the model takes a while to start. With FERRULE_TEST_SCREENS=1 it also takes the
pictures of `docs/screens`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ferrule.storage import paths

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
MISSING = [
    reason
    for reason, there in (
        ("playwright is not installed", importlib.util.find_spec("playwright") is not None),
        ("there is no Chromium here", CHROMIUM is not None),
        ("the extra `console` is not installed", importlib.util.find_spec("jinja2") is not None),
    )
    if not there
]
SCREENS = (
    Path(__file__).parents[3] / "docs" / "screens"
    if os.environ.get("FERRULE_TEST_SCREENS")
    else None
)
LARGEST = 150 * 1024
TOKEN = "the-token-of-whoever-sits-here"
PATIENCE = 90_000
"""Milliseconds that a page is waited for: a busy machine is slow, and nothing else is."""
TIDES = """\
---
parameters: {}
side_effect: none
timeout_ms: 60000
script: |
  def run(args):
      return "~\\n" * 999999 + "the highest tide\\n" + "~\\n" * 50
---
Print the whole tide table, one line for each tide.
"""
TOOLS = (
    "read_file",
    "run_command",
    "tide_table",
    "get_working_directory",
    "artifact_read",
    "artifact_fetch",
)
RULES = (
    *("--allow", "Read(config.yaml)", "--allow", "tide_table", "--allow", "Bash(sleep:*)"),
    *("--ask", "Read(keeper.txt)"),
)


@dataclass
class House:
    """The folder that the model works in, and the server; which can be killed and started again."""

    folder: Path
    cache: str
    process: subprocess.Popen[str] | None = None
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FERRULE", "XDG"))
        }
        return {
            **kept,
            "HOME": str(self.folder),
            "LOGNAME": "ada",
            "FERRULE_CACHE": self.cache,
            "FERRULE_TOKEN": TOKEN,
        }

    def furnish(self) -> None:
        work = self.folder / "lighthouse"
        (work / ".ferrule" / "tools").mkdir(parents=True)
        (work / "config.yaml").write_text("name: lighthouse\nport: 8080\nkeeper: Ines\n")
        (work / "keeper.txt").write_text("The key of the lamp room hangs behind the door.\n")
        (work / ".ferrule" / "tools" / "tide_table.md").write_text(TIDES)
        self._ferrule("trust", "--yes").communicate()

    def _ferrule(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from ferrule.cli.entry import main; main()", *words]
        return subprocess.Popen(
            command, cwd=self.folder / "lighthouse", env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def open(self) -> None:
        """Serve; on the port that it had, if it had one."""
        tools = [word for name in TOOLS for word in ("--allow-tool", name)]
        self.process = self._ferrule(
            "serve", "console", "--port", str(self.port), "-m", "local:smollm2", *tools, *RULES,
            "--journal", str(self.folder / "journal.db"),
        )  # fmt: skip
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                return
        raise AssertionError("the server did not start")

    def end(self, number: int) -> None:
        """Send the server a signal, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.communicate(timeout=60)


@dataclass
class Person:
    """Somebody at a browser."""

    house: House
    page: Any

    def comes(self) -> None:
        self.page.goto(f"{self.house.address}/login?token={TOKEN}")
        assert TOKEN not in self.page.url

    def asks(self, text: str) -> str:
        """Start a run from the playground; its session."""
        self.page.goto(f"{self.house.address}/playground")
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.get_by_role("button", name="Send").click()
        self.page.wait_for_url("**/runs/*")
        return self.page.url.rpartition("/")[2]

    def watches(self, session: str) -> None:
        self.page.goto(f"{self.house.address}/runs/{session}")

    def sees(self, selector: str, text: str = "") -> Any:
        """Wait for the first of these elements that holds the text."""
        from playwright.sync_api import TimeoutError as Waited

        found = self.page.locator(selector).filter(has_text=text).first
        try:
            found.wait_for()
        except Waited as error:
            shown = self.page.locator("body").inner_text()
            raise AssertionError(
                f"no `{selector}` with {text!r} at {self.page.url}:\n{shown}"
            ) from error
        return found

    def sees_end(self, how: str) -> None:
        self.sees(f".ending .state.{how}")

    def picture(self, name: str) -> None:
        """For the documentation, if asked for."""
        if SCREENS is None:
            return
        self.page.evaluate("scrollTo(0, 0)")
        self.page.wait_for_function(
            "document.getAnimations().every(one => one.playState !== 'running' || "
            "one.effect.getTiming().iterations === Infinity)"
        )
        path = SCREENS / f"console-{name}.png"
        self.page.screenshot(path=path, animations="disabled")
        assert path.stat().st_size <= LARGEST


@pytest.fixture
def house() -> Iterator[House]:
    # Not pytest's own folder: its long name would be all over the pictures.
    folder = Path(tempfile.mkdtemp(prefix="ada-"))
    made = House(folder, str(paths.cache()))
    try:
        made.furnish()
        made.open()
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.end(signal.SIGTERM)
        shutil.rmtree(folder)


@pytest.fixture
def two(house: House) -> Iterator[tuple[Person, Person]]:
    """Two people at two browsers."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            people: list[Person] = []
            for _ in range(2):
                context = browser.new_context(
                    viewport={"width": 1180, "height": 880}, color_scheme="light"
                )
                context.set_default_timeout(PATIENCE)
                people.append(Person(house, context.new_page()))
            for person in people:
                person.comes()
            yield people[0], people[1]
        finally:
            browser.close()


@pytest.mark.model
@pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))
def test_a_person_works_with_a_real_model_in_the_browser(
    house: House, two: tuple[Person, Person]
) -> None:
    ada, eve = two
    _a_question_is_answered_with_a_tool(ada)
    _what_one_allows_the_other_sees(ada, eve)
    _what_is_denied_does_not_run(ada)
    _a_call_is_stopped_on_its_way(ada, eve)
    _the_millionth_line_is_opened(ada)
    _a_tool_is_tried(ada)
    _a_killed_server_is_started_again_and_the_run_goes_on(house, ada, eve)


def _a_question_is_answered_with_a_tool(ada: Person) -> None:
    ada.asks("What is the port in config.yaml?")
    ada.sees_end("done")
    ada.sees(".card.done", "read_file")
    ada.sees("article.said.model", "8080")
    ada.picture("playground")


def _what_one_allows_the_other_sees(ada: Person, eve: Person) -> None:
    eve.watches(ada.asks("What does keeper.txt say?"))
    ada.sees("form.question", "Allow read_file to run?")
    eve.sees("form.question", "keeper.txt")
    eve.picture("approval")
    ada.page.get_by_role("button", name="Allow once").click()
    for person in (ada, eve):
        person.sees_end("done")
        person.sees("article.said.model", "behind the door")
        assert person.page.locator("form.question").count() == 0


def _what_is_denied_does_not_run(ada: Person) -> None:
    ada.asks("What does keeper.txt say?")
    question = ada.sees("form.question")
    question.get_by_label("Reason").fill("not while she sleeps")
    question.get_by_role("button", name="Deny").click()
    ada.sees(".ending .state.warn", "done, 1 denied")
    ada.sees(".card", "not while she sleeps")
    assert "behind the door" not in ada.page.locator("main").inner_text()
    ada.picture("denied")


def _a_call_is_stopped_on_its_way(ada: Person, eve: Person) -> None:
    eve.watches(ada.asks("Run the command sleep 600"))
    ada.sees(".card.running", "run_command")
    stop = eve.sees("button", "Stop this call")
    eve.picture("running")
    stop.click()
    for person in (ada, eve):
        person.sees(".card", "cancelled")
        person.sees(".ending")
        assert person.page.locator(".card.running").count() == 0


def _the_millionth_line_is_opened(ada: Person) -> None:
    session = ada.asks("Print the tide table.")
    ada.sees_end("done")
    ada.page.goto(f"{ada.house.address}/artifacts?session={session}")
    ada.page.locator("table.list th a").first.click()
    ada.page.get_by_label("Go to line").fill("1000000")
    ada.page.get_by_role("button", name="Go", exact=True).click()
    assert ada.sees("#L1000000").inner_text().split("\t")[-1].strip() == "the highest tide"
    ada.picture("artifact")


def _a_tool_is_tried(ada: Person) -> None:
    ada.page.goto(f"{ada.house.address}/tools")
    ada.page.get_by_role("link", name="read_file").click()
    ada.page.locator("form.try").get_by_label(re.compile("^path")).fill("config.yaml")
    ada.picture("tool")
    ada.page.get_by_role("button", name="Call it").click()
    ada.sees("#trial pre", "keeper: Ines")
    ada.picture("tried")


def _a_killed_server_is_started_again_and_the_run_goes_on(
    house: House, ada: Person, eve: Person
) -> None:
    session = ada.asks("What does keeper.txt say?")
    eve.watches(session)
    for person in (ada, eve):
        person.sees("form.question")
    house.end(signal.SIGKILL)
    ada.sees("#away", "away")
    house.open()
    for person in (ada, eve):
        # By itself: nobody signs in again, or asks for the page.
        person.sees(".bar .state.interrupted")
    ada.picture("restarted")
    ada.page.get_by_role("button", name="Resume").click()
    eve.sees("form.question", "keeper.txt").get_by_role("button", name="Allow once").click()
    for person in (ada, eve):
        person.sees_end("done")
        person.sees("article.said.model", "behind the door")
    ada.page.goto(f"{house.address}/runs")
    ada.sees("main", "What does keeper.txt say?")
    ada.picture("runs")
