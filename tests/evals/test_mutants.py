"""Breaking code on purpose: what is broken is still a program, and a proof that proves nothing is
told from one that does.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from mutants.__main__ import Campaign, read_equivalent
from mutants.executed import Executed, Functions
from mutants.operators import Breakage, find_body_lines, find_breakages, find_uses
from mutants.promises import read_proofs
from mutants.sample import Module, Sample
from mutants.worker import Worker

PACKAGE = Path(__file__).parents[2] / "src" / "ferrule"

EXAMPLE = '''
"""A module."""
from __future__ import annotations

LIMIT: int = 10
NAMES = ("a", "b")
__all__ = ["LIMIT"]


def count(words: list[str], most: int = LIMIT) -> int:
    """Count."""
    seen = {"total": 0}
    for word in words:
        if word in NAMES and len(word) < most:
            seen["total"] += 1
            print(word)
    if not words:
        raise ValueError("there is nothing to count")
    return seen["total"]


async def each(words):
    note(1)
    for word in words:
        yield word
'''


def test_each_kind_of_breakage_is_found_where_it_stands() -> None:
    found = [f"{one.line} {one.operator}: {one.shown}" for one in find_breakages(EXAMPLE.encode())]
    assert found == [
        "5 change number: 10 -> 11",
        "6 drop element: ('a', 'b') -> ('a',)".replace("'", '"').replace('("a",)', "('a',)"),
        '6 drop element: ("a", "b") -> (\'b\',)',
        '12 return early: return before seen = {"total": 0}',
        "12 change text: \"total\" -> 'total~'",
        "12 change number: 0 -> 1",
        (
            "14 negate condition: word in NAMES and len(word) < most -> (not (word in NAMES and "
            "len(word) < most))"
        ),
        "14 swap and/or: word in NAMES and len(word) < most -> (word in NAMES or len(word) < most)",
        "14 swap comparison: word in NAMES -> (word not in NAMES)",
        "14 swap comparison: len(word) < most -> (len(word) >= most)",
        "15 change text: \"total\" -> 'total~'",
        "15 change number: 1 -> 2",
        "16 drop call: print(word) -> pass",
        "17 negate condition: not words -> (not not words)",
        '18 drop raise: raise ValueError("there is nothing to count") -> pass',
        '19 return None: return seen["total"] -> return',
        "19 change text: \"total\" -> 'total~'",
        "23 drop call: note(1) -> pass",
        "23 return early: return before note(1)",
        "23 change number: 1 -> 2",
    ]
    assert find_uses(EXAMPLE.encode())["NAMES"] == {14}, (
        "a constant is broken on the lines that read it"
    )
    assert {12, 19, 23} <= find_body_lines(EXAMPLE.encode()) and 5 not in find_body_lines(
        EXAMPLE.encode()
    )


def test_what_is_empty_is_not_replaced_by_none_which_says_the_same() -> None:
    source = b"def is_odd(one):\n    if one:\n        return False\n    return 0\n"
    found = [one.shown for one in find_breakages(source) if one.line > 2]
    assert found == ["False -> True", "return 0 -> return", "0 -> 1"]
    for empty in ("''", "[]", "()", "{}", "b''", "None"):
        assert find_breakages(f"def find(one):\n    return {empty}\n".encode()) == []
    for full in ("0.0", "[0]", "(one,)", "{one: one}", "{*one}"):
        found = find_breakages(f"def find(one):\n    return {full}\n".encode())
        assert found[0].shown == f"return {full} -> return"


def test_the_arguments_of_a_type_are_no_table() -> None:
    source = b"class Kept:\n    seen: dict[str, int] = field(default_factory=dict[str, int])\n"
    assert find_breakages(source) == []


def test_what_is_broken_is_another_program() -> None:
    chance = random.Random(0)
    for path in chance.sample(sorted(PACKAGE.rglob("*.py")), 12):
        source = path.read_bytes()
        breakages = find_breakages(source)
        for one in chance.sample(breakages, min(5, len(breakages))):
            broken = one.apply(source)
            assert broken != source
            compile(broken, str(path), "exec")


def test_a_draw_is_the_same_for_a_seed_and_keeps_to_what_few_promises_execute(
    tmp_path: Path,
) -> None:
    (tmp_path / "act.py").write_text("def act():\n    first(1)\n    second(2)\n    third(3)\n")
    executed = {f"p{number}": {"act.py": [2, 3]} for number in range(9)} | {
        "own": {"act.py": [2, 3, 4]}
    }
    draws = [Sample(tmp_path, executed, seed=7).draw("own", 3) for _ in range(2)]
    assert draws[0] == draws[1]
    assert {trial.breakage.line for trial in draws[0]} == {4}, "the other lines are everybody's"
    assert Sample(tmp_path, executed, seed=7).draw("p1") == []


TWO = """
class Door:
    @property
    def is_open(self):
        return self._open

    @is_open.setter
    def is_open(self, value):
        def check():
            return value

        self._open = check()


def shut(door):
    door.is_open = False
"""


def test_lines_are_kept_by_function_and_found_again_where_it_has_moved() -> None:
    functions = Functions(TWO.encode())
    packed = functions.pack([2, 5, 10, 12, 16])
    assert packed == {
        "Door.is_open": 0b10,
        "Door.is_open#2": 0b10000,
        "Door.is_open.check": 0b10,
        "shut": 0b10,
    }
    moved = Functions(f"{TWO[:1]}import os\n\n{TWO[1:]}".encode())
    found = [line for name, bits in packed.items() for line in moved.unpack(name, bits)]
    assert found == [7, 12, 14, 18]
    assert moved.digest("shut") == functions.digest("shut")
    assert functions.digest("gone") == ""


def record(executed: Executed, file: str, **tests: tuple[float, list[int]]) -> None:
    found = [
        {
            "name": f"{file}::{name}",
            "promises": ["door.shut"],
            "outcome": "passed",
            "seconds": seconds,
            "lines": {"door.py": lines},
        }
        for name, (seconds, lines) in tests.items()
    ]
    executed.add(file, "digest", found)


def test_a_survivor_is_put_to_tests_that_execute_its_line_the_most_specific_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "door.py").write_text(TWO)
    executed = Executed(tmp_path, tmp_path / "kept.jsonl")
    record(
        executed,
        "tests/test_door.py",
        wide=(0.1, [5, 12, 16]),
        slow=(3.0, [16]),
        quick=(0.5, [16]),
        other=(0.1, [5]),
        **{f"rows[{row}]": (0.6, [16]) for row in range(32)},
        **{"rows[32]": (0.7, [10, 16])},
    )
    for known in (executed, Executed.read(tmp_path, tmp_path / "kept.jsonl")):
        found = [test.name.partition("::")[2] for test in known.find_tests("door.py", [10, 16])]
        rows = [f"rows[{row}]" for row in range(30)]
        assert found == ["quick", *rows, "slow", "rows[32]", "wide"], (
            "of equal rows thirty are enough"
        )
        assert [test.name[-6:] for test in known.find_tests("door.py", [10])] == ["ws[32]"]
        assert known.files["tests/test_door.py"][0] == "digest"


def test_lines_of_a_function_that_has_changed_are_not_drawn_from(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(TWO)
    record(
        Executed(tmp_path, tmp_path / "kept.jsonl"), "tests/test_door.py", one=(1.0, [5, 12, 16])
    )
    (tmp_path / "door.py").write_text("\n" + TWO.replace("= False", "= None"))
    executed = Executed.read(tmp_path, tmp_path / "kept.jsonl")
    (tests,) = executed.by_promise().values()
    assert executed.find_lines(tests) == {"door.py": [6, 13]}
    assert list(executed.find_tests("door.py", [17])) == tests


def test_a_breakage_is_found_again_by_its_function_where_lines_have_moved(tmp_path: Path) -> None:
    (tmp_path / "act.py").write_text("LIMIT = 3\n\ndef act():\n    first(1)\n    return LIMIT, 1\n")
    sample = Sample(tmp_path, {"p": {"act.py": [4, 5]}}, seed=7)
    drawn = sample.draw("p", 2)
    source = (tmp_path / "act.py").read_text()
    (tmp_path / "act.py").write_text(f"import os\n\n{source}")
    later = Sample(tmp_path, {}, seed=7)
    for trial in drawn:
        again = later.find("p", trial.place)
        assert again is not None
        assert again.breakage.line == trial.breakage.line + 2
        assert again.breakage.line in later.find_lines(again)
    (tmp_path / "act.py").write_text("")
    assert Sample(tmp_path, {}, seed=7).find("p", drawn[0].place) is None
    ones = [place for place in Module.read(tmp_path, "act.py").places if place.change == "1 -> 2"]
    assert ones == []


TOY = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\nmarkers = ["proves(*ids): promises"]\n',
    "src/toy/__init__.py": "LIMIT = 3\n\ndef cut(words):\n    return words[:LIMIT]\n",
    "tests/test_toy.py": """
import os, signal, subprocess, sys
from pathlib import Path
import pytest
from toy import cut

@pytest.mark.proves("toy.strong")
def test_three():
    assert cut([1, 2, 3, 4]) == [1, 2, 3]

@pytest.mark.proves("toy.child")
def test_three_in_a_process_without_our_environment():
    program = "import sys; sys.path.insert(0, sys.argv[1]); from toy import cut; print(len(cut('abcdef')))"
    source = Path(__file__).parents[1] / "src"
    ran = subprocess.run([sys.executable, "-c", program, source], env={}, capture_output=True, check=True)
    assert ran.stdout == b"3\\n"

@pytest.mark.proves("toy.weak")
def test_something():
    assert cut([1, 2, 3, 4])

@pytest.mark.proves("toy.red")
def test_that_fails():
    assert cut([1, 2]) == [2, 1]

def test_that_is_skipped():
    pytest.skip("not here")

@pytest.mark.proves("toy.slow")
def test_that_waits():
    signal.pause()

@pytest.mark.proves("toy.harmful")
def test_that_writes_and_kills():
    with pytest.raises(OSError):
        (Path.home() / "ferrule-was-here").write_text("x")
    (Path(__file__).parent / "written").write_text("x")
    os.kill(-1, signal.SIGTERM)
""",
}


TOY_TESTS = (
    "test_three",
    "test_three_in_a_process_without_our_environment",
    "test_that_fails",
    "test_that_is_skipped",
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("toy")
    for name, text in TOY.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def worker(toy: Path) -> Iterator[Worker]:
    if Path(__file__).resolve().is_relative_to("/tmp"):
        pytest.skip("this checkout lies in /tmp, which a worker does not see")
    possible = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    try:
        subprocess.run(possible, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces can be made here")
    worker = Worker(toy, "src/toy")
    yield worker
    worker.close()


def test_a_proof_that_proves_is_told_from_one_that_does_not(toy: Path, worker: Worker) -> None:
    path = toy / "src/toy/__init__.py"
    source = path.read_bytes()
    (limit,) = [one for one in find_breakages(source) if one.name == "LIMIT"]
    proofs = read_proofs(toy / "tests")

    def outcome(promise: str, breakage: Breakage | None, seconds: float = 20) -> str:
        task = {"promise": promise, "files": proofs[promise], "seconds": seconds}
        if breakage is not None:
            task |= {"module": "src/toy/__init__.py", "source": breakage.apply(source).decode()}
        return worker.put(**task)["outcome"]

    assert [outcome(name, None) for name in ("toy.strong", "toy.weak", "toy.child")] == [
        "passed"
    ] * 3
    assert outcome("toy.strong", limit) == "failed"
    assert outcome("toy.child", limit) == "failed", (
        "processes without our environment see the breakage"
    )
    assert outcome("toy.weak", limit) == "passed"
    assert outcome("toy.strong", None) == "passed", "it is whole again"
    assert outcome("toy.slow", None, 0.5) == "timeout"
    assert path.read_bytes() == source


def test_tests_of_broken_code_harm_nothing_outside(toy: Path, worker: Worker) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        worker.put(promise="toy.harmful", files=["tests/test_toy.py"], seconds=20)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert not (Path.home() / "ferrule-was-here").exists()
    assert not (toy / "tests/written").exists()


def test_the_lines_of_each_test_are_recorded_also_those_of_its_processes(worker: Worker) -> None:
    task = {"promise": "", "files": ["tests/test_toy.py"], "seconds": 60}
    names = [f"tests/test_toy.py::{name}" for name in TOY_TESTS]
    for lines, child in (("all", [4]), ("own", [])):
        recorded = worker.put(lines=lines, names=names, **task)["tests"]
        assert [test["name"] for test in recorded] == names
        assert [test["outcome"] for test in recorded] == ["passed", "passed", "failed", "skipped"]
        assert [test["promises"] for test in recorded] == [
            ["toy.strong"],
            ["toy.child"],
            ["toy.red"],
            [],
        ]
        executed = [test["lines"].get("__init__.py", []) for test in recorded]
        assert executed[0] == [4]
        assert [line for line in executed[1] if line == 4] == child
        assert executed[2:] == [[4], []]


@pytest.mark.parametrize(("unbroken", "outcome"), [("passed", "timeout"), ("timeout", "untried")])
def test_to_be_slow_is_to_notice_only_where_the_tests_are_quick_without_the_breakage(
    unbroken: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "act.py").write_text("def act():\n    return first(1)\n")
    sample = Sample(tmp_path, {"p": {"act.py": [2]}}, seed=7)
    (trial,) = sample.draw("p")
    campaign = object.__new__(Campaign)
    kept: list[dict[str, Any]] = []
    parts = {
        "_equivalent": {},
        "_done": {},
        "_proofs": {"p": []},
        "_keep": lambda _, result: kept.append(result),
        "_put": lambda _, broken, *more, **options: {"outcome": "timeout" if broken else unbroken},
    }
    for name, part in parts.items():
        monkeypatch.setattr(campaign, name, part, raising=False)
    result = campaign._try(None, trial)  # type: ignore[arg-type]
    assert result["outcome"] == outcome and kept == [{"outcome": outcome}]


def test_a_change_that_changes_nothing_is_one_that_the_code_has(tmp_path: Path) -> None:
    assert read_equivalent()
    entry = (
        "- {module: engine/result_bounds.py, function: FUNCTION, operator: change number, "
        "change: 1 -> 2, reason: none}\n"
    )
    file = tmp_path / "equivalent.yaml"
    file.write_text(entry.replace("FUNCTION", "_size"))
    assert list(read_equivalent(file).values()) == ["none"]
    file.write_text(entry.replace("FUNCTION", "no_such"))
    with pytest.raises(click.ClickException, match=r"no such change: engine/result_bounds\.py no_"):
        read_equivalent(file)
