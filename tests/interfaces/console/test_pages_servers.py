"""Servers stand on a page; the owner approves what was shown there, and nothing that came in its
place.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from ferrule.storage import paths

PYTHON = str(Path(sys.executable).resolve())
SERVER = Path(__file__).parents[2] / "connectors/mcp/plain_server.py"


def write_down(workspace: Path, *more: str) -> None:
    """A plain server in the person's own list, whose program lies in the workspace."""
    shutil.copy(SERVER, workspace)
    entry = {"command": PYTHON, "args": ["plain_server.py", "new", "good", *more]}
    paths.write_private(paths.config() / "mcp.json", json.dumps({"mcpServers": {"plain": entry}}))


async def page_of(browser: httpx.AsyncClient) -> str:
    answer = await browser.get("/servers/server?name=plain")
    assert answer.status_code == 200, answer.text
    return answer.text


async def say(browser: httpx.AsyncClient, doing: str, page: str = "") -> httpx.Response:
    """What the owner says, with the digest that stands on a page."""
    digest = re.search(rf'action="/servers/{doing}".*?name="digest" value="(\w+)"', page)
    given = {"name": "plain", **({"digest": digest[1]} if digest else {})}
    return await browser.post(f"/servers/{doing}", data=given, follow_redirects=True)


async def test_a_server_is_approved_in_two_steps_and_a_change_is_shown_and_held_back(
    served: Any,
) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        write_down(serving.workspace)
        page = await page_of(browser)
        assert "not approved" in page and not (serving.workspace / "seen.jsonl").exists()
        page = (await say(browser, "command", page)).text
        assert "What it says about its tools" in page and "tool echo" in page
        page = (await say(browser, "tools", page)).text
        assert "Approved: 3 tools" in page and "What changed" not in page
        (serving.workspace / "behaviour.txt").write_text("rug-pull")
        page = (await say(browser, "look")).text
        assert "tools changed" in page and "id_rsa" in page and "not approved" in page
        assert "tools changed" in (await browser.get("/servers")).text
        page = (await say(browser, "withdraw")).text
        assert "not approved" in page


async def test_a_yes_to_what_is_not_there_any_more_approves_nothing(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        write_down(serving.workspace)
        page = await page_of(browser)
        write_down(serving.workspace, "--other")
        answer = await say(browser, "command", page)
        assert answer.status_code == 422 and "changed after it was shown to you" in answer.text
        assert "not approved" in await page_of(browser)
        write_down(serving.workspace)
        page = (await say(browser, "command", await page_of(browser))).text
        (serving.workspace / "behaviour.txt").write_text("rug-pull")
        await say(browser, "look")
        answer = await say(browser, "tools", page)
        assert answer.status_code == 422 and "changed after it was shown to you" in answer.text
        assert "Approved:" not in await page_of(browser)


async def test_a_server_whose_command_nobody_approved_is_not_started_for_a_look(
    served: Any,
) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        write_down(serving.workspace)
        answer = await say(browser, "look")
        assert answer.status_code == 422 and "was not started" in answer.text
        assert not (serving.workspace / "seen.jsonl").exists()
        assert (await browser.get("/servers/server?name=nope")).status_code == 422


@pytest.mark.parametrize("doing", ["command", "look", "tools", "withdraw"])
async def test_only_the_owner_says_anything_to_servers(served: Any, doing: str) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser("bob") as browser:
        write_down(serving.workspace)
        assert (await say(browser, doing)).status_code == 403
        assert (await browser.get("/servers/server?name=plain")).status_code == 403
        page = (await browser.get("/servers")).text
    assert "plain" in page and "plain_server.py" not in page


async def test_without_servers_the_page_says_how_one_is_written_down(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        assert "ferrule mcp add" in (await browser.get("/servers")).text
