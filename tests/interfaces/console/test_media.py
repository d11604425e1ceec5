"""Files sent with a message, pictures on run pages, and typed answers as tables and trees."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

import ferrule
from ferrule import Image, tool
from ferrule.console.typed_output import read_output
from ferrule.console.uploads import find_body_limit
from ferrule.models.scripted import calls, says
from ferrule.runtime.http.http_security import HttpGuard
from media_samples import PDF, SVG, make_gif, make_png

PART = {"hx-request": "true"}


async def shows(browser: httpx.AsyncClient, path: str, *texts: str) -> str:
    """The page, once it shows these."""
    async with asyncio.timeout(10):
        while True:
            page = (await browser.get(path)).text
            if all(text in page for text in texts):
                return page
            await asyncio.sleep(0.01)


async def begin(browser: httpx.AsyncClient, *files: tuple[str, bytes]) -> httpx.Response:
    given = [("files", (name, data, "text/html")) for name, data in files]
    form = {"text": "see", "model": "scripted:a", "other": "", "mode": "default"}
    return await browser.post("/playground", data=form, files=given)


def pictures(page: str) -> list[str]:
    return [one.replace("&amp;", "&") for one in re.findall(r'src="(/artifacts/image[^"]+)"', page)]


@tool
def take_picture() -> Image:
    """Take a picture."""
    return Image(make_png(6, 4), name="shot.png")


async def test_a_picture_goes_along_with_a_message_and_is_shown_to_those_who_see_the_run(
    served: Any,
) -> None:
    steps = [calls(("take_picture", {})), says("a cat")]
    async with (
        served({"scripted:a": steps}, tools=[take_picture]) as serving,
        serving.browser() as browser,
        serving.browser("mallory") as other,
    ):
        led = await begin(browser, ("../evil/cat.html", make_png(5, 3)), ("paper", PDF))
        page = await shows(browser, led.headers["location"], "a cat")
        sent, shot = pictures(page)
        assert 'alt="[image cat.html: image/png, 5x3' in page
        assert "[document paper: application/pdf" in page
        for place, data in ((sent, make_png(5, 3)), (shot, make_png(6, 4))):
            answer = await browser.get(place)
            assert (answer.content, answer.headers["content-type"]) == (data, "image/png")
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            # For anybody else there is no such picture, and not even such a session.
            assert (await other.get(place)).status_code == 404


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (make_gif(3), "animated"),
        (make_png()[:-20], "cut off"),
        (b"\x7fELF\1\1\0\0", "nothing that models take"),
        (b"\x89PNG\r\n\x1a\n" + b"0" * 33_600_000, "the most is 33554432"),
    ],
)
async def test_what_models_cannot_take_is_said_and_begins_nothing(
    served: Any, data: bytes, said: str
) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        answer = await begin(browser, ("x", data))
        assert answer.status_code >= 400
        assert said in answer.text
        assert not [*serving.journal.sessions()]


async def test_a_drawing_with_a_script_is_never_sent_as_a_picture(served: Any) -> None:
    async with served({"scripted:a": [says("ok")]}) as serving, serving.browser() as browser:
        led = await begin(browser, ("drawing.svg", SVG))
        page = await shows(browser, led.headers["location"], "ok")
        assert pictures(page) == []
        (link,) = re.findall(r'href="(/artifacts/view\?[^"]+)"', page)
        image = link.replace("&amp;", "&").replace("/view", "/image")
        assert (await browser.get(image)).status_code == 415
        shown = await browser.get(link.replace("&amp;", "&"))
        assert "<script>alert(1)" not in shown.text


async def test_a_second_message_takes_files_and_a_working_model_takes_none(served: Any) -> None:
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    steps = [says("one"), calls(("wait", {})), says("two")]
    async with served({"scripted:a": steps}, tools=[wait]) as serving, serving.browser() as browser:
        led = await begin(browser)
        await shows(browser, led.headers["location"], "one")
        (info,) = serving.journal.sessions()
        path = f"/runs/{info.session}"
        files = {"files": ("cat.png", make_png(), "image/png")}
        # Its answer is shown a moment before its run has ended.
        async with asyncio.timeout(10):
            while True:
                said = {"data": {"text": "and?"}, "files": files, "headers": PART}
                if (await browser.post(f"{path}/say", **said)).status_code == 200:
                    break
        await shows(browser, path, "cat.png", "wait")
        busy = await browser.post(f"{path}/say", data={"text": "now"}, files=files, headers=PART)
        assert "takes no files" in busy.text
        gate.set()
        await shows(browser, path, "two")


async def test_only_forms_with_files_may_be_large() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    token = "t" * 40
    guard = HttpGuard(app, token=token, hosts=["127.0.0.1:8000"], max_body=find_body_limit)
    transport = httpx.ASGITransport(app=guard)
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        codes = [
            (await client.post(path, content=b"x" * size, headers=headers)).status_code
            for path, size in (
                ("/runs/a/say", 2_000_000),
                ("/playground", 33_000_000),
                ("/runs/a/fork", 2_000_000),
                ("/playground", 35_000_000),
            )
        ]
    assert codes == [204, 204, 413, 413]
    assert seen == ["/runs/a/say", "/playground"]


class Item(BaseModel):
    name: str
    price: float


async def test_a_typed_answer_is_shown_as_a_table(served: Any) -> None:
    items = '{"items": [{"name": "<b>nut</b>", "price": 1.5}, {"name": "bolt", "price": 2}]}'

    class Bill(BaseModel):
        items: list[Item]

    async with (
        served({"scripted:a": [says(items)]}, output_type=Bill, output_mode="prompt") as serving,
        serving.browser() as browser,
    ):
        led = await begin(browser)
        page = await shows(browser, led.headers["location"], 'aria-label="Output"')
        section = page.partition('aria-label="Output"')[2].partition("</section>")[0]
        assert re.findall(r"<th [^>]*>([^<]*)", section) == ["name", "price"]
        cells = re.findall(r"<td>\s*<span[^>]*>([^<]*)", section)
        assert cells == ["&lt;b&gt;nut&lt;/b&gt;", "1.5", "bolt", "2.0"]


def test_a_tree_is_bounded_in_depth_and_size() -> None:
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    node = read_output(json.dumps(deep))
    depth = 0
    while node is not None and node.children:
        node = node.children[0][1]
        depth += 1
    assert depth == 8
    table = read_output(json.dumps([{"a": number} for number in range(1000)]))
    assert table is not None
    assert (table.form, len(table.rows) + table.left_out) == ("table", 1000)
    assert len(table.rows) < 400
    uneven = read_output('[{"a": 1}, {"b": "x"}]')
    assert uneven is not None and uneven.columns == ("a", "b")
    assert [[cell.text for cell in row] for row in uneven.rows] == [["1", ""], ["", "x"]]
    assert read_output('"text"') is None
    assert read_output("[1") is None


async def test_runs_are_found_by_what_was_said_in_any_message_of_ones_own_sessions(
    served: Any,
) -> None:
    steps = [says("the Lighthouse is painted white"), says("no news")]
    async with (
        served({"scripted:a": steps}) as serving,
        serving.browser() as browser,
        serving.browser("mallory") as other,
    ):
        for answer in ("painted", "no news"):
            led = await begin(browser)
            await shows(browser, led.headers["location"], answer)
        found = (await browser.get("/runs?words=lighthouse+WHITE")).text
        assert found.count('<tr id="s-') == 1
        none = (await browser.get("/runs?words=lighthouse+black")).text
        assert 'id="s-' not in none and "No matching runs." in none
        assert 'id="s-' not in (await other.get("/runs?words=lighthouse")).text
        assert "No runs yet." in (await other.get("/runs")).text
        assert (await browser.get("/runs?words=see")).text.count('<tr id="s-') == 2


TEMPLATES = sorted((Path(ferrule.__file__).parent / "console" / "templates").glob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_form_begins_within_another(template: Path) -> None:
    """Browsers pass over the inner one, and with it what it says of files."""
    is_open = False
    for tag in re.findall(r"</?form\b", template.read_text()):
        assert is_open == tag.startswith("</")
        is_open = not is_open
