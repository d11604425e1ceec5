"""Writes the pages of the documentation that are made from the code: `make docs`.

`reference.md` and the pages below `reference/` come from the docstrings of the public names,
`settings.md` from the table of settings, the tables of `providers.md` and `plugins.md` from those
of providers and of the keys of manifests, the map in `AGENTS.md` from the first sentence of every
package, `promises.md` from the lists of promises and the tests that claim them. A test compares
them with what is checked in.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import made_field_reports
import made_plugins
import made_promises
import made_providers
import made_reference
import made_settings

ROOT = Path(__file__).resolve().parents[1]


def settings() -> str:
    """The page about settings, as Markdown."""
    purpose = (
        "Every key of `ferrule.yaml`, with its default and with what a repository's own file may "
        "set. `ferrule validate` names the file and the line of a value that cannot be used."
    )
    return f"{made_reference.NOTE}\n\n# Settings\n\n{purpose}\n\n{made_settings.format_reference('local').strip()}\n"


def agents() -> str:
    """`AGENTS.md` with the map of today."""
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    begin, end = re.search(r"<!-- map:.*-->\n", text), text.index("<!-- end of map -->")
    assert begin is not None
    return f"{text[: begin.end()]}\n{_map()}\n{text[end:]}"


def _map() -> str:
    lines: list[str] = []
    sources = (ROOT / "src", ROOT / "packages/ferrule-local/src")
    for path in (file for source in sources for file in sorted(source.rglob("__init__.py"))):
        folder = path.parent.relative_to(next(one for one in sources if one in path.parents))
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"- `{folder}`: {_sentence(text)}")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


PAGES: dict[str, Callable[[], str]] = {
    **made_reference.PAGES,
    "docs/settings.md": settings,
    "docs/promises.md": made_promises.page,
    "docs/field-reports.md": made_field_reports.page,
    "docs/plugins.md": made_plugins.page,
    "docs/providers.md": made_providers.page,
    "AGENTS.md": agents,
}
"""What is made, by its path in the repository."""


def main() -> int:
    """Write the pages; with `--check` only say which are stale (exit status 1)."""
    stale = [name for name, make in PAGES.items() if not _same(ROOT / name, make())]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is stale: run `make docs`", file=sys.stderr)
        return bool(stale)
    for name in stale:
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main())
