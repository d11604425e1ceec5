"""The documentation is a site: it is built strictly, without network, and nothing in it is fetched
from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from source import ROOT

LOADED = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE
)


MOST_PAGES = 45
"""Pages in `docs`. A newcomer finds nothing among more."""


def test_the_site_is_built_strictly_and_its_pages_load_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    """Strictly: a page outside the navigation, a dead link and a missing anchor are errors."""
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    pages = sorted((tmp_path / "site").rglob("*.html"))
    written = list((ROOT / "docs").rglob("*.md"))
    assert len(pages) > len(written)
    assert len(written) <= MOST_PAGES, "merge pages that answer one question"
    assert [path.name for path in pages if LOADED.search(path.read_text(encoding="utf-8"))] == []
    listed = (tmp_path / "site/llms.txt").read_text(encoding="utf-8")
    linked = re.findall(r"^- \[.+\]\(([^)]+)\): .{10}", listed, re.MULTILINE)
    assert len(linked) > 40 and all((tmp_path / "site" / name).exists() for name in linked)
    assert len(linked) == listed.count("\n- "), "each page has a title and a summary"
    whole = (tmp_path / "site/llms-full.txt").read_text(encoding="utf-8")
    assert "# Concepts" in whole and "<!-- tutorial.md -->" in whole
    text = (tmp_path / "site/tutorial.html").read_text(encoding="utf-8")
    assert "record_sale" in text and "console tutorial" not in text
    deploying = (tmp_path / "site/deploy.html").read_text(encoding="utf-8")
    assert 'href="examples.html#composeyaml"' in deploying
