"""The example page as a person uses it: FastAPI as a process, and Chromium."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
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
SCRIPT = """\
- {say: "I write to her. ", call: [{tool: send_mail, arguments: {to: ines, text: hello}, id: c1}]}
- {say: "Hello Bo."}
- {say: "It is sent."}
- {call: [{tool: send_mail, arguments: {to: max, text: hello}, id: c2}]}
- {say: "Then not."}
"""
START = """
import sys, uvicorn
sys.path.insert(0, sys.argv[1])
import socket
listening = socket.socket(fileno=int(sys.argv[2]))
from web_page import app
uvicorn.Server(uvicorn.Config(app, log_level="info", timeout_graceful_shutdown=1)).run([listening])
"""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the example. Yields its address."""
    import socket

    (folder / "script.yaml").write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        environment = {**os.environ, "MODEL": f"scripted:{folder / 'script.yaml'}"}
        environment |= {"ADDRESS": address, "HOME": str(folder)}
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(EXAMPLES), str(listening.fileno())],
            env=environment, text=True, stderr=subprocess.PIPE, pass_fds=[listening.fileno()],
        )  # fmt: skip
        try:
            assert process.stderr is not None
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                if "startup complete" in line:
                    break
            else:
                raise AssertionError("".join(said))
            yield address
        finally:
            process.terminate()
            process.communicate(timeout=30)


def read_log(page: Any, text: str) -> None:
    """Wait until the page shows a text."""
    page.locator("#log").filter(has_text=text).wait_for()


def say(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.get_by_role("button", name="Send").click()


@pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))
def test_a_run_streams_asks_and_is_approved_and_two_people_do_not_see_each_other(
    tmp_path: Path,
) -> None:
    from playwright.sync_api import sync_playwright

    with serve(tmp_path) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            stranger = browser.new_context().new_page()
            assert stranger.request.get(address).status == 401
            body = {"threadId": "page", "runId": "r", "messages": []}
            assert stranger.request.post(f"{address}/agent/run", data=body).status == 401

            pages: list[Any] = []
            for user, password in (("ada", "lighthouse"), ("bo", "windmill")):
                credentials = {"username": user, "password": password}
                pages.append(browser.new_context(http_credentials=credentials).new_page())
                pages[-1].goto(address)
            ada, bo = pages

            say(ada, "Write to Ines.")
            read_log(ada, "I write to her.")
            asked = ada.locator("#ask")
            asked.filter(has_text="send_mail").wait_for()
            assert "ines" in asked.inner_text() and "sent to" not in ada.inner_text("#log")

            say(bo, "Hello.")
            read_log(bo, "Hello Bo.")
            assert "ines" not in bo.inner_text("body") and bo.inner_text("#ask") == ""

            ada.get_by_role("button", name="Allow").click()
            read_log(ada, "sent to ines: hello")
            read_log(ada, "It is sent.")

            say(bo, "Write to Max.")
            bo.locator("#ask").filter(has_text="max").wait_for()
            bo.get_by_role("button", name="Deny").click()
            read_log(bo, "Then not.")
            assert "permission_denied" in bo.inner_text("#log")
            assert "max" not in ada.inner_text("body")
        finally:
            browser.close()


def test_the_example_has_at_most_sixty_lines_without_its_blank_ones() -> None:
    files = [EXAMPLES / "web_page.py", EXAMPLES / "web_page.html"]
    lines = [line for file in files for line in file.read_text().splitlines() if line.strip()]
    assert len(lines) <= 60
