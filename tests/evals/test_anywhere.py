"""What `make anywhere` keeps of its cells, and what readers are told about them."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from anywhere import page, systems
from anywhere.__main__ import choose_cells
from anywhere.systems import ROOT, Cell, NotHere


def described() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "evals/anywhere/cells.yaml").read_text(encoding="utf-8"))


def row(name: str, **values: Any) -> dict[str, Any]:
    """A row of a cell where everything went well."""
    fields = {"name": name, "system": "Debian 12", "python": "3.11.7", "user": "root"}
    counts = {"ran": "few", "demo": "yes", "passed": 9, "failed": 0, "skipped": 1, "seconds": 60}
    dated = {"date": "2026-01-01", "commit": "00000000", "untried": ""}
    return {**fields, **counts, **dated, **values}


def test_a_row_takes_its_place_and_the_others_stay() -> None:
    order = ["a", "b", "c"]
    rows = [row("a", passed=1), row("c", passed=3), row("gone from the list")]
    added = page.add_row(rows, row("b", passed=2), order)
    assert [(one["name"], one["passed"]) for one in added] == [("a", 1), ("b", 2), ("c", 3)]
    again = page.add_row(added, row("c", passed=4, date="2026-02-01"), order)
    assert [one["passed"] for one in again] == [1, 2, 4]
    assert [one["date"] for one in again] == ["2026-01-01", "2026-01-01", "2026-02-01"]


def test_a_cell_that_ran_is_not_untried_again() -> None:
    tried, untried = row("a"), row("a", untried="no Python 3.12.1 is here")
    assert page.add_row([tried], untried, ["a"]) == [tried]
    assert page.add_row([untried], tried, ["a"]) == [tried]


def test_only_what_went_well_counts_as_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TABLE", "PAGE", "README", "TRIED"):
        kept = getattr(page, name)
        copy = tmp_path / kept.name
        if kept.exists():
            copy.write_bytes(kept.read_bytes())
        monkeypatch.setattr(page, name, copy)
    bad = {"failed": 1, "python": "3.12.1", "system": "Debian 13"}
    rows = [
        row("good"),
        row("failed", **bad),
        row("no demo", **bad | {"failed": 0, "demo": "no (1)"}),
        row("missing", untried="install the package mmdebstrap"),
    ]
    order = [one["name"] for one in rows] + ["not run"]
    page.write_rows(rows, order, ["macOS"])
    tried = json.loads(page.TRIED.read_text(encoding="utf-8"))
    assert (tried["pythons"], tried["systems"]) == (["3.11.7"], ["Debian 12"])
    assert "[Tried on Debian 12 with Python 3.11](docs" in page.README.read_text(encoding="utf-8")
    shown = page.PAGE.read_text(encoding="utf-8")
    assert "| failed | Debian 13 | 3.12.1 | few | yes | 9 | 1 | 1 | 60 | 2026-01-01 |" in shown
    assert "\n- macOS\n- missing: install the package mmdebstrap\n- not run: not run yet\n" in shown


def test_pages_and_doctor_say_what_the_table_says() -> None:
    rows, untried = page.read_rows(), described()["untried"]
    order = [line["name"] for line in described()["cells"]]
    good = [one for one in rows if page.is_good(one)]
    tried = page.make_tried(good, untried)
    assert json.loads(page.TRIED.read_text(encoding="utf-8")) == tried
    assert page.PAGE.read_text(encoding="utf-8") == page.make_page(rows, order, untried)
    assert page.README.read_text(encoding="utf-8") == page.make_readme(tried)


def test_a_classifier_names_a_python_that_was_tried_or_is_called_untried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    tried = json.loads(page.TRIED.read_text(encoding="utf-8"))
    minors = {".".join(version.split(".")[:2]) for version in tried["pythons"]}
    untried = {one.removeprefix("Python ") for one in tried["untried"] if "Python " in one}
    assert set(named) == minors | untried and not minors & untried
    oldest = min(minors, key=lambda version: tuple(map(int, version.split("."))))
    assert project["requires-python"] == f">={oldest}"


def test_cells_run_once_in_the_order_they_are_named() -> None:
    cells = [Cell(name) for name in ("root", "Debian 12", "Debian 13", "LANG=C")]
    chosen = choose_cells(cells, ["LANG=C", "Debian *", "Debian 12", "root"])
    assert [cell.name for cell in chosen] == ["LANG=C", "Debian 12", "Debian 13", "root"]


@pytest.mark.skipif(not systems.may_mount(), reason="mounts cannot be made here")
def test_a_system_that_was_begun_and_not_finished_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "programs/mmdebstrap"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    makes = 'for folder; do :; done; mkdir -p "$folder/usr/bin" && touch "$folder/usr/bin/python3"'
    for end in ("kill -9 $$", "echo E: no space >&2; exit 1"):
        program.write_text(f"#!/bin/sh\n{makes}\n{end}\n")
        program.chmod(0o755)
        with pytest.raises(NotHere, match=r"mmdebstrap: (it ended with|E: no space)"):
            systems.make_system("sid", tmp_path / "systems", "python3")
        assert not (tmp_path / "systems/sid").exists()
    program.write_text(f"#!/bin/sh\n{makes}\n")
    made = systems.make_system("sid", tmp_path / "systems", "python3")
    assert (made / "usr/bin/python3").exists() and list(made.parent.iterdir()) == [made]


def test_ci_runs_a_cell_that_there_is() -> None:
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    named = re.findall(r'--only "(.+)"', text)
    cells = {line["name"]: Cell(**line) for line in described()["cells"]}
    assert [(cells[name].python, cells[name].user) for name in named] == [("newest", "ordinary")]


def test_pythons_are_found_in_the_path_and_where_pyenv_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(place: str, said: str) -> Path:
        program = tmp_path / place
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{said}\n")
        program.chmod(0o755)
        return program

    make("shims/python3.13", "echo 3 13 99 /elsewhere/bin/python3.13")
    make("none/python3.14", "echo 'pyenv: python3.14: command not found' >&2; exit 127")
    make("pyenv/versions/3.12.1/bin/python3", "echo 3 12 1 /of pyenv/bin/python3")
    make("pyenv/versions/3.10.0/bin/python3", "echo 3 10 0 /of pyenv/bin/python3")
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:{tmp_path}/none")
    monkeypatch.setenv("PYENV_ROOT", f"{tmp_path}/pyenv")
    found = systems.find_pythons.__wrapped__()
    assert found[3, 13, 99] == "/elsewhere/bin/python3.13"
    assert found[3, 12, 1] == "/of pyenv/bin/python3"
    assert min(found) >= (3, 11)
