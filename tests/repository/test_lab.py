"""What `make` shows is short, and the rows of the laboratory name what is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source import ROOT

ROWS = tomllib.loads((ROOT / "lab.toml").read_text(encoding="utf-8"))
_PATH = re.compile(r"(?:benchmarks|docs|evals|examples|tests)/[\w./-]+")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_shows_itself_and_fourteen_targets_at_most() -> None:
    # The tests run below another `make`, which would have this one say where it works.
    help = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(
        help, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert 5 < len(shown) <= 15, shown


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_it_prints_and_names_files_that_are_there(name: str) -> None:
    row = ROWS[name]
    assert set(row) == {"prints", "run"} and row["prints"] and row["run"]
    named = [path for command in row["run"] for path in _PATH.findall(command)]
    assert [path for path in named if not (ROOT / path).exists()] == []
    modules = [
        found for command in row["run"] for found in re.findall(r"python -m ([a-z_.]+)", command)
    ]
    folders = ("evals", "tests", "")
    missing = [
        module
        for module in modules
        if not any(
            (ROOT / folder / module.replace(".", "/")).with_suffix("").exists()
            or (ROOT / folder / f"{module.replace('.', '/')}.py").exists()
            for folder in folders
        )
    ]
    assert missing == []


def run_lab(root: Path, *words: str, arguments: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / "benchmarks/lab.py"), *words],
        env={"PATH": "/usr/bin:/bin", "ARGS": arguments},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_row_is_run_to_its_first_failure_with_the_arguments_as_a_shell_reads_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/lab.py", tmp_path / "benchmarks")
    (tmp_path / "lab.toml").write_text(
        "[one]\nprints = 'x'\nrun = ['printf \"<%s>\" $ARGS', 'exit 3', 'echo never']\n"
    )
    ran = run_lab(tmp_path, "one", arguments="a 'b c'")
    assert (ran.returncode, ran.stdout) == (3, "<a><b c>")
    assert "one" in run_lab(tmp_path).stdout
    wrong = run_lab(tmp_path, "two")
    assert wrong.returncode == 2 and "no row `two`" in wrong.stderr


PROGRAMS = {
    path: "".join(re.findall(r"PYTHONPATH=([\w:]+)", command))
    for row in ROWS.values()
    for command in row["run"]
    for path in _PATH.findall(command)
    if path.endswith(".py") and not Path(path).name.startswith("test_")
}
"""The programs of the laboratory, with the folders that their rows have Python import from."""
_LOAD = """
import runpy, sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1]).parent))
runpy.run_path(sys.argv[1], run_name="loaded")
"""


@pytest.mark.parametrize(("program", "folders"), PROGRAMS.items())
def test_a_program_of_the_laboratory_can_be_loaded(program: str, folders: str) -> None:
    """A file that it needs may have moved; nobody runs most of them for weeks."""
    ran = subprocess.run(
        [sys.executable, "-c", _LOAD, program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
