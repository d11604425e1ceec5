"""The frame of the console: what all pages share, who may see them, and that texts of strangers
stay texts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from ferrule.console.app import render_login_page
from ferrule.console.html import format_duration, format_size, mark_invisible
from ferrule.console.setup import build_console
from ferrule.console.users import load_users
from ferrule.core.errors import ConfigError
from ferrule.runtime.http.http_security import Principal

CONSOLE = Path(render_login_page.__code__.co_filename).parent
TEMPLATES = sorted((CONSOLE / "templates").glob("*.html"))
SCRIPTS = [one for one in sorted((CONSOLE / "static").glob("*.js")) if ".min." not in one.name]


async def test_a_page_has_landmarks_a_skip_link_and_says_who_looks(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        page = (await browser.get("/runs")).text
    assert '<a class="skip" href="#main">' in page and '<main id="main"' in page
    assert '<nav class="areas" aria-label="Areas">' in page and 'aria-current="page">Runs' in page
    assert 'role="status" aria-live="polite"' in page
    assert "owner" in page and "operator" in page
    assert '<html lang="en">' in page


async def test_without_a_visitor_there_is_no_page(served: Any) -> None:
    async with served({"scripted:a": []}) as serving:
        transport = httpx.ASGITransport(app=serving.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000"
        ) as stranger:
            for path in ("/runs", "/runs/x", "/playground", "/waiting"):
                assert (await stranger.get(path)).status_code == 401
            assert (await stranger.post("/playground", data={"text": "hi"})).status_code == 401
            assert (await stranger.get("/static/nothing.js")).status_code == 404
            assert (await stranger.get("/static/console.css")).status_code == 200


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_holds_script_or_style(template: Path) -> None:
    text = template.read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|hx-vals=.js", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text), (
        "everything comes from this server"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_out_of_text(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
    )


def test_libraries_are_here_with_their_licences() -> None:
    static = CONSOLE / "static"
    assert "version" in (static / "htmx.min.js").read_text(encoding="utf-8")
    assert "Zero-Clause BSD" in (static / "htmx.LICENSE.txt").read_text(encoding="utf-8")
    assert "BSD-3-Clause" in (static / "highlight.min.js").read_text(encoding="utf-8")
    assert "BSD 3-Clause" in (static / "highlight.LICENSE.txt").read_text(encoding="utf-8")
    licences = {one.name.partition(".")[0] for one in static.glob("*.LICENSE.txt")}
    assert {one.name.partition(".")[0] for one in static.glob("*.min.js")} == licences
    urls = re.findall(r"url\(|@import", "".join(one.read_text() for one in static.glob("*.css")))
    assert urls == []


async def test_an_error_is_a_page_and_for_a_part_of_a_page_a_message(served: Any) -> None:
    async with served({"scripted:a": []}) as serving, serving.browser() as browser:
        page = await browser.get("/runs/nothing")
        assert (
            page.status_code,
            "no session <code>nothing</code>" in page.text,
            "<main" in page.text,
        ) == (
            404,
            True,
            True,
        )
        part = await browser.get("/runs/nothing", headers={"hx-request": "true"})
        assert (part.status_code, "<main" in part.text) == (404, False)
        assert part.headers["hx-retarget"] == "#messages"
        assert (await browser.get("/nowhere")).status_code == 404
        assert (await browser.post("/runs")).status_code == 405


def test_the_form_to_sign_in_escapes_where_it_leads() -> None:
    page = render_login_page("no such token", '/runs?"><script>alert(1)</script>')
    assert "<script>alert" not in page and "no such token" in page
    assert 'action="/login"' in page and 'name="next"' in page


@pytest.mark.parametrize("letter", ["\ud800", "\udfff", "\u2028", "\u2029"])
def test_half_characters_and_other_ends_of_lines_are_spelled_out_and_a_page_can_hold_the_text(
    letter: str,
) -> None:
    shown = mark_invisible(f"a{letter}b")
    assert shown == f'a<span class="unseen">\\u{ord(letter):04x}</span>b'
    assert shown.encode()


def test_characters_that_nobody_would_see_are_spelled_out() -> None:
    shown = mark_invisible("a\u202eb<b>\x1b[31m\u200bc\n\td")
    assert shown == (
        'a<span class="unseen">\\u202e</span>b&lt;b&gt;<span class="unseen">\\x1b</span>[31m'
        '<span class="unseen">\\u200b</span>c\n\td'
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0124, "12 ms"),
        (3.44, "3.4 s"),
        (59.99, "60.0 s"),
        (125, "2 min 5 s"),
        (120, "2 min"),
        (3780, "1 h 3 min"),
    ],
)
def test_durations_are_written_for_people(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


def test_sizes_are_written_for_people() -> None:
    assert [format_size(one) for one in (0, 1023, 1536, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]


def tokens(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_of_tokens_says_who_everybody_is(tmp_path: Path) -> None:
    file = tokens(
        tmp_path,
        (
            "# people\n\nowner-token-0123456789\nada ada-token-0123456789\neve "
            "eve-token-0123456789 operator\n"
        ),
    )
    assert load_users(file, "me") == (
        {
            "owner-token-0123456789": Principal("me", True),
            "ada-token-0123456789": Principal("ada", False),
            "eve-token-0123456789": Principal("eve", True),
        },
        "",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no token in"),
        ("ada token extra", "line 1"),
        ("a b operator more", "line 1"),
        ("same-token\nada same-token", "already in use"),
    ],
)
def test_a_file_of_tokens_that_is_not_clear_opens_nothing(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_users(tokens(tmp_path, text), "me")


def test_tokens_that_others_may_read_open_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="others than its owner"):
        load_users(tokens(tmp_path, "owner-token-0123456789", 0o644), "me")
    with pytest.raises(ConfigError, match="cannot read"):
        load_users(tmp_path / "none", "me")


async def test_a_console_is_made_of_the_settings_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferrule.console.setup import close_console

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("FERRULE_STATE", "FERRULE_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FERRULE_TOKEN", "0123456789abcdef")
    script = tmp_path / "talk.yaml"
    script.write_text("- say: hello\n")
    said: list[str] = []
    options = {
        "model": f"scripted:{script}",
        "workspace": str(tmp_path),
        "journal__path": str(tmp_path / "j.db"),
    }
    console = build_console(options, said.append, owner="me")
    from ferrule.console.viewer import Viewer

    live = await console.open_sessions.start(Viewer("me", True), "hi")
    assert live.run_task is not None
    await live.run_task
    assert console.journal.find(live.id).state == "done"
    assert list_open_files(tmp_path / "j.db")
    await close_console(console)
    assert list_open_files(tmp_path / "j.db") == []
    assert said == []


def list_open_files(beginning: Path) -> list[str]:
    """The open files of this process whose names begin so: a journal and what lies beside it."""
    found = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    return [name for name in found if name.startswith(str(beginning))]


def test_a_journal_that_was_brought_along_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from ferrule.runtime.assemble import assemble
    from ferrule.storage.journal.sqlite import SqliteJournal

    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "talk.yaml"
    script.write_text("[]")
    with SqliteJournal(tmp_path / "j.db") as journal:
        options = {"model": f"scripted:{script}", "workspace": str(tmp_path)}
        made = assemble(options, notice=lambda _: None, journal=journal)
        asyncio.run(made.close())
        assert journal.sessions() == []
