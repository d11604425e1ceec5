"""`ferrule tools check|test|new`: check and test tool and hook files, and write a new one.

`check` reads and compiles the files and runs nothing. `test` runs the tests and examples in the
named files, each in its own empty folder, behind the gate and in the sandbox
(`extensions.checks.tool_cases`). Neither needs trust.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ferrule.cli.new_files import write_new_files as write_files
from ferrule.cli.validation_report import format_count, print_report
from ferrule.core.similar_names import suggest_names
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.trust import TrustStore
from ferrule.tools.names import check_name

from . import templates
from .fields import parse_fields

with lazy_imports():
    from ferrule.extensions.checks import files as file_checks
    from ferrule.extensions.checks import tool_cases, workspace
    from ferrule.runtime import chosen_plugins, tool_profiles
    from ferrule.toolkits.commands import policy

if TYPE_CHECKING:
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
    """Check tool and hook files: all of this folder, or the named ones. Nothing is run.

    Checks the front matter, the parameters, the examples, and that the script compiles, has its
    function and reads only existing parameters.
    """
    import asyncio

    files = _choose(workspace, names, hooks=True)
    if not files:
        click.echo(
            "there are no tool or hook files here\nhint: `ferrule tools new NAME` writes one",
            err=True,
        )
    problems = asyncio.run(_check(files))
    return print_report(sorted(files), problems, as_json=as_json, strict=strict)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@_FOLDER
@_JSON
def test(names: tuple[str, ...], workspace: str, as_json: bool) -> int:
    """Run the `tests` and `examples` of tool files: all of this folder, or the named ones.

    Each runs in its own empty folder with the files that the test names: behind the gate, commands
    in the sandbox, without network and without your files. Nothing else of this folder takes
    effect.
    """
    import asyncio

    files = _choose(workspace, names, hooks=False)
    problems = [one for one in asyncio.run(_check(files)) if one.level == "error"]
    broken = {one.file for one in problems}
    tools: list[ToolFile] = []
    for file, content in files.items():
        if file not in broken:
            tools += file_checks.parse_tools(file, content)
    cases = sum(len(tool.cases) + len(tool.examples) for tool in tools)
    click.echo(
        f"running {cases} tests and examples of {format_count(len(tools), 'tool')}, each in its "
        f"own "
        "empty folder",
        err=True,
    )
    return print_report(sorted(files), problems, asyncio.run(_run_tests(tools)), as_json=as_json)


@click.command()
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD:TYPE]...")
@click.option("--description", default="", help="Description of the tool, for the model.")
@click.option(
    "--python", "as_python", is_flag=True, help="Write NAME.py with a typed function, and a test."
)
@_FOLDER
def new(
    name: str, fields: tuple[str, ...], description: str, as_python: bool, workspace: str
) -> int:
    """Write .ferrule/tools/NAME.md: a tool that works and tests itself, to be changed into yours.

    A field is name:type[?][=default][,description], such as `city:string`, `days:int?` or
    'unit:c|f=c,Celsius or Fahrenheit'.
    Types: string, int, float, bool, list[...], and words with | between them. ? makes a field
    optional.
    """
    check_name(name)
    _check_name_is_free(name, as_python=as_python)
    if not description.isprintable():
        raise click.UsageError("--description holds invisible characters; remove them")
    parsed = parse_fields(fields)
    if as_python:
        module = f"{name}.py"
        tests = f"tests/test_{name}.py"
        texts = {
            module: templates.render_python_tool(name, parsed, description),
            tests: templates.render_python_test(name, parsed),
        }
        write_files(Path(workspace), texts)
        click.echo(f"wrote {Path(workspace) / module}\nwrote {Path(workspace) / tests}", err=True)
        hint = (
            f"hint: change it, run `python -m pytest {tests}`, then name `{module}` under "
            "`tools.python` in .ferrule/ferrule.yaml"
            f" and `ferrule trust` it, or give it to an agent of your own: Agent(model, [{name}])"
        )
    else:
        text = templates.SAMPLE_TOOL_FILE
        if parsed or description:
            text = templates.render_tool_file(parsed, description)
        click.echo(f"wrote {write_tool_file(Path(workspace), name, text)}", err=True)
        hint = (
            f"hint: change it, run `ferrule tools test {name}`, then `ferrule trust` lets it take "
            "effect"
        )
    click.echo(hint, err=True)
    return 0


# ---- files


def _check_name_is_free(name: str, *, as_python: bool) -> None:
    """Raise UsageError for the name of a shipped tool or of a module of Python's own."""
    if name in tool_profiles.list_default_names():
        raise click.UsageError(
            f"`{name}` is the name of a tool that ships with Ferrule. hint: choose another name;"
            " a file that is to replace the tool belongs in `.ferrule/overrides`, written by hand"
        )
    if as_python and name in sys.stdlib_module_names:
        raise click.UsageError(
            f"`{name}.py` would hide Python's own module `{name}` from everything that runs in "
            f"this folder. hint: choose another name, such as `{name}_tool`"
        )


def write_tool_file(workspace: Path, name: str, text: str) -> Path:
    """Write a new tool file. Nothing is replaced, and no link is followed.

    Raises:
        ConfigError: The name is invalid, or the file exists or cannot be written.
    """
    check_name(name)
    write_files(workspace, {f".ferrule/tools/{name}.md": text})
    return workspace / ".ferrule" / "tools" / f"{name}.md"


def _choose(workspace: str, names: tuple[str, ...], *, hooks: bool) -> dict[str, bytes]:
    """Return the tool (and hook) files that were named, or all of them.

    Raises:
        click.UsageError: There is no file or tool of a name.
    """
    seen = TrustStore().read(workspace).files
    known = {
        name: data for name, data in seen.items() if file_checks.is_checkable(name, hooks=hooks)
    }
    if not names:
        return known
    chosen: dict[str, bytes] = {}
    for name in names:
        found = {one: data for one, data in known.items() if one == name or _stem(one) == name}
        if not found:
            found = {one: data for one, data in known.items() if name in _tool_names(known, one)}
        if not found and Path(name).is_file():
            found = {name: Path(name).read_bytes()}
        if not found:
            raise click.UsageError(_describe_unknown(name, known))
        chosen |= found
    return chosen


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".md")


def _tool_names(files: dict[str, bytes], name: str) -> set[str]:
    return {tool.name for tool in file_checks.parse_tools(name, files[name])}


def _describe_unknown(name: str, known: dict[str, bytes]) -> str:
    names = [_stem(one) for one in known]
    otherwise = f"there are: {', '.join(names) or 'none'}"
    suggestion = suggest_names(name, names, otherwise, count=2, cutoff=0.5)
    return f"there is no tool or file `{name}`; {suggestion}"


# ---- runs


async def _check(files: dict[str, bytes]) -> list[Problem]:
    hosts = workspace.load_hook_hosts()
    problems: list[Problem] = []
    for name, data in sorted(files.items()):
        problems += await file_checks.check_file(name, data, hosts=hosts)
    return sorted(problems, key=lambda one: (one.file, one.line, one.column))


async def _run_tests(tools: list[ToolFile]) -> list[tool_cases.CaseOutcome]:
    bench = workbench_for_tests()
    outcomes: list[tool_cases.CaseOutcome] = []
    for tool in tools:
        outcomes += await tool_cases.run_cases(tool, bench, others=tools)
    return outcomes


def workbench_for_tests() -> tool_cases.CaseEnvironment:
    """Return what tests run with: the shipped tools, and sandboxed commands without network.

    Commands see the test's folder and the system.
    """

    def resources(folder: Path) -> list[object]:
        return [
            policy.CommandPolicy(
                timeout=60, confine=SandboxPolicy(root=folder), on_missing_protection="required"
            )
        ]

    return tool_cases.CaseEnvironment(chosen_plugins.load_shipped_tools(), resources)
