"""Modules imported in `with lazy_imports():` run when something of them is used, once."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ferrule.runtime import lazy_imports as lazy_importing
from ferrule.runtime.lazy_imports import lazy_imports

COUNTED = """
import {package}
{package}.RUNS.append(__name__)
VALUE = 7
def answer(): return VALUE
"""
SLOW = """
import time
time.sleep(0.2)
LATE = 8
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "lazily_imported"
    folder = tmp_path / name
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("RUNS = []\n")
    for path in ("counted.py", "inner/__init__.py", "inner/deep.py"):
        (folder / path).write_text(COUNTED.format(package=name))
    with (folder / "inner/__init__.py").open("a") as file:
        file.write("from .deep import answer\n")
    (folder / "inner/deep.py").write_text(
        f"from {name}.inner import VALUE\n" + COUNTED.format(package=name)
    )
    (folder / "slow.py").write_text(SLOW)
    (folder / "broken.py").write_text("import no_such_library\n")
    (folder / "user.py").write_text(
        "from ferrule.runtime.lazy_imports import lazy_imports\n"
        "with lazy_imports():\n"
        f"    from {name} import broken, counted, slow\n"
        f"    from {name}.inner import deep\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for loaded in [one for one in sys.modules if one.split(".")[0] == name]:
        del sys.modules[loaded]


def load_user(package: str) -> tuple[ModuleType, list[str]]:
    """Return the module with the block, and the list of the modules that have run."""
    user = importlib.import_module(f"{package}.user")
    return user, sys.modules[package].RUNS


def test_nothing_runs_before_it_is_used_and_then_once(package: str) -> None:
    user, runs = load_user(package)
    assert runs == []
    assert user.counted.answer() == 7
    assert user.counted.VALUE == 7
    assert runs == [f"{package}.counted"]
    assert type(user.counted) is ModuleType


def test_a_package_runs_before_its_module_which_it_may_import(package: str) -> None:
    user, runs = load_user(package)
    assert user.deep.answer() == 7
    assert runs == [f"{package}.inner", f"{package}.inner.deep"]


def test_an_ordinary_import_of_the_same_module_gives_its_names(package: str) -> None:
    user, _ = load_user(package)
    assert importlib.import_module(f"{package}.counted") is user.counted
    namespace: dict[str, object] = {}
    exec(f"from {package}.counted import VALUE", namespace)
    assert namespace["VALUE"] == 7


def test_an_assignment_before_the_first_use_is_not_lost(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, _ = load_user(package)
    monkeypatch.setattr(user.counted, "VALUE", 9)
    assert user.counted.answer() == 9


def test_a_module_that_cannot_be_loaded_says_so_at_each_use(package: str) -> None:
    user, _ = load_user(package)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            _ = user.broken.anything


def test_a_name_that_is_not_a_module_is_refused_in_the_block(package: str) -> None:
    code = f"with lazy_imports():\n    from {package}.counted import VALUE\n"
    with pytest.raises(ImportError, match="VALUE"):
        exec(code, {"lazy_imports": lazy_imports})


def test_a_missing_attribute_is_an_attribute_error(package: str) -> None:
    user, _ = load_user(package)
    with pytest.raises(AttributeError, match="nothing"):
        _ = user.counted.nothing


def test_threads_that_meet_at_the_first_use_all_get_the_whole_module(package: str) -> None:
    user, _ = load_user(package)
    barrier = threading.Barrier(4)
    found: list[int] = []

    def use() -> None:
        barrier.wait()
        found.append(user.slow.LATE)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [8] * 4


def test_threads_that_would_wait_for_each_other_both_go_on(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One runs a package that imports its module, the other imports the module."""
    monkeypatch.setattr(lazy_importing, "WAIT_SECONDS", 0.5)
    load_user(package)
    folder = Path(sys.modules[package].__path__[0])
    has_begun = threading.Event()
    sys.modules[package].HAS_BEGUN = has_begun  # type: ignore[attr-defined]
    (folder / "inner/__init__.py").write_text(
        f"import time, {package}\n{package}.HAS_BEGUN.set()\ntime.sleep(0.2)\n"
        "from .other import LATE\n"
    )
    (folder / "inner/deep.py").write_text("")
    (folder / "inner/other.py").write_text("LATE = 8\n")
    found: list[int] = []
    first = threading.Thread(target=lambda: found.append(sys.modules[f"{package}.inner"].LATE))
    first.start()
    assert has_begun.wait(10)
    found.append(importlib.import_module(f"{package}.inner.other").LATE)
    first.join(10)
    assert found == [8, 8]


def test_imports_after_the_block_run_at_once(package: str) -> None:
    _, runs = load_user(package)
    importlib.import_module(f"{package}.inner.deep")
    assert runs == []  # it is in the block
    (Path(sys.modules[package].__path__[0]) / "plain.py").write_text(
        COUNTED.format(package=package)
    )
    importlib.invalidate_caches()
    importlib.import_module(f"{package}.plain")
    assert runs == [f"{package}.plain"]


def test_a_package_of_a_block_runs_before_another_module_of_it_that_is_imported_at_once(
    package: str,
) -> None:
    user, runs = load_user(package)
    (Path(sys.modules[package].__path__[0]) / "inner/other.py").write_text(
        COUNTED.format(package=package)
    )
    importlib.import_module(f"{package}.inner.other")
    assert runs == [f"{package}.inner", f"{package}.inner.deep", f"{package}.inner.other"]
    assert user.deep.VALUE == 7
