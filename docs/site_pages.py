"""A hook of mkdocs: pages of the site that are made of files outside `docs/`, and texts for models.

The documentation is written to be read in a repository, where `../README.md` is a file. In the site
those files are pages of their own; a link to any other file outside `docs/` is left as text,
because the site does not have it.

`llms.txt` lists the pages with a sentence each, in the order of the navigation (llmstxt.org), and
`llms-full.txt` is all of them in one Markdown file, without those that tests and code make.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "AGENTS.md": "agents-map.md",
    "SECURITY.md": "security-policy.md",
    "examples": "examples.md",
}
"""Files of the repository and what they are called in the site."""
LEFT_OUT = {"promises.md", "field-reports.md", "machines.md", "agents-map.md"}
"""Pages that `llms-full.txt` does not have: made lists that explain nothing."""
RECORDS = {"decisions.md", "promises.md", "field-reports.md", "evidence.md", "machines.md"}
"""Long pages that mention everything: the search shows them behind those that explain it."""
_texts: dict[str, str] = {}
"""The pages of the site as Markdown, by their names in it."""
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_WORDS = re.compile(r"^(?P<fence>`{3,})(?P<language>\S+)[^\n]*$", re.MULTILINE)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are made of files outside `docs/`."""
    for name, page in PAGES.items():
        text = _examples() if name == "examples" else (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_linked(text, ".", page)))
    return files


def on_post_build(config: Any) -> None:
    """Write `llms.txt` and `llms-full.txt` beside the pages."""
    folder = Path(config.site_dir)
    listed: list[str] = [f"# {config.site_name}", f"> {config.site_description}"]
    whole: list[str] = []
    for part in config.nav:
        for title, names in part.items():
            rows: list[str] = []
            for name in _flatten(names):
                text = _texts.get(name, "")
                rows.append(f"- [{_title(text)}]({_html(name)}): {_summary(text)}")
                if name not in LEFT_OUT:
                    whole.append(f"<!-- {name} -->\n\n{text.strip()}")
            listed += [f"## {title}", "\n".join(rows)]
    (folder / "llms.txt").write_text("\n\n".join(listed) + "\n", encoding="utf-8")
    (folder / "llms-full.txt").write_text("\n\n".join(whole) + "\n", encoding="utf-8")


def _flatten(names: list[Any]) -> list[str]:
    """Return the pages of a part of the navigation, those of its groups included."""
    found: list[str] = []
    for name in names:
        found += [name] if isinstance(name, str) else _flatten(next(iter(name.values())))
    return found


def _html(name: str) -> str:
    return name.removesuffix(".md") + ".html"


def _title(text: str) -> str:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _summary(text: str) -> str:
    """Return the first sentence of a page as plain text."""
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split())
        if words and words[0] not in "#<`|!-*" and not words.startswith("**"):
            plain = _LINK.sub(lambda link: link["text"], words)
            return re.split(r"(?<=[.!?:]) ", plain, maxsplit=1)[0]
    return ""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Links of a page in `docs/` to files outside it; and fences without the words that only tests
    read.
    """
    at = page.file.src_uri
    if at in RECORDS or at == PAGES["CHANGELOG.md"]:
        page.meta["search"] = {"boost": 0.2}
    if at not in PAGES.values():
        markdown = _linked(markdown, posixpath.join("docs", posixpath.dirname(at)), at)
    markdown = _WORDS.sub(lambda fence: f"{fence['fence']}{fence['language']}", markdown)
    _texts[at] = markdown
    return markdown


def _linked(text: str, folder: str, page: str) -> str:
    """The text with its links, which are relative to `folder` of the repository, as the site has
    them.
    """
    made: list[str] = []
    at = 0
    for fence in _FENCE.finditer(text):
        made += [
            _LINK.sub(lambda link: _link(link, folder, page), text[at : fence.start()]),
            fence[0],
        ]
        at = fence.end()
    return "".join([*made, _LINK.sub(lambda link: _link(link, folder, page), text[at:])])


def _link(link: re.Match[str], folder: str, page: str) -> str:
    target, hash_, anchor = link["target"].partition("#")
    if not target or re.match(r"[a-z]+:", target):
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    name = PAGES.get(path.rstrip("/"))
    if path.startswith("examples/"):
        name, hash_, anchor = PAGES["examples"], "#", posixpath.basename(path).replace(".", "")
    if name is None and path.startswith("docs/"):
        name = path.removeprefix("docs/")
    if name is None:
        return link["text"]
    return f"{link['image']}[{link['text']}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{hash_}{anchor})"


def _examples() -> str:
    parts = ["# Examples", "Short programs that run offline, or with a model of yours."]
    folder = ROOT / "examples"
    for path in (*sorted(folder.iterdir()), *sorted((folder / "engines").iterdir())):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if path.suffix in _LANGUAGES:
            parts += [f"## {path.name}", _block(_LANGUAGES[path.suffix], text)]
        elif path.suffix == ".ipynb":
            parts += [f"## {path.name}", *_notebook_cells(text)]
    return "\n\n".join(parts) + "\n"


_LANGUAGES = {".py": "python", ".yaml": "yaml", ".html": "html"}


def _notebook_cells(text: str) -> list[str]:
    """The cells of a notebook, without their outputs; its headings are plain text here."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return [_block("python", one) if kind == "code" else one.lstrip("# ") for kind, one in cells]


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
