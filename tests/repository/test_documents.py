"""The documentation is executed: its Python runs, its commands run, its links lead somewhere.

A block ```` ```python ```` runs after the ones before it in the same file, in one namespace and one temporary folder.
A model that it names of OpenAI or Anthropic is a server on this machine (`model_double.py`). ` ```text printed ` holds
what these programs print. ` ```console run ` runs its `$ ferrule …` lines. Either may say `model`: then it runs only
where the embedded model is pulled. ` ```python static ` is only compiled, for a block that needs a server nobody has
here; the test counts these. ` ```python theirs NAME==VERSION … ` is a program for another library, compiled here and run
in an environment of its own by `make lab NAME=coming-from`; ` ```console theirs … ` the same for its command line.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from model_double import serve_model
from source import MODULES, ROOT

from dev_mode import run_python, run_to_end

FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
STATIC_BLOCKS = 3
"""Blocks that are compiled and not run. May only get fewer."""


@dataclass
class Page:
    path: Path
    blocks: list[tuple[int, list[str], str]] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(ROOT))


def pages() -> list[Page]:
    paths = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")]
    paths += sorted((ROOT / "docs").rglob("*.md"))
    found: list[Page] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        page = Page(path)
        for match in FENCE.finditer(text):
            line = text[: match.start()].count("\n") + 2
            page.blocks.append((line, match["info"].split(), match["body"]))
        found.append(page)
    return found


PAGES = pages()


def model_is_pulled() -> bool:
    from ferrule_local import installed_models

    folder = Path(os.environ.get("FERRULE_MODELS") or installed_models.models_folder())
    return any(folder.rglob("*.gguf")) if folder.exists() else False


MODEL = model_is_pulled()


def python_of(page: Page, *, with_model: bool) -> str:
    """All Python of a page as one program; line numbers are those of the page."""
    lines: list[str] = []
    for line, info, body in page.blocks:
        if info[:1] != ["python"] or {"static", "theirs"} & set(info):
            continue
        if "model" in info and not with_model:
            continue
        lines += [""] * (line - 1 - len(lines))
        lines += body.splitlines()
    return "\n".join(lines) + "\n" if any(text.strip() for text in lines) else ""


def named(page: Page) -> str:
    return page.shown


@pytest.mark.proves("documents.python-runs")
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_python_of_a_page_runs(page: Page, tmp_path: Path) -> None:
    program = python_of(page, with_model=MODEL)
    if not program:
        pytest.skip("no Python on this page")
    script = tmp_path / "page.py"
    script.write_text(program, encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    with serve_model() as (variables, double):
        said = run_python(script, folder, variables)
    assert double.refusals == []
    shown = "".join(body for _, info, body in page.blocks if info == ["text", "printed"])
    assert not shown or said == shown


@pytest.mark.proves("documents.python-runs")
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_python_block_compiles_and_few_are_not_run(page: Page) -> None:
    for line, info, body in page.blocks:
        if info[:1] == ["python"]:
            compile(body, f"{page.shown}:{line}", "exec")
    static = sum(
        info[:1] == ["python"] and "static" in info for each in PAGES for _, info, _ in each.blocks
    )
    assert static <= STATIC_BLOCKS


def test_a_program_for_another_library_names_its_versions_and_stands_beside_ours() -> None:
    """What it prints is shown by `make lab NAME=coming-from`; here that the page says what it ran with."""
    sides: set[str] = set()
    for page in PAGES:
        theirs = [info for _, info, _ in page.blocks if info[:1] == ["python"] and "theirs" in info]
        if not theirs:
            continue
        text = page.path.read_text(encoding="utf-8")
        pinned = [word for info in theirs for word in info if "==" in word]
        assert pinned, page.shown
        for requirement in pinned:
            name, _, version = requirement.partition("==")
            name = name.partition("[")[0]
            assert f"{name} {version}" in text, f"{page.shown}: {requirement}"
            sides.add(name)
        assert any(info == ["text", "printed"] for _, info, _ in page.blocks), page.shown
    assert sides >= {"langchain", "llm", "openai-agents", "pydantic-ai-slim", "smolagents"}


def commands() -> list[tuple[str, str, bool]]:
    """Where a command stands, the command, and whether it needs the model. The same one on two
    pages runs once.
    """
    found: dict[tuple[str, bool], list[str]] = {}
    for page in PAGES:
        for line, info, body in page.blocks:
            if info[:1] == ["console"] and "run" in info:
                for text in body.splitlines():
                    if text.startswith("$ "):
                        found.setdefault((text[2:], "model" in info), []).append(
                            f"{page.shown}:{line}"
                        )
    return [(", ".join(places), command, model) for (command, model), places in found.items()]


@pytest.mark.proves("documents.commands-run")
@pytest.mark.parametrize(("where", "command", "model"), commands())
def test_the_commands_of_a_page_run(where: str, command: str, model: bool, tmp_path: Path) -> None:
    if model and not MODEL:
        pytest.skip("the embedded model is not pulled")
    words = shlex.split(command)
    assert words[0] == "ferrule", f"{where}: only `ferrule` commands are run"
    run_to_end([str(Path(sys.executable).with_name("ferrule")), *words[1:]], tmp_path)


def test_every_ferrule_command_in_a_console_block_is_run_or_says_why_not() -> None:
    wrong = [
        f"{page.shown}:{line}"
        for page in PAGES
        for line, info, body in page.blocks
        if info[:1] == ["console"]
        and "$ ferrule" in body
        and not {"run", "server", "terminal", "key", "tutorial", "served"} & set(info)
    ]
    said = (
        "mark with `run`, or why not: `server`, `terminal`, `key`, `tutorial`, `served` "
        "(`test_tutorial.py` runs the last two)"
    )
    assert not wrong, said + "\n" + "\n".join(wrong)


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.proves("documents.examples-run")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    if "local:" in path.read_text(encoding="utf-8") and not MODEL:
        pytest.skip("the embedded model is not pulled")
    run_python(path, tmp_path)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, spelled as forges spell them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_lead_somewhere(page: Page) -> None:
    broken: list[str] = []
    for target in LINK.findall(FENCE.sub("", page.path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_says_once_what_it_is_for_and_no_link_leads_to_the_whole_page_itself(
    page: Page,
) -> None:
    text = FENCE.sub("", page.path.read_text(encoding="utf-8"))
    assert text.count("After this page") <= 1
    here = [name for name in LINK.findall(text) if (page.path.parent / name) == page.path]
    assert here == []


def load_maker(path: str) -> Any:
    """Load a script that makes pages."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.proves("documents.made-pages-are-fresh")
@pytest.mark.parametrize("name", load_maker("docs/make_reference.py").PAGES)
def test_pages_made_from_the_code_are_fresh(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == load_maker("docs/make_reference.py").PAGES[
        name
    ](), "run `make docs`"


def test_the_map_has_every_package_and_a_package_names_its_modules() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8").partition("## Map")[2]
    mapped = dict(re.findall(r"^- `([^`]+)`: (.*)$", text, re.M))
    packages = {
        module.name.replace(".", "/"): module
        for module in MODULES
        if module.shown.endswith("__init__.py")
    }
    assert sorted(mapped) == sorted(packages)
    assert all(len(sentence) > 10 for sentence in mapped.values())
    unnamed: list[str] = []
    for module in MODULES:
        folder, _, name = module.name.replace(".", "/").rpartition("/")
        if module.is_package or name.startswith("_") or folder == "ferrule":
            continue
        if not re.search(rf"\b{name}\b", ast.get_docstring(packages[folder].tree) or ""):
            unnamed.append(f"{folder}/__init__.py does not name `{name}`")
    assert not unnamed, "\n".join(unnamed)


def test_the_readme_is_short_and_names_what_a_newcomer_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < 900
    assert "\nmake demo " in text and "\nmake test " in text


def test_the_figures_of_the_readme_are_those_of_the_last_measurement() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = load_maker("docs/make_readme.py")
    assert f"<!-- speed -->\n{made.block('speed')}<!-- /speed -->" in text, "run `make readme`"


def test_the_terminal_of_the_readme_shows_the_commands_that_are_recorded() -> None:
    recording = load_maker("docs/screens/make_recording.py")
    picture = ElementTree.fromstring(recording.PICTURE.read_text(encoding="utf-8"))
    shown = " ".join("".join(picture.itertext()).split())
    for command in recording.COMMANDS:
        assert f"$ {command}" in shown
    assert "The port in config.yaml is 8080." in shown and "permission_denied" in shown
    linked = [name for node in picture.iter() for name in node.attrib if name.endswith("href")]
    assert (
        linked == [] and "url(http" not in recording.FORMAT and "@font-face" not in recording.FORMAT
    )


@pytest.mark.model
def test_the_terminal_of_the_readme_can_be_recorded_again(tmp_path: Path) -> None:
    recording = load_maker("docs/screens/make_recording.py")
    shown = recording.record(tmp_path).plain
    assert "read_file" in shown and "permission_denied" in shown and "port: 8080" in shown


@pytest.mark.parametrize(("name", "most"), [("AGENTS.md", 150), ("CONTRIBUTING.md", 120)])
def test_what_a_newcomer_reads_first_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= most
