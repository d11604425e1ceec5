"""What a reader must still find in real outputs of test runners, compilers and installers.

The outputs in `outputs/` were written by the real programs; paths of the machine are replaced.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.toolkits.commands.equal_diagnostics import merge_equal
from ferrule.toolkits.commands.output_folding import cut_to_lines, fold_output
from ferrule.toolkits.commands.output_reduction import reduce_output
from ferrule.tools.context import Context
from unheld import share_unheld

OUTPUTS = Path(__file__).parent / "outputs"

CASES: dict[str, tuple[float, dict[str, int]]] = {
    # name: at most this part of it is left; each pattern fits that often, and all of it stays
    "pytest_verbose": (
        0.2,
        {
            r"^E .*": 871,
            r"^\S+:\d+: [A-Z]\w+$": 331,
            r"^=+ (330 failed, 90 passed, 1 skipped, .*) =+$": 1,
            r"test_price\[\d+\](?= FAILED)": 330,
        },
    ),
    "pytest_short": (
        0.7,
        {r"^E .*": 166, r"^\S+:\d+: in \w+": 60, r"^\d+ failed, .* in .*": 1},
    ),
    "pytest_collection": (1, {r"^E .*": 1, r"^ERROR .*": 1}),
    "unittest": (
        0.3,
        {r"^(?:FAIL|ERROR): .*": 9, r"^\w+Error: .*": 9, r'^  File ".*': 9, r"^(Ran|FAILED) .*": 2},
    ),
    "jest": (
        0.4,
        {r"● .*": 18, r"(Expected|Received): \d+": 34, r"at Object\.toBe .*": 17, r"^Tests: .*": 1},
    ),
    "vitest": (
        0.4,
        {r"^ FAIL .*": 18, r"^\w+Error: .*": 18, r"❯ vt.*:\d+:\d+": 18, r"^ +Tests .*": 1},
    ),
    "go_test": (0.3, {r"cart_test\.go:3: .*": 11, r"--- FAIL: .*": 13, r"^panic: .*": 1, r"^FAIL.*": 2}),
    "cargo_test": (
        0.6,
        {r"^---- .* ----": 9, r"panicked at .*": 9, r"(left|right): .*": 18, r"test result: .*": 1},
    ),
    "cargo_build": (1, {r"^error.*": 3, r"--> .*": 2, r"expected .*": 2}),
    "ruff": (0.4, {r"^[A-Z]+\d+ .*": 251, r"--> .*": 251, r"^Found \d+ errors\.": 1}),
    "mypy": (0.1, {r".*: error: .*": 123, r"^Found .*": 1}),
    "pyright": (0.15, {r".* - error: .*": 123, r"^\d+ errors, .*": 1}),
    "tsc_pretty": (0.35, {r"\S+:\d+:\d+ - error TS\d+: .*": 80, r"^Found 80 errors": 1}),
    "gcc": (0.6, {r"^\S+:\d+:\d+: (?:error|warning): .*": 60}),
    "gxx": (0.7, {r"^\S+:\d+:\d+: (?:error|warning): .*": 26, r"^\S+:\d+:\d+: note: .*": 1}),
    "make": (0.4, {r"^\S+:\d+:\d+: error: .*": 15, r"^make: \*\*\* .*": 1, r"^cc .* bad\.o$": 1}),
    "pip": (0.75, {r"^Successfully installed .*": 1}),
    "pip_fail": (1, {r"^ERROR: .*": 2}),
    "npm": (0.1, {r"^added \d+ packages.*": 1}),
    "npm_fail": (1, {r"^npm error .*": 4}),
    "apt": (0.4, {r"^0 upgraded, 10 newly installed.*": 1, r"^Need to get .*": 1}),
    "docker_build": (
        0.35,
        {
            r"^#\d+ \[\d/8\] .*": 8,
            r"^#12 ERROR: .*": 1,
            r"ModuleNotFoundError: .*": 1,
            r"Successfully installed .*": 1,
            r"^#5 .* debconf: .*": 6,
            r"rehash: warning: .*": 1,
        },
    ),
    "apt_fail": (1, {r"^E: .*": 1}),
    "webpack_modules": (
        0.6,
        {
            r"^(?:ERROR|WARNING) in .*": 3,
            r"^Module not found: .*": 1,
            r"^export 'missing' .*": 1,
            r"\./src/pages/f\.js .* \[1 error\]": 1,
            r"gone\.js.* doesn't exist": 5,
            r"compiled with 2 errors and 1 warning": 1,
        },
    ),
    "webpack": (1, {r"^ERROR in .*": 1, r"^Module parse failed.*": 1, r"compiled with 1 error": 1}),
}  # fmt: skip


def squeeze(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)


def name_each_place(text: str) -> str:
    """Write a complaint that is said once for each of its places."""
    lines: list[str] = []
    for line in text.split("\n"):
        said = re.fullmatch(r"(.*) \[also at (.*)\]", line)
        lines.append(said[1] if said else line)
        place = re.search(r"\d+:\d+(?= )|\d+,\d+(?=\))|\d+(?=: )", said[1]) if said else None
        if said and place:
            head, tail = said[1][: place.start()], said[1][place.end() :]
            lines += [f"{head}{other}{tail}" for other in said[2].split(", ")]
    return "\n".join(lines)


def shorten(name: str) -> tuple[str, str]:
    folded = fold_output((OUTPUTS / f"{name}.txt").read_text())[0]
    reduced = reduce_output(folded)
    return folded, folded if reduced is None else reduced.text


@pytest.mark.parametrize("name", CASES)
def test_messages_places_and_counts_of_failures_stay(name: str) -> None:
    whole, short = shorten(name)
    most, wanted = CASES[name]
    assert len(short) <= len(whole) * most
    found = squeeze(name_each_place(short))
    for pattern, least in wanted.items():
        fits = Counter(
            squeeze(fit.group(0)).strip() for fit in re.finditer(pattern, whole, re.MULTILINE)
        )
        assert fits.total() >= least, pattern
        assert {fit: number for fit, number in fits.items() if found.count(fit) < number} == {}


def test_every_output_has_a_case() -> None:
    assert {path.stem for path in OUTPUTS.iterdir()} == set(CASES)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"row {number} PASSED" for number in range(1000)),
        "\n".join(f"def test_{number}(): ...  # FAILED" for number in range(1000)),
        "\n".join(f"test item_{number} ... ok" for number in range(1000)),
        "Ran 3 tests in 0.1s\nOK\n",
    ],
)
def test_what_no_family_has_written_stays_as_it_is(text: str) -> None:
    assert reduce_output(text) is None


CHECKED = (
    "".join(f'src/a.py:{n}: error: Name "x" is not defined  [name-defined]\n' for n in range(40)),
    "".join(f"src/a.ts({n},3): error TS2304: Cannot find name 'x'.\n" for n in range(40)),
    "/w/a.js\n"
    + "".join(f"  {n}:3  error  'x' is not defined  no-undef\n" for n in range(50))
    + "\n✖ 50 problems (50 errors, 0 warnings)\n",
)


@pytest.mark.parametrize("text", CHECKED, ids=["mypy", "tsc", "eslint"])
def test_what_a_checker_says_of_many_places_is_said_once_with_all_places(text: str) -> None:
    reduced = reduce_output(text)
    assert reduced is not None
    assert len(reduced.text) < len(text) / 3
    assert name_each_place(reduced.text) == text
    assert "lines that differ only in their place" in reduced.left_out


def test_other_files_other_words_and_lines_between_are_not_merged() -> None:
    lines = [f"{name}.py:{n}: error: {words}" for n in (1, 2) for name in "ab" for words in "xy"]
    assert merge_equal(lines) == lines
    shown = [f"/w/{name}.js\n  1:1  error  no\n  2:1  error  no" for name in "abc"]
    rows = "\n".join(shown).split("\n")
    assert merge_equal(rows) == rows
    told = [f"a.py:{n}: error: bad\n    because of {n}" for n in range(5)]
    rows = "\n".join(told).split("\n")
    assert merge_equal(rows) == rows


def test_a_failure_without_a_known_message_stays_whole() -> None:
    blocks = [
        f"____ test_{number} ____\nown report of {number}\n  odd words {number}\n" + "x = 1\n" * 20
        for number in range(30)
    ]
    text = "=== FAILURES ===\n" + "".join(blocks) + "=== 30 failed in 0.1s ===\n"
    reduced = reduce_output(text)
    assert reduced is None or all(f"odd words {number}\n" in reduced.text for number in range(30))


def test_a_long_line_is_cut_in_the_middle_with_its_length() -> None:
    reduced = reduce_output("a" * 50_000 + "end\nnext\n")
    assert reduced is not None
    first, second, _ = reduced.text.split("\n")
    assert len(first) < 2_000 + 60
    assert first.endswith("end")
    assert "48003 of 50003 characters" in first
    assert second == "next"


def test_the_first_ten_failures_stay_whole() -> None:
    block = "___ test_{0} ___\n\n{1}E   AssertionError: number {0}\n\nt.py:{0}: AssertionError\n"
    blocks = (block.format(n, f"    source {n}\n" * 20) for n in range(30))
    text = "=== FAILURES ===\n" + "".join(blocks) + "=== 30 failed in 0.1s ===\n"
    reduced = reduce_output(text)
    assert reduced is not None
    shown = [reduced.text.count(f"    source {n}\n") for n in range(30)]
    assert shown == [20] * 10 + [0] * 20
    assert reduced.text.count("[from here on only the message and the location of") == 1


def test_thousands_of_failures_leave_beginning_and_summary() -> None:
    block = "___ test_{0} ___\n\n    source\nE   AssertionError: number {0}\n\nt.py:{0}: AssertionError\n"
    text = "=== FAILURES ===\n" + "".join(block.format(number) for number in range(5000))
    reduced = reduce_output(text + "=== 5000 failed in 9.1s ===\n")
    assert reduced is not None
    shown = cut_to_lines(reduced.text, 16_384, 0)
    assert len(shown) < 7_000
    assert shown.endswith("=== 5000 failed in 9.1s ===\n")
    assert " lines left out ...]\n" in shown


def test_the_whole_is_kept_and_named_and_scripts_get_everything(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    whole = (OUTPUTS / "unittest.txt").read_text()
    (tmp_path / "work/log").write_text(whole)
    identity = Identity("t", "u", "s", "r")
    resources: dict[type, Any] = {
        Sandbox: share_unheld(),
        Workspace: Workspace(tmp_path / "work"),
        CommandPolicy: CommandPolicy(shell_allowed=True, safe_mode=SafeMode(on=False)),
    }

    def run(command: object) -> str:
        context = Context(identity, "call_1", resources=resources)
        values = run_command.arguments.check({"command": command}).values
        return asyncio.run(run_command.handler(**values, context=context))

    answer = run("cat log; exit 3")
    assert len(answer) < len(whole) / 3
    assert "exit status 3" in answer
    named = re.search(r"lines: (/\S+)\]", answer)
    assert named is not None
    assert Path(named[1]).read_text() == whole
    assert run(["cat", "log"]) == whole
