"""What does more than a rule says is asked about: in every spelling, and whatever tables know."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent))

from hazard_rows import ROWS, HazardRow

import ferrule.permissions.command_analysis.option_parsing as options_module
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_analysis.hazards import find_hazards
from ferrule.permissions.command_analysis.option_meanings import all_programs, program_of
from ferrule.permissions.command_analysis.option_parsing import OptionTable, table_of
from ferrule.permissions.command_analysis.program_arguments import ProgramArguments
from ferrule.permissions.command_analysis.program_facts import GIT_READ, GIT_WRITE
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rule_matching import covers_part

Build = Callable[..., PermissionGate]

TABLES = json.loads(Path(options_module.__file__).with_name("option_tables.json").read_text())


def test_what_does_more_than_its_rule_says_is_asked_about(
    gate: Build, tools: SimpleNamespace
) -> None:
    def decide(row: HazardRow, command: str) -> str:
        return gate(allow=[f"Bash({row.rule}:*)"]).decide(tools.run, {"command": command}).verdict

    passed = [row.command for row in ROWS if decide(row, row.command) == "allow"]
    stopped = [row.twin for row in ROWS if row.twin and decide(row, row.twin) != "allow"]
    assert (passed, stopped) == ([], [])


def test_rows_name_their_class_and_stand_there_once() -> None:
    assert len({row.command for row in ROWS}) == len(ROWS)
    assert all(row.source for row in ROWS)


def test_no_rule_for_a_program_covers_an_option_or_subcommand_that_is_named() -> None:
    covered: list[str] = []
    for program, known in all_programs().items():
        # `time` is a word of the shell, which hands all that follows to what it times.
        for name in sorted(known.named | known.words) if program != "time" else ():
            command = f"{program} {name} x"
            parts = analyse_command(command, root="/work/project", home="/home/person").parts
            if all(covers_part(f"{program}:*", part) for part in parts):
                covered.append(command)
    assert covered == []


def test_every_spelling_of_a_named_option_is_a_hazard() -> None:
    missed = [words for words in _all_spellings() if not find_hazards(words)]
    assert missed == []


def _all_spellings() -> Iterator[tuple[str, ...]]:
    for program, known in all_programs().items():
        tables = known.tables or (program,)
        yield from _spellings((program,), known, table_of(*tables))
        for key in TABLES:
            if key.startswith(f"{tables[0]} "):
                verb = key.split()[1:]
                yield from ((program, *verb, name, "x") for name in known.named)
    log = program_of("git", "log")
    assert log is not None
    yield from _spellings(("git", "log"), log, table_of("git log"))
    for verb in sorted(GIT_READ | GIT_WRITE):
        known = program_of("git", verb)
        assert known is not None
        yield from (("git", verb, name, "x") for name in known.named - log.named)


def _spellings(
    start: tuple[str, ...], known: ProgramArguments, table: OptionTable | None
) -> Iterator[tuple[str, ...]]:
    table = table or OptionTable("", "")
    long = {
        name for name in (*table.options, *known.named, *known.with_value) if name.startswith("--")
    }
    letters = [
        name for name, option in table.options.items() if len(name) == 2 and not option.takes
    ]
    flags = [flag for flag in letters if flag not in known.named and flag[1].isalpha()][:2]
    for name in known.named:
        yield (*start, name, "x")
        if known.mixed:
            yield (*start, "y", name, "x")
        if name.startswith("--"):
            yield (*start, f"{name}=x")
            short = _shortest(name, long)
            if known.style == "getopt" and short:
                yield (*start, short, "x")
        elif known.style == "single":
            yield (*start, f"-{name}", "x")
            yield (*start, f"{name}=x")
        else:
            yield (*start, f"{name}x")
            yield from ((*start, f"{flag}{name[1:]}", "x") for flag in flags)


def _shortest(name: str, others: set[str]) -> str:
    """The shortest abbreviation of an option that fits no other; empty if there is none."""
    for length in range(3, len(name)):
        if [other for other in others if other.startswith(name[:length])] == [name]:
            return name[:length]
    return ""


def test_abbreviated_subcommands_are_denied_like_the_whole_word(
    gate: Build, tools: SimpleNamespace
) -> None:
    denied = gate(allow=["Bash"], deny=["Bash(npm publish:*)", "Bash(npm i:*)"])
    for command in (
        "npm publis",
        "npm --silent publi x",
        "npm install x",
        "npm add x",
        "npm insta",
    ):
        assert denied.decide(tools.run, {"command": command}).verdict == "deny", command
    for command in ("npm pac", "npm ls"):
        assert denied.decide(tools.run, {"command": command}).verdict == "allow", command


def test_a_command_that_starts_many_others_is_not_judged_forever() -> None:
    assert "" in find_hazards(["npx", "-x"] * 500)
    assert find_hazards(["uv", "run"] * 3 + ["pytest", "--pdb"]) == ("--pdb",)


def test_a_rule_that_spells_the_option_of_a_started_program_out_covers_it(
    gate: Build, tools: SimpleNamespace
) -> None:
    decided = gate(allow=["Bash(uv run pytest --pdb:*)"])
    assert decided.decide(tools.run, {"command": "uv run pytest --pdb tests"}).verdict == "allow"
    assert decided.decide(tools.run, {"command": "uv run pytest --pdb -p x"}).verdict == "ask"
