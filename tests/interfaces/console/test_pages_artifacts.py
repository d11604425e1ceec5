"""Artifacts open in parts, whatever their size; what they hold is text and never runs; nobody opens
another person's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ferrule.console.artifact_views import (
    ArtifactView,
    line_page,
    match_page,
    pointer_steps,
    tree_page,
)
from ferrule.core.events import SessionOpened
from ferrule.core.identity import Identity
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.readers import UnreadableArtifact
from ferrule.storage.artifacts.store import Artifact, Scope

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 64
EVIL = "<script>alert(1)</script>"


def keep(serving: Any, data: bytes, mime: str = "text/plain", *, user: str = "owner") -> str:
    """An artifact of a session of this person; the query that opens it."""
    session = f"session-of-{user}"
    if session not in {info.session for info in serving.journal.sessions()}:
        identity = Identity("local", user, session, "r1")
        serving.journal.append(session, "r1", [SessionOpened()], identity=identity)
    made = FileArtifactStore().put(Scope("local", user, session), [data], mime=mime, tool="maker")
    return f"session={session}&artifact={made.reference}"


async def opened(browser: httpx.AsyncClient, query: str) -> str:
    answer = await browser.get(f"/artifacts/view?{query}")
    assert answer.status_code == 200, answer.text
    return answer.text


class Counted(FileArtifactStore):
    """Counts the bytes that are in somebody's hands at a time."""

    largest = 0

    def read_chunks(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        for piece in super().read_chunks(scope, reference, offset):
            self.largest = max(self.largest, len(piece))
            yield piece


def test_the_millionth_line_is_found_without_holding_what_lies_before_it(tmp_path: Any) -> None:
    store, scope = Counted(tmp_path / "artifacts"), Scope("local", "ada", "s1")
    parts = (
        b"".join(b"%d\n" % line for line in range(start, start + 10_000))
        for start in range(1, 1_100_000, 10_000)
    )
    look = ArtifactView.find(store, scope, store.put(scope, parts).reference)
    page = line_page(look, 1_000_000)
    assert [entry[:2] for entry in page.entries[:2]] == [
        (1_000_000, "1000000"),
        (1_000_001, "1000001"),
    ]
    assert len(page.entries) == 200 and page.next == 1_000_200 and page.previous == 999_800
    assert store.largest <= 262_144
    assert line_page(look, 2_000_000).entries == []


async def test_lines_are_numbered_paged_found_and_escaped(served: Any) -> None:
    lines = "\n".join(f"line {number} {EVIL}\x1b[31m" for number in range(1, 1001))
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        query = keep(serving, lines.encode())
        page = await opened(browser, f"{query}&from=501")
        assert 'id="L501"' in page and 'id="L700"' in page and 'id="L701"' not in page
        assert "from=701" in page and "from=301" in page
        assert (
            EVIL not in page and "\x1b" not in page and '<span class="unseen">\\x1b</span>' in page
        )
        found = await opened(browser, f"{query}&find=line 77[0-9]")
        assert re.findall(r'id="L(\d+)"', found) == [str(number) for number in range(770, 780)]
        assert "line=777#L777" in found
        for number in (1001, 999_999_999_999_999):
            assert "No such line" in await opened(browser, f"{query}&from={number}")
        for number in ("0", "-5", "9" * 16, "x"):
            assert 'id="L1"' in await opened(browser, f"{query}&from={number}")
        assert 'role="alert"' in await opened(browser, f"{query}&find=(")


async def test_json_is_walked_by_pointer_and_a_list_of_objects_is_a_table(served: Any) -> None:
    value = {"items": [{"id": number, "a/b": EVIL} for number in range(300)], "empty": []}
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        query = keep(serving, json.dumps(value).encode(), "application/json")
        top = await opened(browser, query)
        assert "{300" not in top and "[300]" in top and "at=/items" in top
        items = await opened(browser, f"{query}&as=json&at=/items&from=201")
        assert "at=/items/299" in items and "at=/items/1&" not in items
        assert "&lt;script&gt;" in await opened(browser, f"{query}&as=json&at=/items/7/a~1b")
        table = await opened(browser, f"{query}&as=table&at=/items&from=201")
        assert (
            '<th scope="col">a/b</th>' in table
            and '<th scope="row">300</th>' in table
            and EVIL not in table
        )
        assert "there is no `nope`" in await opened(browser, f"{query}&as=json&at=/nope")
        assert "no list here" in await opened(browser, f"{query}&as=table&at=")


async def test_csv_is_a_table_with_its_header(served: Any) -> None:
    rows = "name;count\n" + "".join(f"item {number};{number}\n" for number in range(1, 500))
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        page = await opened(browser, keep(serving, rows.encode(), "text/csv") + "&from=201")
    assert (
        '<th scope="col">count</th>' in page
        and "<td>item 201</td>" in page
        and "item 401" not in page
    )


async def test_a_diff_is_shown_as_one(served: Any) -> None:
    diff = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old <b>\n+new\n"
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        page = await opened(browser, keep(serving, diff, "text/x-diff"))
    assert re.search(r'<tr id="L5" class="cut">.*-old &lt;b&gt;', page)
    assert re.search(r'<tr id="L6" class="add">.*\+new', page) and 'class="file"' in page


async def test_a_picture_is_sent_as_what_it_is_under_a_policy_in_which_nothing_runs(
    served: Any,
) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        query = keep(serving, PNG, "text/html")
        assert f"/artifacts/image?{query.replace('&', '&amp;')}" in await opened(browser, query)
        answer = await browser.get(f"/artifacts/image?{query}")
    assert answer.content == PNG and answer.headers["content-type"] == "image/png"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (
            b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
            "image/svg+xml",
        ),
        (b"<html><script>alert(1)</script></html>", "image/png"),
        (b"GIF8<script>alert(1)</script>", "image/gif"),
        (b"%PDF-1.7", "application/pdf"),
    ],
)
async def test_what_only_says_that_it_is_a_picture_is_shown_as_text_and_sent_as_a_file(
    served: Any, data: bytes, mime: str
) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        query = keep(serving, data, mime)
        assert (await browser.get(f"/artifacts/image?{query}")).status_code == 415
        page = await opened(browser, f"{query}&as=image")
        assert "<script>alert" not in page
        answer = await browser.get(f"/artifacts/file?{query}")
    assert answer.content == data and answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("page", ["view", "image", "file"])
async def test_nobody_opens_an_artifact_of_somebody_else(served: Any, page: str) -> None:
    async with (
        served({"scripted:a": []}) as serving,
        serving.browser("ada") as ada,
        serving.browser("bob") as bob,
    ):
        query = keep(serving, PNG, user="ada")
        keep(serving, b"his", user="bob")
        his = query.replace("session-of-ada", "session-of-bob")
        assert (await ada.get(f"/artifacts/{page}?{query}")).status_code == 200
        for asked in (query, his, query.replace("art-", "art-0")):
            assert (await bob.get(f"/artifacts/{page}?{asked}")).status_code == 404
        assert "session-of-ada" not in (await bob.get("/artifacts")).text
        assert (await bob.get("/artifacts?session=session-of-ada")).status_code == 404
        assert "session-of-ada" in (await ada.get("/artifacts")).text


def look_at(tmp_path: Any, data: bytes, mime: str = "text/plain") -> ArtifactView:
    store, scope = FileArtifactStore(tmp_path / "artifacts"), Scope("local", "ada", "s1")
    made: Artifact = store.put(scope, [data], mime=mime)
    return ArtifactView.find(store, scope, made.reference)


def test_a_page_has_a_largest_size_and_at_least_one_entry(tmp_path: Any) -> None:
    look = look_at(tmp_path, b"".join(b"x" * 300_000 + b"\n" for _ in range(5)))
    page = line_page(look, 1)
    assert len(page.entries) == 1 and page.next == 2
    number, text, long = page.entries[0]
    assert number == 1 and long and text.endswith("[…298000 more characters]")


def test_a_search_goes_on_where_the_page_was_full(tmp_path: Any) -> None:
    look = look_at(tmp_path, b"hit\nmiss\n" * 300)
    first = match_page(look, "hit", 1)
    second = match_page(look, "hit", first.next)
    assert (len(first.entries), len(second.entries), second.next) == (200, 100, 0)


def test_json_that_is_too_large_or_broken_says_so_and_names_another_way(tmp_path: Any) -> None:
    with pytest.raises(UnreadableArtifact, match="use lines"):
        tree_page(look_at(tmp_path, b'{"a": '), "", 1)


def test_the_steps_of_a_pointer_lead_back_up() -> None:
    assert pointer_steps("/a~1b/0") == [("a/b", "/a~1b"), ("0", "/a~1b/0")]
