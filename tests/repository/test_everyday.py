"""What `make test` leaves out is in a table, is little of each module, and is always counted."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from source import ROOT

from everyday import (
    LONGEST_SECONDS,
    TABLE,
    Limit,
    choose,
    name_function,
    put_longest_first,
    read_table,
    take_evenly,
)

LIMITED = read_table()


def list_tests(module: str) -> set[str]:
    """The functions of tests of a module, and its classes: a class can inherit what it tests."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    return {name for name in names if name.lower().startswith("test")}


MODULES = sorted({function.partition("::")[0] for function in LIMITED})


@pytest.mark.parametrize("module", MODULES)
def test_the_table_names_tests_that_there_are_and_leaves_each_module_some(module: str) -> None:
    assert (ROOT / module).is_file(), f"{module} is gone: take it out of {TABLE.name}"
    named = {
        function.partition("::")[2]: limit
        for function, limit in LIMITED.items()
        if function.startswith(f"{module}::")
    }
    tests = list_tests(module)
    assert {name.partition("::")[0] for name in named} - tests == set(), (
        f"gone: take them out of {TABLE.name}"
    )
    runs = any(limit.rows for limit in named.values()) or tests - set(named)
    quickest = min(limit.seconds for limit in named.values())
    assert runs or quickest >= LONGEST_SECONDS, "it has no test that runs every day"


@pytest.mark.parametrize("count", [1, 2, 3, 10, 965])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 2000])
def test_rows_are_taken_from_the_first_to_the_last(count: int, most: int) -> None:
    taken = take_evenly(count, most)
    assert len(taken) == min(count, most)
    assert taken <= set(range(count))
    if most:
        assert 0 in taken
    if most > 1:
        assert count - 1 in taken


def test_what_the_table_does_not_name_runs_whole() -> None:
    ids = [f"tests/a.py::test_a[{row}]" for row in range(5)]
    ids += ["tests/a.py::test_b", "tests/b.py::TestC::test_c[x]", "tests/b.py::TestC::test_c[y]"]
    assert choose(ids, {}) == set(ids)
    table = {
        "tests/a.py::test_a": Limit(2, 5, 1.0),
        "tests/a.py::test_b": Limit(0, 1, 1.0),
        "tests/b.py::TestC::test_c": Limit(1, 2, 1.0),
    }
    assert choose(ids, table) == {ids[0], ids[4], "tests/b.py::TestC::test_c[x]"}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 24])
@pytest.mark.parametrize("long", [0, 1, 5])
def test_each_worker_starts_with_its_share_of_the_longest(
    workers: int, count: int, long: int
) -> None:
    ids = [f"t{number}" for number in range(count)]
    seconds = {name: float(number) for number, name in enumerate(ids[::-1][:long])}
    ordered = put_longest_first(ids, seconds, workers)
    assert sorted(ordered) == sorted(ids)
    if count == 24:
        parts = [ordered[at : at + 24 // workers] for at in range(0, 24, 24 // workers)]
        for number, part in enumerate(parts):
            first = sorted(seconds, key=seconds.__getitem__, reverse=True)[number::workers]
            assert part[: len(first)] == first
            assert part[len(first) :] == [name for name in ids if name in part[len(first) :]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the plugin, a table and one module of tests."""
    for name in ("everyday.py",):
        (tmp_path / name).write_text((ROOT / "tests" / name).read_text("utf-8"), "utf-8")
    (tmp_path / "everyday.toml").write_text(
        '["test_it.py"]\n'
        "test_slow = {rows = 0, of = 1, seconds = 9}\n"
        "test_rows = {rows = 2, of = 9, seconds = 3}\n"
    )
    (tmp_path / "conftest.py").write_text(
        "import sys; from pathlib import Path\n"
        "sys.path.insert(0, str(Path(__file__).parent))\n"
        "from everyday import EverydayRun, LongestFirst, ProcessorTimes\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(EverydayRun())\n"
        "    config.pluginmanager.register(ProcessorTimes(Path('times')))\n"
        "    config.pluginmanager.register(LongestFirst(1))\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_slow(): assert False\n"
        "def test_quick(): pass\n"
        "@pytest.mark.parametrize('row', range(9))\n"
        "def test_rows(row): assert row in (0, 8)\n"
    )
    return tmp_path


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "workers"])
def test_what_was_left_out_is_counted_and_the_rest_is_measured(
    project: Path, workers: list[str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *workers],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "3 passed" in ended.stdout
    assert "\n8 slow tests left out" in ended.stdout and "FERRULE_TEST_ALL=1" in ended.stdout
    assert "\nof them in test_it.py 8\n" in ended.stdout
    if not workers:
        ran = [line.split()[0] for line in ended.stdout.splitlines() if " PASSED " in line]
        assert [name_function(one) for one in ran] == [
            "test_it.py::test_rows",
            "test_it.py::test_rows",
            "test_it.py::test_quick",
        ]
    measured: dict[str, float] = {}
    for file in (project / "times").iterdir():
        measured |= json.loads(file.read_text())
    assert set(measured) == {
        "test_it.py::test_quick",
        "test_it.py::test_rows[0]",
        "test_it.py::test_rows[8]",
    }


def test_ci_runs_all_tests_and_a_file_alone_runs_whole() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "$(if $(filter 1,$(FERRULE_TEST_ALL)),,--everyday)" in makefile
    assert "FERRULE_TEST_ALL=1 .ci/beside" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "--everyday" not in project


@pytest.mark.parametrize(("types", "tests", "status"), [(0, 0, 0), (2, 0, 1), (0, 2, 2), (2, 2, 1)])
def test_types_run_beside_the_tests_and_either_can_fail_the_whole(
    tmp_path: Path, types: int, tests: int, status: int
) -> None:
    make = tmp_path / "make"
    make.write_text(
        f'#!/bin/sh\necho "$@"\n[ "$1" = types ] && exit {types}\n[ "$*" = "unit JOBS=3" ] && exit {tests}\n'
    )
    make.chmod(0o755)
    ended = subprocess.run(
        [ROOT / ".ci/beside", "JOBS=3"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == status
    assert "unit JOBS=3\n" in ended.stdout
    assert ("types" in ended.stderr) == bool(types)
