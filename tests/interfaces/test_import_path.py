"""The command line imports nothing from where commands can write, whatever leads there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ferrule
from ferrule.cli import import_path
from ferrule.permissions.provenance import find_own_code

MODULES = ("click", "yaml", "rich", "prompt_toolkit", "tiktoken", "xllamacpp", "uvloop")
"""What the command line imports, or looks for, besides Python's own modules."""
START = "from ferrule.cli.entry import main; sys.argv = ['ferrule', *sys.argv[1:]]; main()"
FINDER = """
import importlib.util, os
class Finder:
    def find_spec(self, name, path=None, target=None):
        file = f"{os.environ['PLACE']}/{name}.py"
        return importlib.util.spec_from_file_location(name, file) if os.path.exists(file) else None
"""

WAYS: dict[str, tuple[str, dict[str, str], str]] = {
    "PYTHONPATH": ("", {"PYTHONPATH": "PLACE"}, "."),
    "relative": ("", {"PYTHONPATH": "src"}, "."),
    "current folder": ("", {}, "src"),
    "empty entry": ("", {"PYTHONPATH": "/nowhere::"}, "src"),
    "path file": ("sys.path.append(os.environ['PLACE'])", {}, "."),
    "path file, first": ("sys.path.insert(0, os.environ['PLACE'])", {}, "."),
    "editable finder": (f"{FINDER}\nsys.meta_path.append(Finder())", {}, "."),
    "editable finder, first": (f"{FINDER}\nsys.meta_path.insert(0, Finder())", {}, "."),
    "link": ("", {"PYTHONPATH": "LINK"}, "."),
    "other workspace": ("", {"PYTHONPATH": "PLACE"}, "/"),
    "beside, in a repository": ("", {"PYTHONPATH": "PLACE"}, "deep/folder"),
}
"""What a start-up file does first, variables, and where Ferrule starts."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name in ("src", "deep/folder", ".git"):
        (root / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(root / "src")
    for name in MODULES:
        text = f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n"
        (root / "src" / f"{name}.py").write_text(text)
    return root


def start(
    work: Path, way: str, *words: str, program: str = START
) -> subprocess.CompletedProcess[str]:
    before, variables, folder = WAYS[way]
    place = str(work / "src")
    given = {
        name: value.replace("PLACE", place).replace("LINK", str(work.parent / "link"))
        for name, value in variables.items()
    }
    at = work / folder
    more = ("-C", str(work)) if way == "other workspace" else ()
    return subprocess.run(
        [sys.executable, "-c", f"import os, sys\n{before}\n{program}", *words, *more],
        cwd=at,
        env={**os.environ, "PLACE": place, **given},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("way", WAYS)
def test_no_module_is_imported_from_where_commands_can_write(way: str, work: Path) -> None:
    ran = start(work, way, "tools", "list")
    assert (ran.returncode, "read_file" in ran.stdout) == (0, True), ran
    assert not (work.parent / "imported").exists(), (work.parent / "imported").read_text()


@pytest.mark.parametrize("way", WAYS)
def test_a_module_that_is_only_there_is_not_there(way: str, work: Path) -> None:
    (work / "src/only_here.py").write_text("print('imported')\n")
    program = (
        "from ferrule.cli.import_path import protect_imports\nprotect_imports(sys.argv[1:])\n"
        "from importlib.util import find_spec\nfrom importlib.metadata import version\n"
        "print(find_spec('only_here'), find_spec('click') is not None, bool(version('click')))"
    )
    assert start(work, way, program=program).stdout == "None True True\n"


@pytest.mark.parametrize("way", ["PYTHONPATH", "path file, first", "editable finder, first"])
def test_without_the_protection_each_of_them_would_be(way: str, work: Path) -> None:
    start(work, way, program="import click")
    assert (work.parent / "imported").read_text() == "click "


def test_what_was_imported_from_there_before_ends_the_start(work: Path) -> None:
    (work / "src/sitecustomize.py").write_text("")
    ran = start(work, "PYTHONPATH", "tools", "list")
    assert ran.returncode == 2 and ran.stdout == ""
    assert f"`sitecustomize` was loaded from `{work}/src/sitecustomize.py`" in ran.stderr
    assert "unset PYTHONPATH" in ran.stderr


def test_what_is_missing_then_is_explained(work: Path) -> None:
    hide = """
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "click" and os.environ["PLACE"] not in sys.path:
            raise ModuleNotFoundError("no click", name="click")
sys.meta_path.insert(0, Hide())
"""
    ran = start(work, "PYTHONPATH", "tools", "list", program=f"{hide}{START}")
    assert ran.returncode == 2, ran
    assert f"`click` lies in `{work}/src`, where commands can write" in ran.stderr


def test_a_module_that_a_person_names_is_imported(work: Path) -> None:
    (work / "src/shapes.py").write_text("class Shape:\n    pass\n")
    program = (
        "from ferrule.cli.import_path import protect_imports\nprotect_imports([])\n"
        "from ferrule.cli.run.schema_option import _load_type\n"
        "print(os.environ['PLACE'] in sys.path, _load_type('shapes', 'Shape'))"
    )
    ran = start(work, "PYTHONPATH", program=program)
    assert ran.stdout == "False <class 'shapes.Shape'>\n", ran


def test_our_other_distribution_is_loaded_from_its_sources_where_commands_cannot_write() -> None:
    """What is left in `sys.path` in a tree of our sources is what a sandbox seals there."""
    root = Path(ferrule.__file__).resolve().parents[2]
    beside = str(root / "packages/ferrule-local/src")
    assert beside in import_path._list_own_folders()
    assert beside in find_own_code((str(root),))
    program = (
        "from ferrule.cli.import_path import protect_imports as p; p([]); import ferrule_local"
    )
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=60)
