"""What people read about commands: help, its examples, manual pages, and lists that fit."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ferrule.cli import rows
from ferrule.cli.man_pages import make_pages, man
from ferrule.cli.root import ELSEWHERE, ferrule


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its path."""
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(found, click.Context(found, context, info_name=name))


COMMANDS = dict(walk(ferrule, click.Context(ferrule, info_name="ferrule")))
EXAMPLES = [
    line.strip()
    for command in COMMANDS.values()
    for line in re.findall(r"^ +(?:\S.*\| )?ferrule .*$", command.help or "", re.MULTILINE)
    if "Examples:" in (command.help or "")
]


@pytest.mark.parametrize("example", sorted(set(EXAMPLES)))
def test_an_example_of_help_is_read_by_its_command(example: str) -> None:
    words = shlex.split(re.split(r"  +|[^|]* \| (?=ferrule)| \| jq| > ", example.strip())[0] or "")
    if "| ferrule" in example:
        words = shlex.split(example.partition("| ")[2])
    assert words[0] == "ferrule"
    command: click.Command = ferrule
    context = click.Context(ferrule, info_name="ferrule")
    arguments = words[1:]
    while isinstance(command, click.Group) and arguments and arguments[0] != "COMMAND":
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, context, info_name=name)
    if "COMMAND" in arguments:
        return
    parser = command.make_parser(context)
    _, rest, _ = parser.parse_args(args=list(arguments))
    assert rest == []


def test_there_are_examples_for_what_people_begin_with() -> None:
    begun = {example.partition("ferrule ")[2].split()[0] for example in EXAMPLES}
    assert begun >= {"run", "chat", "tools", "sessions", "models", "mcp", "setup", "doctor"}


@pytest.mark.parametrize(
    "path", sorted(path for path, command in COMMANDS.items() if isinstance(command, click.Group))
)
def test_no_sentence_of_a_list_of_commands_is_cut(path: str) -> None:
    shown = CliRunner().invoke(ferrule, [*path.split()[1:], "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert not re.search(r"\.\.\.$", shown.output.partition("\n")[2], re.MULTILINE)


def test_every_command_has_a_manual_page_with_its_help(tmp_path: Path) -> None:
    wrote = CliRunner().invoke(man, [str(tmp_path / "man1")])
    assert wrote.exit_code == 0, wrote.output
    pages = {one.name.removesuffix(".1"): one.read_text() for one in (tmp_path / "man1").iterdir()}
    assert set(pages) == {path.replace(" ", "-") for path in COMMANDS}
    assert "\\-\\-json\\-stream" in pages["ferrule-run"]
    assert ".BR ferrule (1)" in pages["ferrule-run"]
    for text in pages.values():
        assert re.match(r'\.TH "[A-Z0-9-]+" 1 ', text)
        requests = {line.split()[0] for line in text.splitlines() if line[:1] in (".", "'")}
        assert requests <= {".TH", ".SH", ".nf", ".fi", ".BR"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_manual_pages_are_set_without_a_warning() -> None:
    for _, text in make_pages(ferrule, click.Context(ferrule, info_name="ferrule")):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"],
            input=text,
            text=True,
            capture_output=True,
            check=True,
        )
        assert done.stderr == ""


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_row_fits_the_terminal_and_is_whole_elsewhere(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "A description of some length, with a\u202eword that is not seen. " * 3
    monkeypatch.setenv("COLUMNS", str(columns))
    rows.print_row("name  ", text)
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setattr(rows.sys.stdout, "isatty", lambda: True, raising=False)
    rows.print_row("name  ", text)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < columns
    assert all(line.startswith(" " * 6) for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == "name " + " ".join(
        text.replace("\u202e", "\\u202e").split()
    )


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_command_of_other_programs_leads_to_one_that_is_there(name: str) -> None:
    said = CliRunner().invoke(ferrule, [name])
    assert said.exit_code == 2 and f"No such command '{name}'. Use {ELSEWHERE[name]}" in said.output
    for words in re.findall("`ferrule ([^`]+)`", ELSEWHERE[name]):
        names = [word for word in words.split() if not word.startswith("-")]
        assert CliRunner().invoke(ferrule, [*names, "--help"]).exit_code == 0
