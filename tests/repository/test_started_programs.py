"""Programs are found and started in one place: everywhere else a planted one could be taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from source import LOCAL
from source import MODULES as FILES
from source import PACKAGE as SOURCE

from deputies import DEPUTIES

FORBIDDEN = re.compile(
    r"(shutil\.)?which|subprocess\.(run|call|check_call|check_output|Popen|getoutput"
    r"|getstatusoutput)|os\.(system|popen|startfile|exec\w+|spawn\w+|posix_spawnp?)"
    r"|asyncio\.(subprocess\.)?create_subprocess_\w+|\w+\.subprocess_(exec|shell)"
    r"|webbrowser\.\w+|pty\.\w+|click\.(launch|edit)|runpy\.\w+|multiprocessing\.\w+"
    r"|(\w+\.)*ProcessPoolExecutor|(importlib\.)?metadata\.(entry_points|distributions)"
    r"|entry_points|distributions"
)
MODULES = {"webbrowser", "pty", "runpy", "multiprocessing", "pexpect"}

EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "sandbox/trusted_process.py": (
        {"subprocess.Popen", "subprocess.run"},
        "the one place that starts a program, which has to be a `TrustedProgram`",
    ),
    "sandbox/inside/command_start.py": ({"os.execve"}, "it is the command, behind its walls"),
    "sandbox/inside/mediated_command.py": ({"os.execve"}, "it is the command, behind its walls"),
    "sandbox/inside/bubblewrap_supervisor.py": (
        {"os.execve"},
        "bubblewrap, whose path `probes` found where commands cannot write",
    ),
    "sandbox/inside/supervision.py": (
        {"os.posix_spawn"},
        "the fork server, which gets the path of a `TrustedCommand`, or of a command where a "
        "person chose no sandbox",
    ),
    "sandbox/inside/container/relay.py": (
        {"os.posix_spawn", "subprocess.run"},
        "the container engine that the launch names, looked at again when the launch was made",
    ),
    "sandbox/inside/process_tree.py": ({"subprocess.run"}, "`/bin/ps`, named by its full path"),
    "permissions/entry_points.py": (
        {"distributions"},
        "the one place that reads entry points, and leaves out those that commands can write",
    ),
}
"""What may be called elsewhere, and why it starts nothing that commands can write."""


ALIASED = {"subprocess", "os", "shutil", "asyncio", "importlib", "ctypes"}
"""Modules that keep their names: under another one a call could not be recognised."""
ANYWHERE = re.compile(
    r"which|Popen|exec(l|le|lp|lpe|v|ve|vp|vpe|veat)|f?execve|posix_spawnp?|popen"
)
"""Names that mean it whatever they are taken from, such as a library of `ctypes`."""


def named(tree: ast.AST) -> Iterator[str]:
    """Yield what starts or finds a program, as it is written: called, or handed to a caller."""
    types = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in types:
            name = ast.unparse(node)
            if FORBIDDEN.fullmatch(name) or ANYWHERE.fullmatch(node.attr):
                yield name
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if FORBIDDEN.fullmatch(name):
                yield name
            if name in ("getattr", "operator.attrgetter"):
                yield from (
                    word.value
                    for word in node.args
                    if isinstance(word, ast.Constant)
                    and isinstance(word.value, str)
                    and ANYWHERE.fullmatch(word.value)
                )


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield imports that would let such a call have another name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in MODULES or (alias.name in ALIASED and alias.asname):
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if FORBIDDEN.fullmatch(f"{node.module}.{alias.name}") or node.module in MODULES:
                    yield f"{node.module}.{alias.name}"


def find_starts(tree: ast.AST) -> set[str]:
    return {*named(tree), *imported(tree)}


@pytest.mark.proves("programs.one-finder")
def test_no_file_finds_or_starts_programs_by_itself():
    found = {
        str(file.path.relative_to(SOURCE if SOURCE in file.path.parents else LOCAL.parent)): starts
        for file in FILES
        if (starts := find_starts(file.tree))
    }
    found["permissions/entry_points.py"].discard("importlib.metadata.distributions")
    assert found == {file: names for file, (names, _) in EXCEPTIONS.items()}


@pytest.mark.parametrize(
    "text",
    [
        "import shutil\nshutil.which('git')",
        "from shutil import which\n",
        "import subprocess\nsubprocess.run(['git'])",
        "from subprocess import Popen\n",
        "import subprocess as other\n",
        "import os\nos.execvp('git', [])",
        "import os\nos.posix_spawnp('git', [], {})",
        "import os\nos.system('git')",
        "import asyncio\nasyncio.create_subprocess_exec('git')",
        "import webbrowser\n",
        "import click\nclick.launch('https://a.example')",
        "import os\nos.startfile('a')",
        "import asyncio, subprocess\nasyncio.to_thread(subprocess.run, ['git'])",
        "import os\nstart = os.execv",
        "import os as system\n",
        "import ctypes\nctypes.CDLL(None).execve(b'git', None, None)",
        "import os\ngetattr(os, 'execve')('git', [], {})",
        "from importlib.metadata import entry_points\n",
    ],
)
def test_each_way_to_start_one_is_found(text: str):
    assert find_starts(ast.parse(text))


FINDERS = {"find_program", "find_installed", "find_confined"}


def looked_for(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a finder is asked for, where they are written in the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FINDERS and node.args:
            for part in ast.walk(node.args[0]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


@pytest.mark.proves("programs.one-finder")
def test_each_name_that_is_looked_for_is_in_the_table_of_deputies():
    known = {name for deputy in DEPUTIES for name in deputy.programs}
    found = {name for file in FILES for name in looked_for(file.tree)}
    assert {"git", "rg", "tesseract"} <= found
    # `node` is not started: where it lies says where npm's settings of the machine are.
    others = {"sh", "darwin", "node"}
    assert {name for name in found - known if not name.startswith("/")} <= others


def format_deputies() -> str:
    """Return the table of what Ferrule starts as Markdown."""
    rows = ["| what is started | programs | rights | beyond commands |", "|---|---|---|---|"]
    for deputy in DEPUTIES:
        named = (name if " " in name else f"`{name}`" for name in deputy.programs)
        programs = ", ".join(named) or "named by settings"
        cells = (deputy.name, programs, deputy.rights, deputy.more or "nothing")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def test_the_table_in_the_documentation_is_that_of_the_code():
    text = (SOURCE.parents[1] / "docs/security.md").read_text("utf-8")
    between = text.partition("<!-- deputies:")[2].partition("-->")[2]
    assert between.partition("<!-- end of deputies -->")[0].strip() == format_deputies()
