"""What ignore files hide from a search, held against git itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.search.rows import SearchResult
from ferrule.toolkits.search.scope import Scope, find_files

FILES = (
    "a.md",
    "b.py",
    "docs/a.md",
    "docs/b.py",
    "docs/sub/a.md",
    "dist/a.md",
    "packages/web/dist/b.py",
    "packages/web/a.md",
    "packages/dist/x/y.md",
    "sub/dist",
    "sub/dist.md",
    "sub/docs/dist/a.md",
    "x y/[z].md",
    "#a.md",
    "!b.md",
)
PATTERNS = st.sampled_from(
    [
        "*",
        "!*/",
        "!*.md",
        "*.md",
        "dist/",
        "dist",
        "/dist",
        "!packages/",
        "!dist/",
        "packages/*/dist",
        "**/dist",
        "docs/**",
        "!docs/sub/",
        "docs/*",
        "/docs/sub/",
        "**/sub/**",
        "!/docs",
        "sub/",
        "!sub/dist",
        "a.md ",
        "a.md\\ ",
        "\\#a.md",
        "#a.md",
        "\\!b.md",
        "!\\!b.md",
        "[ab].md",
        "[!a].md",
        "*.py\r",
        "x y/",
        "**",
        "!**/",
        "?.md",
        "docs/**/a.md",
        "/",
        "",
        "\\",
        "[",
        "\x0ba.md",
        "/*/",
        "/**/",
    ]
)
LINES = st.lists(PATTERNS, max_size=5)
GIT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "XDG_CONFIG_HOME": os.devnull,
}


def shown_by_git(root: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=root,
        env=GIT,
        capture_output=True,
        check=True,
        text=True,
    )
    return sorted(name for name in listed.stdout.split("\0") if name)


@given(st.booleans(), LINES, LINES, LINES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_search_looks_at_the_files_that_git_shows(
    bom: bool, above: list[str], docs: list[str], packages: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q"], cwd=root, env=GIT, check=True)
        for name in FILES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("x")
        mark = b"\xef\xbb\xbf" if bom else b""
        (root / ".gitignore").write_bytes(mark + "\n".join(above).encode())
        (root / "docs/.gitignore").write_text("\n".join(docs) + "\n")
        (root / "packages/.gitignore").write_text("\n".join(packages) + "\n")
        found = list(find_files(Workspace(root), Scope("."), SearchResult(), lambda: False))
        assert sorted(found) == shown_by_git(root)
