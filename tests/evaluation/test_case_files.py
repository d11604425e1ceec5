"""Files of cases: what they say, and every mistake at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError
from ferrule.core.vocabulary import SideEffect
from ferrule.evaluation.case_files import load_cases, parse_share
from ferrule.evaluation.cases import ExpectedCall, ExpectedText

WHOLE = """
models: [local:smollm2]
tool_modes: [constrained, text]
trials: 3
at_least: 90%
judge: local:smollm2
rubrics: {polite: It is polite.}
defaults: {fixture: shop, never: {effects_above: read}}
cases:
  - name: reads
    message: What is in notes.txt?
    tools: [read_file]
    approve: [write_file, {tool: edit_file, include: {path: a.txt}}]
    limits: {max_turns: 3}
    at_least: 0.5
    expect:
      calls:
        - {tool: read_file, arguments: {path: notes.txt}}
        - either: [{tool: list_files}, {tool: file_tree, succeeds: any}]
      order: any
      other_calls: false
      output: {contains: milk, regex: '\\d', judge: polite}
      files: {a.txt: {equals: one}, b.txt: null}
      stop: limit
  - {name: two messages, messages: [one, two], never: {calls: ["mcp__*"], changes: ["*"]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "cases.yaml"
    file.write_text(text)
    return file


def test_a_file_says_what_is_asked_expected_and_forbidden(folder: Path) -> None:
    read = load_cases(write(folder, WHOLE))
    assert (read.models, read.tool_modes) == (("local:smollm2",), ("constrained", "text"))
    assert (read.trials, read.at_least, read.judge) == (3, 0.9, "local:smollm2")
    assert read.rubrics == {"polite": "It is polite."}
    first, second = read.cases
    assert first.messages == ("What is in notes.txt?",)
    assert first.fixture == folder / "shop"
    assert first.never.effects_above is SideEffect.READ
    assert first.approve == (
        ExpectedCall("write_file"),
        ExpectedCall("edit_file", include={"path": "a.txt"}),
    )
    assert (first.tools, first.limits, first.at_least) == (("read_file",), {"max_turns": 3}, 0.5)
    assert first.expect.calls is not None
    assert first.expect.calls[1].either[1].succeeds is None
    assert (first.expect.order, first.expect.other_calls, first.expect.stop) == (
        "any",
        False,
        "limit",
    )
    assert first.expect.output == ExpectedText(contains=("milk",), regex="\\d", judge="polite")
    assert first.expect.files == {"a.txt": ExpectedText(equals="one"), "b.txt": None}
    assert second.messages == ("one", "two")
    assert second.never.changes == ("*",)
    assert second.never.effects_above is None, "a case's own word takes the place of the default"


def test_every_mistake_is_reported_at_once_with_its_line_and_the_nearest_key(folder: Path) -> None:
    wrong = """trails: 3
cases:
  - name: a
    mesage: hi
    expect:
      output: {regex: "(?<=x)y", judge: polite}
  - name: b
    message: x
    fixture: ../..
    limits: {max_turn: 3}
    expect: {order: anny, calls: [{tol: read_file}]}
    never: {effects_above: reed}
  - {name: b, message: y}
"""
    with pytest.raises(ConfigError) as error:
        load_cases(write(folder, wrong))
    lines = [line.removeprefix(f"{folder}/cases.yaml:") for line in str(error.value).splitlines()]
    found = {line.partition(":")[0]: line for line in lines}
    assert "`trials`?" in found["1"]
    assert "did you mean `message`?" in found["4"]
    assert any("no rubric `polite`" in line for line in lines)
    assert any("(?<=x)y" in line for line in lines)
    assert "outside of" in found["9"]
    assert "`max_turns`?" in found["10"]
    assert any("did you mean `any`?" in line for line in lines)
    assert any("did you mean `tool`?" in line for line in lines)
    assert "did you mean `read`?" in found["12"]
    assert "correct all 9 of them" in error.value.hint


def test_two_cases_of_one_name_are_a_mistake(folder: Path) -> None:
    twice = "cases: [{name: a, message: x},\n {name: a, message: y}]"
    with pytest.raises(ConfigError, match=r"cases.yaml:2:1: a second case `a` \(first in line 1\)"):
        load_cases(write(folder, twice))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: []", "has no cases"),
        ("models: [x]", "has no `cases`"),
        ("cases: [{name: a}]", "without `message`"),
        ("cases: [{message: x}]", "without `name`"),
        ("cases: [{name: a, message: x, messages: [y]}]", "exclude each other"),
        ("cases: [{name: a, message: x, fixture: none}]", "is not a folder"),
        ("cases: [{name: a, message: x, recording: none.ferrule}]", "is not a file"),
        ("cases: [{name: a, message: x, at_least: 2}]", "is not a share"),
        (
            "cases: [{name: a, message: x, approve: [{tool: b, succeeds: true}]}]",
            "not known before",
        ),
        ("cases: [{name: a, message: x, expect: {output: {schema: {type: 7}}}}]", "not valid"),
        ("cases: [{name: a, message: x, expect: {files: {b: {judge: c}}}}]", "not a key of"),
        ("tool_modes: [natve]\ncases: [{name: a, message: x}]", "did you mean `native`"),
        ("trials: 0\ncases: [{name: a, message: x}]", "from 1 to 1000"),
    ],
)
def test_a_mistake_says_what_was_found(folder: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_cases(write(folder, text))


def test_a_digest_changes_with_what_is_expected_and_not_with_the_place(folder: Path) -> None:
    def digest(text: str) -> str:
        return load_cases(write(folder, f"cases:\n{text}")).cases[0].digest()

    one = digest("  - {name: a, message: x}")
    assert digest("\n\n  - {name: a, message: x, at_least: 0.5}") == one
    assert digest("  - {name: a, message: y}") != one
    assert digest("  - {name: a, message: x, never: {calls: [b]}}") != one


@pytest.mark.parametrize(
    ("given", "share"),
    [("90%", 0.9), ("0.9", 0.9), (1, 1.0), (0, 0.0), ("x", None), (True, None), (1.5, None)],
)
def test_a_share_is_a_fraction_or_percent(given: object, share: float | None) -> None:
    assert parse_share(given) == share
