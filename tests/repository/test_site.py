"""The documentation is a site: it is built strictly, without network, and nothing in it is fetched
from elsewhere; its search works without a server, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source import ROOT

LOADED = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MOST_PAGES = 45
"""Pages in `docs` beside the reference below `docs/reference`. A newcomer finds nothing among more."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a page outside the navigation, a dead link and a missing anchor are
    errors.
    """
    folder = tmp_path_factory.mktemp("site")
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    return folder


def test_the_pages_of_the_site_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    written = list((ROOT / "docs").rglob("*.md"))
    assert len(pages) > len(written)
    by_hand = [path for path in written if path.parent.name != "reference"]
    assert len(by_hand) <= MOST_PAGES, "merge pages that answer one question"
    assert [path.name for path in pages if LOADED.search(path.read_text(encoding="utf-8"))] == []
    text = (site / "tutorial.html").read_text(encoding="utf-8")
    assert "record_sale" in text and "console tutorial" not in text
    deploying = (site / "deploy.html").read_text(encoding="utf-8")
    assert 'href="examples.html#composeyaml"' in deploying


def test_the_texts_for_models_list_each_page_with_a_summary(site: Path) -> None:
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    linked = re.findall(r"^- \[.+\]\(([^)]+)\): .{10}", listed, re.MULTILINE)
    assert len(linked) > 40 and all((site / name).exists() for name in linked)
    assert len(linked) == listed.count("\n- "), "each page has a title and a summary"
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert "# Concepts" in whole and "<!-- tutorial.md -->" in whole


def test_the_search_works_in_a_folder_without_a_server(site: Path, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium")
    shown = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}",
            "--virtual-time-budget=30000",
            "--dump-dom",
            f"{(site / 'index.html').as_uri()}?q=docker",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert re.search(r"\d+ matching documents", shown.stdout), shown.stderr[-2000:]
    found = re.findall(
        r'href="file://[^"]+/([\w-]+)\.html[^>]+md-search-result__link', shown.stdout
    )
    assert len(found) > 3 and found[0] not in ("decisions", "evidence", "field-reports"), found
