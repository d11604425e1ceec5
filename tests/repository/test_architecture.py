"""The page about the architecture: its drawing is made from the imports, its walks from executions."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source import PACKAGE, ROOT, modules

sys.path.insert(0, str(ROOT / "docs"))

import make_architecture
import make_walks
from make_architecture import Graph
from make_walks import Entry

NAMES = [f"p{number}" for number in range(8)]
GRAPHS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=30).map(
    lambda pairs: {
        name: frozenset(NAMES[low] for high, low in pairs if high == at and low < high)
        for at, name in enumerate(NAMES)
    }
)
"""Packages that import others with smaller numbers, so that there is no cycle."""

STEPS = [Entry("a.py", "A.begin"), Entry("b.py", "ask", goes_on=True), Entry("a.py", "A.begin")]


def reachable(graph: Graph) -> set[tuple[str, str]]:
    """All pairs of a package and another one that it imports, itself or through others."""
    pairs: set[tuple[str, str]] = set()
    for name in graph:
        todo = [*graph[name]]
        while todo:
            target = todo.pop()
            if (name, target) not in pairs:
                pairs.add((name, target))
                todo += graph[target]
    return pairs


@pytest.mark.proves("documents.made-pages-are-fresh")
def test_the_drawing_is_that_of_the_imports_of_today() -> None:
    drawn = make_architecture.PICTURE.read_text(encoding="utf-8")
    assert drawn == make_architecture.draw_packages(), "run `make docs`"
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"testing"}
    assert folders == set(re.findall(r'class="name"[^>]*>(\w+)<', drawn))


@given(GRAPHS)
def test_no_arrow_is_drawn_that_follows_from_others_and_none_else_is_left_out(graph: Graph) -> None:
    reduced = make_architecture.reduce(graph)
    assert reachable(reduced) == reachable(graph)
    for name, targets in reduced.items():
        for target in targets:
            without = {**reduced, name: targets - {target}}
            assert (name, target) not in reachable(without)


@given(GRAPHS)
def test_every_package_stands_above_all_that_it_imports(graph: Graph) -> None:
    rows = make_architecture.arrange(graph)
    height = {name: -at for at, row in enumerate(rows) for name in row}
    assert sorted(height) == sorted(graph)
    assert all(height[name] > height[target] for name in graph for target in graph[name])


def test_late_and_relative_imports_count_and_files_of_the_root_do_not(tmp_path: Path) -> None:
    texts = {
        "__init__.py": "from .top import door",
        "version.py": "from ferrule import top",
        "low/__init__.py": "",
        "middle/__init__.py": "",
        "middle/deep/__init__.py": "from ...low import one",
        "middle/deep/late.py": "def load():\n    from ferrule.side import two",
        "side/__init__.py": "import json",
        "top/__init__.py": "",
        "top/typed.py": "if TYPE_CHECKING:\n    from ferrule.middle.deep import late",
        "testing/__init__.py": "import ferrule.low",
    }
    for name, text in texts.items():
        path = tmp_path / "ferrule" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = modules(tmp_path / "ferrule")
    assert make_architecture.read_imports(found) == {
        "low": frozenset(),
        "middle": {"low", "side"},
        "side": frozenset(),
        "top": {"middle"},
    }
    assert make_architecture.list_parts(found) == {"middle": ["deep"]}


@pytest.mark.proves("documents.made-pages-are-fresh")
def test_every_walk_is_as_it_is_executed_today() -> None:
    def without_counts(text: str) -> str:
        # How many functions are entered may differ between versions of Python and libraries.
        return re.sub(r"\d+ functions in \d+ files", "functions", text)

    page = make_walks.PAGE.read_text(encoding="utf-8")
    assert without_counts(page) == without_counts(make_walks.format_page()), "run `make docs`"
    assert len(re.findall(r"\d+ functions in \d+ files", page)) == 6


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(STEPS[:2], id="a step that is gone"),
        pytest.param([STEPS[1], STEPS[0], STEPS[0]], id="another order"),
        pytest.param([STEPS[0], STEPS[1]._replace(goes_on=False), STEPS[0]], id="entered anew"),
        pytest.param([STEPS[0], STEPS[1], Entry("c.py", "A.begin")], id="another file"),
    ],
)
def test_a_walk_whose_steps_do_not_occur_in_their_order_is_an_error(record: list[Entry]) -> None:
    make_walks.check_steps(STEPS, [Entry("x.py", "other"), *STEPS, Entry("x.py", "more")])
    with pytest.raises(LookupError, match="after the step before it"):
        make_walks.check_steps(STEPS, record)


def test_a_step_without_a_docstring_is_an_error() -> None:
    assert make_walks.summarise(Entry("engine/agent.py", "Agent.run")).startswith("Work one")
    with pytest.raises(LookupError, match="no docstring"):
        make_walks.summarise(Entry("engine/agent.py", "Agent._build_session"))


PATHS = re.compile(r"`([\w.]+/[\w./]+|\w+\.py)`")
NO_PATHS = {"tools/call"}
"""Methods of protocols, which look like paths."""


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_a_guide_names_exist(name: str) -> None:
    named = set(PATHS.findall((ROOT / name).read_text(encoding="utf-8"))) - NO_PATHS
    there = {
        path
        for path in named
        if "NAME" in path or (ROOT / path).exists() or (PACKAGE / path).exists()
    }
    assert len(named) > 5
    assert named - there == set()
