"""A page of an installed plugin: in the menu without an import, for the owner alone, escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.plugins import ConsolePage
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.settings.table import list_installed
from ferrule.testing import render_page

CODE = """
from dataclasses import dataclass
from typing import ClassVar

from ferrule.plugins import Parts


@dataclass(frozen=True)
class Reeds:
    name: ClassVar[str] = "reeds"

    def setup(self, setup):
        return Parts()
"""
PAGE = """
from ferrule.plugins import ConsolePage

async def show(page: ConsolePage) -> str:
    notes = page.state() / "notes.txt"
    if page.form is not None:
        notes.write_text(page.form["note"])
    said = notes.read_text() if notes.exists() else "nothing"
    return page.render("<p>{{ user }} said {{ said }}; {{ query }}</p>", said=said, user=page.user,
                       query=page.query.get("q", ""))
"""
MANIFEST = """
help = "Reeds."
[pages.reeds]
object = "ferrule_reeds.page:show"
title = "Reeds & more"
"""


@pytest.fixture
def reeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    package = site / "ferrule_reeds"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CODE)
    (package / "page.py").write_text(PAGE)
    (package / "ferrule-plugin.toml").write_text(MANIFEST)
    (site / "ferrule_reeds-1.0.dist-info").mkdir()
    (site / "ferrule_reeds-1.0.dist-info/entry_points.txt").write_text(
        "[ferrule.plugins]\nreeds = ferrule_reeds:Reeds\n"
    )
    monkeypatch.syspath_prepend(str(site))

    def forget() -> None:
        find_installed_manifests.cache_clear()
        list_installed.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.usefixtures("reeds")
async def test_a_page_is_in_the_menu_and_shown_to_the_owner_alone(served: Any) -> None:
    async with served({"scripted:a": []}) as serving:
        async with serving.browser() as browser:
            menu = (await browser.get("/costs")).text
            assert 'href="/x/reeds"' in menu and "Reeds &amp; more" in menu
            assert "ferrule_reeds.page" not in sys.modules
            shown = await browser.get("/x/reeds?q=%3Cb%3E")
            assert shown.status_code == 200
            assert "<p>owner said nothing; &lt;b&gt;</p>" in shown.text
            sent = await browser.post("/x/reeds", data={"note": "<i>wet</i>"})
            assert "said &lt;i&gt;wet&lt;/i&gt;;" in sent.text
        async with serving.browser("guest") as browser:
            assert (await browser.get("/x/reeds")).status_code == 403


def test_a_page_is_rendered_in_a_test_without_a_server(tmp_path: Path) -> None:
    async def show(page: ConsolePage) -> str:
        found = page.find_resource(Path)
        said = (page.form or page.query or {}).get("q", "nothing")
        return page.render("<p>{{ said }} {{ found }}</p>{{ viewer.csrf }}", said=said, found=found)

    for form, query in (({"q": "<b>"}, None), (None, {"q": "<b>"})):
        shown = render_page(show, state=tmp_path, form=form, query=query, resources=[Path("/pond")])
        assert shown == "<p>&lt;b&gt; /pond</p>csrf"
    assert "nothing None" in render_page(show, state=tmp_path)


def test_a_page_that_is_not_async_writes_into_the_folder_of_the_test(tmp_path: Path) -> None:
    def show(page: ConsolePage) -> str:
        (page.state() / "seen").touch()
        return page.render("seen")

    assert render_page(show, state=tmp_path) == "seen" and (tmp_path / "seen").exists()
