"""`ferrule tools check|test|new`: whether tool and hook files are right, whether they do what they say, and a new one.

Checking reads and compiles and runs nothing. `test` runs the tests and examples that the files hold, and only those that were
asked for: each in an empty folder of its own, behind the gate and in the sandbox (`extend.checking_runs`). Neither needs trust.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ferrule.extend.checking import Problem
    from ferrule.extend.checking_runs import Bench, Outcome
    from ferrule.extend.tool_file import ToolFile

_FOLDER = click.option(
    "-C", "--workspace", default=".", type=click.Path(exists=True, file_okay=False), help="Folder to look in (default: this one)."
)  # fmt: skip
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Machine-readable (`ferrule validate --schema`)."
)
_STRICT = click.option("--strict", is_flag=True, help="Count warnings as errors.")

NEW_TOOL = """\
---
parameters:
  text:
    type: string
    description: The text to look at.
    required: true
side_effect: none
timeout_ms: 2000
script: |
  def run(args):
      words = args["text"].split()
      if not words:
          fail("there is no word in `text`")
      return {"words": len(words), "longest": max(words, key = len)}
examples:
  - request: How many words has "to be or not"?
    arguments: { text: to be or not }
tests:
  - name: counts words
    arguments: { text: to be or not }
    returns: { words: 4, longest: not }
  - name: says what is wrong
    arguments: { text: " " }
    fails: there is no word
---
Count the words of a text and find the longest one.

The model reads this text to decide when to call the tool. Say what it does, what it does not, and what it gives back.
"""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@_FOLDER
@_JSON
@_STRICT
def check(names: tuple[str, ...], workspace: str, as_json: bool, strict: bool) -> int:
    """Check tool and hook files: all of this folder, or those named. Nothing of them is run.

    Front matter, parameters, examples, whether the script compiles, has its function and reads only parameters there are.
    """
    import asyncio

    from .problem_report import report

    files = _chosen(workspace, names, hooks=True)
    if not files:
        click.echo(
            "there are no tool or hook files here\nhint: `ferrule tools new NAME` writes one", err=True
        )
    problems = asyncio.run(_checked(files))
    return report(sorted(files), problems, as_json=as_json, strict=strict)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@_FOLDER
@_JSON
def test(names: tuple[str, ...], workspace: str, as_json: bool) -> int:
    """Run the `tests` and `examples` of tool files: all of this folder, or those named.

    Each runs in an empty folder of its own with the files that the test names: behind the gate, commands in the sandbox, no network,
    none of your files. Nothing else of this folder takes effect.
    """
    import asyncio

    from ferrule.extend.checking_files import tools_of

    from .problem_report import counted, report

    files = _chosen(workspace, names, hooks=False)
    problems = [one for one in asyncio.run(_checked(files)) if one.level == "error"]
    broken = {one.file for one in problems}
    tools = [tool for name in files if name not in broken for tool in tools_of(name, files[name])]
    cases = sum(len(tool.cases) + len(tool.examples) for tool in tools)
    said = f"running {cases} tests and examples of {counted(len(tools), 'tool')}, each in an empty folder of its own"
    click.echo(said, err=True)
    return report(sorted(files), problems, asyncio.run(_tested(tools)), as_json=as_json)


@click.command()
@click.argument("name")
@_FOLDER
def new(name: str, workspace: str) -> int:
    """Write .ferrule/tools/NAME.md: a tool that works and tests itself, to be changed into yours."""
    target = write_new(Path(workspace), name, NEW_TOOL)
    click.echo(f"wrote {target}", err=True)
    click.echo(
        f"hint: change it, `ferrule tools test {name}`, then `ferrule trust` lets it take effect", err=True
    )
    return 0


# ---- files


def write_new(workspace: Path, name: str, text: str) -> Path:
    """A new tool file. Nothing is replaced, and no link is followed: it could lead anywhere. Raises ConfigError."""
    from ferrule.core.errors import ConfigError
    from ferrule.tools.names import check_name

    check_name(name)
    folder = workspace / ".ferrule" / "tools"
    target = folder / f"{name}.md"
    for part in (folder.parent, folder):
        if part.is_symlink():
            raise ConfigError(f"`{part}` is a link; nothing was written through it")
    hint = "choose another name, or change the file that is there"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(f"`{target}` exists; nothing was written", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"cannot write `{target}`: {error.strerror}") from error
    return target


def _chosen(workspace: str, names: tuple[str, ...], *, hooks: bool) -> dict[str, bytes]:
    """The files with tools (and hooks) that were meant, by name. Raises UsageError for a name that means none."""
    from ferrule.extend.checking_files import holds_artifacts
    from ferrule.store.trust import Trust

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
    from ferrule.extend.checking_files import tools_of

    return {tool.name for tool in tools_of(name, files[name])}


def _nothing(name: str, known: dict[str, bytes]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, map(_stem, known), 2, 0.5)
    meant = f"; nearest: {', '.join(near)}" if near else ""
    return f"there is no tool or file `{name}`{meant}"


# ---- runs


async def _checked(files: dict[str, bytes]) -> list[Problem]:
    from ferrule.extend.checking_files import check_file
    from ferrule.extend.checking_workspace import hosts_of_person

    hosts = hosts_of_person()
    found = [one for name, data in sorted(files.items()) for one in await check_file(name, data, hosts=hosts)]
    return sorted(found, key=lambda one: (one.file, one.line, one.column))


async def _tested(tools: list[ToolFile]) -> list[Outcome]:
    from ferrule.extend.checking_runs import run_cases

    bench = bench_of_tests()
    return [outcome for tool in tools for outcome in await run_cases(tool, bench, beside=tools)]


def bench_of_tests() -> Bench:
    """What tests run with: the tools that ship, and commands that see their folder and the system, and no network."""
    from ferrule.extend.checking_runs import Bench
    from ferrule.guard.sandbox.policy import Policy
    from ferrule.host.shipped import shipped
    from ferrule.toolkits.commands import CommandPolicy

    def resources(folder: Path) -> list[object]:
        return [CommandPolicy(timeout=60, confine=Policy(root=folder), on_gap="required")]

    return Bench(shipped(), resources)
