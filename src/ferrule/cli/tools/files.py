"""`ferrule tools check|test|new`: whether tool and hook files are right, whether they do what they
say, and a new one.

Checking reads and compiles and runs nothing. `test` runs the tests and examples that the files
hold, and only those that were asked for: each in an empty folder of its own, behind the gate and in
the sandbox (`extensions.checks.runs`). Neither needs trust.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ferrule.extensions.checks.runs import Bench, Outcome
    from ferrule.extensions.checks.tool_file import Problem
    from ferrule.extensions.tool_files.tool_file import ToolFile

_FOLDER = click.option(
    "-C",
    "--workspace",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    help="Folder to look in (default: this one).",
)
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Machine-readable (`ferrule validate --schema`)."
)
_STRICT = click.option("--strict", is_flag=True, help="Count warnings as errors.")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@_FOLDER
@_JSON
@_STRICT
def check(names: tuple[str, ...], workspace: str, as_json: bool, strict: bool) -> int:
    """Check tool and hook files: all of this folder, or those named. Nothing of them is run.

    Front matter, parameters, examples, whether the script compiles, has its function and reads only
    parameters there are.
    """
    import asyncio

    from ferrule.cli.problem_report import report

    files = _chosen(workspace, names, hooks=True)
    if not files:
        click.echo(
            "there are no tool or hook files here\nhint: `ferrule tools new NAME` writes one",
            err=True,
        )
    problems = asyncio.run(_checked(files))
    return report(sorted(files), problems, as_json=as_json, strict=strict)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@_FOLDER
@_JSON
def test(names: tuple[str, ...], workspace: str, as_json: bool) -> int:
    """Run the `tests` and `examples` of tool files: all of this folder, or those named.

    Each runs in an empty folder of its own with the files that the test names: behind the gate,
    commands in the sandbox, no network, none of your files. Nothing else of this folder takes
    effect.
    """
    import asyncio

    from ferrule.cli.problem_report import counted, report
    from ferrule.extensions.checks.files import tools_of

    files = _chosen(workspace, names, hooks=False)
    problems = [one for one in asyncio.run(_checked(files)) if one.level == "error"]
    broken = {one.file for one in problems}
    tools = [tool for name in files if name not in broken for tool in tools_of(name, files[name])]
    cases = sum(len(tool.cases) + len(tool.examples) for tool in tools)
    said = (
        f"running {cases} tests and examples of {counted(len(tools), 'tool')}, each in an empty "
        "folder of its own"
    )
    click.echo(said, err=True)
    return report(sorted(files), problems, asyncio.run(_tested(tools)), as_json=as_json)


@click.command()
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD:TYPE]...")
@click.option("--description", default="", help="What the model reads of the tool.")
@click.option(
    "--python", "as_python", is_flag=True, help="Write NAME.py with a typed function, and a test."
)
@_FOLDER
def new(
    name: str, fields: tuple[str, ...], description: str, as_python: bool, workspace: str
) -> int:
    """Write .ferrule/tools/NAME.md: a tool that works and tests itself, to be changed into yours.

    A field is name:type[?][=default][,description], as in `city:string`, `days:int?`,
    'unit:c|f=c,Celsius or Fahrenheit'.
    Types: string, int, float, bool, list[...], and words with | between them. ? means that it may
        be left out.
    """
    from ferrule.cli.new_files import write_new as write
    from ferrule.tools.names import check_name

    from . import templates as texts
    from .fields import parse_fields

    check_name(name)
    _check_free(name, as_python=as_python)
    if not description.isprintable():
        raise click.UsageError("--description holds characters that cannot be seen")
    parsed = parse_fields(fields)
    if as_python:
        module, tests = f"{name}.py", f"tests/test_{name}.py"
        made = {
            module: texts.python_tool(name, parsed, description),
            tests: texts.python_test(name, parsed),
        }
        write(Path(workspace), made)
        click.echo(f"wrote {Path(workspace) / module}\nwrote {Path(workspace) / tests}", err=True)
        said = (
            f"hint: change it, `python -m pytest {tests}`, then name `{module}` under "
            "`tools.python` in .ferrule/ferrule.yaml"
            f" and `ferrule trust` it, or give it to an agent of your own: Agent(model, [{name}])"
        )
    else:
        text = texts.tool_file(parsed, description) if parsed or description else texts.SAMPLE
        click.echo(f"wrote {write_new(Path(workspace), name, text)}", err=True)
        said = (
            f"hint: change it, `ferrule tools test {name}`, then `ferrule trust` lets it take "
            "effect"
        )
    click.echo(said, err=True)
    return 0


# ---- files


def _check_free(name: str, *, as_python: bool) -> None:
    """Raise UsageError for a name that belongs to a tool that ships, or to a module that Python's
    own code imports.
    """
    import sys

    from ferrule.runtime.shipped_tools import shipped

    if any(tool.name == name for tool in shipped()):
        raise click.UsageError(
            f"`{name}` is the name of a tool that ships with Ferrule. hint: choose another name;"
            " a file that is to replace it belongs into `.ferrule/overrides`, written by hand"
        )
    if as_python and name in sys.stdlib_module_names:
        raise click.UsageError(
            f"`{name}.py` would stand before Python's own module `{name}` for everything "
            "that runs in this folder."
            f" hint: choose another name, such as `{name}_tool`"
        )


def write_new(workspace: Path, name: str, text: str) -> Path:
    """A new tool file. Nothing is replaced, and no link is followed. Raises ConfigError."""
    from ferrule.cli.new_files import write_new as write
    from ferrule.tools.names import check_name

    check_name(name)
    write(workspace, {f".ferrule/tools/{name}.md": text})
    return workspace / ".ferrule" / "tools" / f"{name}.md"


def _chosen(workspace: str, names: tuple[str, ...], *, hooks: bool) -> dict[str, bytes]:
    """The files with tools (and hooks) that were meant, by name. Raises UsageError for a name that
    means none.
    """
    from ferrule.extensions.checks.files import holds_artifacts
    from ferrule.storage.trust import Trust

    seen = Trust().look(workspace).files
    known = {name: data for name, data in seen.items() if holds_artifacts(name, hooks=hooks)}
    if not names:
        return known
    chosen: dict[str, bytes] = {}
    for name in names:
        found = {one: data for one, data in known.items() if one == name or _stem(one) == name}
        found = found or {one: data for one, data in known.items() if name in _names(known, one)}
        if not found and Path(name).is_file():
            found = {name: Path(name).read_bytes()}
        if not found:
            raise click.UsageError(_nothing(name, known))
        chosen |= found
    return chosen


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".md")


def _names(files: dict[str, bytes], name: str) -> set[str]:
    from ferrule.extensions.checks.files import tools_of

    return {tool.name for tool in tools_of(name, files[name])}


def _nothing(name: str, known: dict[str, bytes]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, map(_stem, known), 2, 0.5)
    meant = f"; nearest: {', '.join(near)}" if near else ""
    return f"there is no tool or file `{name}`{meant}"


# ---- runs


async def _checked(files: dict[str, bytes]) -> list[Problem]:
    from ferrule.extensions.checks.files import check_file
    from ferrule.extensions.checks.workspace import hosts_of_person

    hosts = hosts_of_person()
    found = [
        one
        for name, data in sorted(files.items())
        for one in await check_file(name, data, hosts=hosts)
    ]
    return sorted(found, key=lambda one: (one.file, one.line, one.column))


async def _tested(tools: list[ToolFile]) -> list[Outcome]:
    from ferrule.extensions.checks.runs import run_cases

    bench = bench_of_tests()
    return [outcome for tool in tools for outcome in await run_cases(tool, bench, beside=tools)]


def bench_of_tests() -> Bench:
    """What tests run with: the tools that ship, and commands that see their folder and the system,
    and no network.
    """
    from ferrule.extensions.checks.runs import Bench
    from ferrule.runtime.shipped_tools import shipped
    from ferrule.sandbox.policy import Policy
    from ferrule.toolkits.commands import CommandPolicy

    def resources(folder: Path) -> list[object]:
        return [CommandPolicy(timeout=60, confine=Policy(root=folder), on_gap="required")]

    return Bench(shipped(), resources)
