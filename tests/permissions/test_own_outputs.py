"""What a rule's own program does with its own output, variable or sub-command is within the rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule.permissions.rule_evaluation import Decision, PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.toolkits import commands

RUN = next(tool for tool in commands.TOOLS if tool.name == "run_command")


def decide(rule: str, line: str, **others: list[str]) -> Decision:
    rules = RuleSet.parse(allow=[rule], **others)
    gate = PermissionGate(rules, root=Path("/work"), home=Path("/home/p"))
    return gate.decide(RUN, {"command": line})


WITHIN = (
    ("gcc:*", "gcc -c a.c -o a.o"),
    ("gcc:*", "gcc a.c -oapp"),
    ("g++:*", "g++ -std=c++20 a.cpp -o build/app"),
    ("clang:*", "clang -o app a.c"),
    ("rustc:*", "rustc a.rs -o app"),
    ("rustc:*", "rustc --out-dir=out a.rs"),
    ("javac:*", "javac -d out X.java"),
    ("go build:*", "go build -o bin/app ./..."),
    ("git stash:*", "git stash pop"),
    ("git stash:*", "git stash pop -q"),
    ("git:*", "git stash pop"),
    ("make:*", "make CC=clang"),
    ("make:*", "make -j4 CC=gcc-12 CXX=g++-12 all"),
    ("make:*", "make CC=x86_64-linux-gnu-gcc AR=llvm-ar"),
    ("uv run:*", "uv run -p 3.12 pytest"),
    ("uv run:*", "uv run --python=3.12 pytest -q"),
)


@pytest.mark.parametrize(("rule", "line"), WITHIN)
def test_a_rule_for_a_program_covers_what_the_program_is_there_to_do(rule: str, line: str) -> None:
    decision = decide(f"Bash({rule})", line)
    assert decision.verdict == "allow", decision.reason


REFUSED = (
    ("gcc:*", "gcc a.c -o .bashrc"),
    ("gcc:*", "gcc a.c -o.bashrc"),
    ("gcc:*", "gcc a.c --output=.vscode/tasks.json"),
    ("gcc:*", "gcc a.c -o ../x"),
    ("gcc:*", "gcc a.c -o /etc/x"),
    ("gcc:*", "gcc a.c -o .git/hooks/pre-commit"),
    ("clang:*", "clang -o harness.md a.c"),
    ("rustc:*", "rustc a.rs --out-dir .vscode"),
    ("rustc:*", "rustc a.rs --out-dir=.vscode"),
    ("javac:*", "javac -d .vscode X.java"),
    ("go build:*", "go build -o=.vscode/x ./..."),
)


@pytest.mark.parametrize(("rule", "line"), REFUSED)
def test_an_output_is_judged_as_a_file_that_is_written(rule: str, line: str) -> None:
    assert decide(f"Bash({rule})", line).verdict == "deny"


@pytest.mark.parametrize("line", ["gcc a.c -o src/x", "gcc a.c -osrc/x", "javac -d src X.java"])
def test_a_deny_rule_for_writing_holds_for_an_output(line: str) -> None:
    program = line.split()[0]
    assert decide(f"Bash({program}:*)", line, deny=["Edit(src/**)"]).verdict == "deny"


ASKED = (
    ("gcc:*", "gcc -fplugin=./x.so a.c -o a.o", "-fplugin=./x.so"),
    ("gcc:*", "gcc @arguments", "@arguments"),
    ("javac:*", "javac -processor X A.java", "-processor"),
    ("make:*", "make CC=./evil", "CC=./evil"),
    ("make:*", "make CC=sh", "CC=sh"),
    ("make:*", "make SHELL=gcc", "SHELL=gcc"),
    ("git stash:*", "git stash drop", "drop"),
    ("git stash:*", "git stash clear", "clear"),
    ("uv run:*", "uv run -p ./evil pytest", "-p"),
    ("uv run:*", "uv run -p python pytest", "-p"),
    ("uv run:*", "uv run -p 3.12 pytest --pdb", "--pdb"),
    ("go build:*", "go build -toolexec ./x", "-toolexec"),
    ("sort:*", "sort -o b a", "-o"),
)


@pytest.mark.parametrize(("rule", "line", "word"), ASKED)
def test_a_reason_names_the_word_that_asked(rule: str, line: str, word: str) -> None:
    decision = decide(f"Bash({rule})", line)
    assert decision.verdict == "ask"
    assert f"`Bash({rule})` covers `{word}` only if it spells it out" in decision.reason
