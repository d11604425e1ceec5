"""What a real program did with an option is judged to do more than its name says: programs are
asked, not manuals.

A sample in every run; `FERRULE_TEST_ATTACKS=all` (`make lab NAME=options-oracle`) tries every spelling of
every program here.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from confined import Confined
from option_effects import DRIVER, OPERANDS, Case, cases, scripts

from ferrule.permissions.command_analysis.hazards import find_hazards
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy

ALL = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
SAMPLE = 150
PARTS = 12 if ALL else 1
"""Tests that the cases are spread over, so that none of them takes many minutes."""
PYTHON = os.path.realpath(sys.executable)
WORK = "/tmp/work"
"""In the sandbox, whose `/tmp` is its own. Each case gets a repository in it: in the workspace
commands can make none under another name.
"""
HERE = [program for program in OPERANDS if shutil.which(program.split()[0])]

pytestmark = pytest.mark.skipif(
    not probe().user_namespaces,
    reason="no user namespaces: programs are not tried without a sandbox",
)


@pytest.fixture(scope="module")
def options_folder() -> Iterator[tuple[Path, Confined]]:
    """A folder with what programs are tried on, and a sandbox that holds them in it."""
    made = Path(tempfile.mkdtemp(prefix="ferrule-options-", dir=Path.home())).resolve()
    template = made / "template"
    template.mkdir()
    (template / "a").write_text("x one\nx two\n")
    (template / "b").write_text("x one\nx three\n")
    (template / "a.json").write_text('{"x": 1}\n')
    (template / "Makefile").write_text("all:\n\t@true\n")
    (template / "canary").write_text("#!/bin/sh\n: > ran\ncat\n")
    (template / "canary").chmod(0o755)
    (made / "driver.py").write_text(DRIVER)
    confined = Confined(SandboxPolicy(made))
    names = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org"}
    names |= {"GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.org"}
    names |= {"GIT_DIR": str(template / "store"), "GIT_WORK_TREE": str(template)}
    for words in (["init", "-q", "-b", "main"], ["add", "a", "b"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=template, env={**os.environ, **names}, check=True)
    yield made, confined
    confined.close()
    shutil.rmtree(made)


def chosen() -> list[Case]:
    """All cases of the programs that are here, or a sample that is the same in every run."""
    every = [case for program in HERE for case in dict.fromkeys(cases(program))]
    if ALL:
        return every
    rows = random.Random(7).sample(every, SAMPLE)
    return sorted(rows)


def did_something(
    options_folder: tuple[Path, Confined], rows: list[Case]
) -> list[tuple[Case, str, list[str]]]:
    """Those that left or changed a file or ran the canary."""
    made, confined = options_folder
    (made / "cases.json").write_text(json.dumps([row.words for row in rows]))
    words = (
        PYTHON,
        made / "driver.py",
        made / "template",
        WORK,
        made / "cases.json",
        made / "answer",
    )
    ended, shown = confined.run(" ".join(str(word) for word in words), timeout=170)
    assert ended.exit_code == 0, shown.decode(errors="replace")
    return [
        (rows[number], kind, names)
        for number, kind, names in json.loads((made / "answer").read_text())
    ]


def check(options_folder: tuple[Path, Confined], rows: list[Case]) -> None:
    effects: list[tuple[Case, str, list[str]]] = []
    for start in range(0, len(rows), 2000):
        effects += did_something(options_folder, rows[start : start + 2000])
    missed = [
        f"{case.words}: {kind} {names}"
        for case, kind, names in effects
        if not find_hazards(case.words)
    ]
    print(f"{len(rows)} argument lists: {len(effects)} did something, {len(missed)} unseen")
    assert not missed, "\n".join(missed)
    assert effects


@pytest.mark.parametrize("part", range(PARTS))
def test_what_a_real_program_did_is_judged_to_do_more(
    options_folder: tuple[Path, Confined], part: int
) -> None:
    check(options_folder, chosen()[part::PARTS])


def test_scripts_of_sed_and_awk_that_did_something_are_judged_to(
    options_folder: tuple[Path, Confined],
) -> None:
    rows = list(dict.fromkeys(scripts(5, 20_000 if ALL else 200)))
    check(options_folder, rows)
    plain = [row for row in rows if not find_hazards(row.words)]
    assert len(plain) > len(rows) // 20
