"""Commands without the libraries of extras: each says which line installs what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ferrule import ConfigError
from ferrule.core.extras import EXTRAS, describe_missing, require

PROGRAM = """
import importlib.machinery, sys

missing = set(sys.argv[1].split(","))
find = importlib.machinery.PathFinder.find_spec

def find_spec(name, path=None, target=None):
    parts = name.split(".")
    if any(".".join(parts[:count]) in missing for count in range(1, len(parts) + 1)):
        return None
    return find(name, path, target)

importlib.machinery.PathFinder.find_spec = find_spec
from ferrule.cli.exit_codes import run
sys.exit(run(sys.argv[2:]))
"""

CONNECT = """
import asyncio
from ferrule import ConfigError
from ferrule.connectors import McpServer, connect_mcp

async def main():
    try:
        await connect_mcp([McpServer("x", url="http://127.0.0.1:9/mcp")]).open()
    except ConfigError as error:
        print(error)

asyncio.run(main())
"""

RUN = """
from ferrule import Agent, Scripted, tool
from ferrule.testing import calls, says

@tool(side_effect="none")
def bolts(town: str) -> int:
    "Count the bolts in a town."
    return 12

model = Scripted([calls(("bolts", {"town": "Ghent"})), says("There are 12.")])
run = Agent(model, [bolts]).run_sync("How many?")
print(run.text, run.results[0].data)
"""

COMMANDS = {
    "serve openai": "serve",
    "serve ag-ui": "serve",
    "serve a2a": "a2a-server",
    "serve mcp": "mcp",
    "serve mcp --http": "mcp",
    "serve console": "console",
    "models list": "",
    "doctor": "",
    "tools list": "",
    "mcp list": "",
    "sessions list": "",
    "audit verify": "",
    "skills list": "",
    "worker --database postgresql://127.0.0.1:9/x": "scale",
    "--help": "",
    "serve --help": "",
}
"""Commands, and the extra that each needs; "" for those that work with `terminal` alone."""

INTERFACES = {name for name in EXTRAS if name.startswith("ferrule.")}
"""What `ferrule-interfaces` brings."""
WITHOUT = EXTRAS.keys() - {"click", "yaml"} - INTERFACES


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_extras_names_the_line_that_installs_them(
    command: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(WITHOUT), *command.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "FERRULE_MODEL": "scripted:none.yaml",
        },
    )
    said = ended.stdout + ended.stderr
    assert "defect in Ferrule" not in said
    assert "Traceback" not in said
    assert "token:" not in said
    extra = COMMANDS[command]
    if extra:
        assert ended.returncode != 0
        assert f"ferrule[{extra}]" in said


def test_every_library_of_an_extra_is_known_by_the_extra_that_brings_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= extras.keys()


@pytest.mark.parametrize("module", EXTRAS)
def test_a_failed_import_of_it_or_of_a_part_is_explained(module: str) -> None:
    for name in (module, f"{module}.part"):
        known = describe_missing(ModuleNotFoundError(f"No module named {name!r}", name=name))
        assert known is not None
        assert known.hint == f"pip install 'ferrule[{EXTRAS[module]}]'"
        assert known.code == "extra_missing"


@pytest.mark.parametrize("library", ["mcp", "mcp_types"])
def test_a_program_that_connects_to_a_server_reads_the_line_that_installs_what_it_needs(
    library: str, tmp_path: Path
) -> None:
    program = PROGRAM.partition("from ferrule.cli")[0] + CONNECT
    ended = subprocess.run(
        [sys.executable, "-c", program, library],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert f"`{library}`, which is not installed" in ended.stdout
    assert "ferrule[mcp]" in ended.stdout


def test_a_library_that_is_there_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("")
    ended = subprocess.run(
        [sys.executable, "-c", CONNECT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )
    assert "`mcp` is installed, but cannot be used: No module named 'mcp.client'" in ended.stdout
    assert "ferrule[mcp]" in ended.stdout
    lacking = ImportError("cannot import name 'x' from 'jinja2'", name="jinja2")
    known = describe_missing(lacking)
    assert known is not None and known.detail.endswith(f"cannot be used: {lacking}")


def test_other_failures_are_not_explained_away() -> None:
    assert describe_missing(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    assert describe_missing(ImportError("no name")) is None
    assert describe_missing(ValueError("x")) is None


def test_what_is_installed_is_not_missing() -> None:
    require("json")
    with pytest.raises(ConfigError, match="not_there"):
        require("not_there", extra="serve")


@pytest.mark.parametrize("library", ["click", "yaml", "ferrule.cli.exit_codes"])
def test_the_library_alone_says_what_brings_the_terminal(library: str, tmp_path: Path) -> None:
    program = PROGRAM.replace("ferrule.cli.exit_codes import run", "ferrule.cli.entry import main")
    program = program.replace("sys.exit(run(sys.argv[2:]))", "del sys.argv[1]\nmain()")
    own = tmp_path / ".config/ferrule/ferrule.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("model: scripted:x\n")
    ended = subprocess.run(
        [sys.executable, "-c", program, library, "run", "-C", str(tmp_path), "hello"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 2 and "Traceback" not in said
    extra = "files" if library == "yaml" else "cli"
    assert f"`{library.removesuffix('.exit_codes')}`" in said and f"ferrule[{extra}]" in said


@pytest.mark.parametrize(
    ("program", "extra"),
    {
        "import ferrule.web": "serve",
        "from ferrule.plugins import ConsolePage": "console",
        "from ferrule.testing import render_page": "console",
        "from ferrule.engine.plugins.loading import make_plugin; make_plugin('jobs')": "console",
    }.items(),
)
def test_what_needs_an_interface_names_the_line_that_installs_it(
    program: str, extra: str, tmp_path: Path
) -> None:
    program = PROGRAM.partition("from ferrule.cli")[0] + program
    ended = subprocess.run(
        [sys.executable, "-c", program, ",".join(INTERFACES)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert ended.returncode == 1 and f"ferrule[{extra}]" in ended.stderr


@pytest.mark.proves("import.small-dependencies")
def test_an_agent_runs_on_what_the_library_depends_on(tmp_path: Path) -> None:
    """Every other library is missing, also those of the terminal."""
    program = PROGRAM.partition("from ferrule.cli")[0] + RUN
    ended = subprocess.run(
        [sys.executable, "-c", program, ",".join(EXTRAS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert (ended.returncode, ended.stdout) == (0, "There are 12. 12\n"), ended.stderr


EVERY_MODULE = """
import importlib, importlib.machinery, pkgutil, sys
from pathlib import Path

known = set(sys.argv[1].split(","))
find = importlib.machinery.PathFinder.find_spec

def find_spec(name, path=None, target=None):
    spec = find(name, path, target)
    if spec is None or name.split(".")[0] in known:
        return spec
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return None if any("site-packages" in place for place in places) else spec

importlib.machinery.PathFinder.find_spec = find_spec
import ferrule
from ferrule.core.extras import ExtraMissing, describe_missing

for found in pkgutil.walk_packages(ferrule.__path__, "ferrule.", onerror=lambda name: None):
    try:
        importlib.import_module(found.name)
        print(found.name, "loads")
    except ExtraMissing as error:
        print(found.name, "says", error.hint)
    except ImportError as error:
        missing = describe_missing(error)
        print(found.name, "is told of" if missing else "fails:", missing.hint if missing else error)
"""

CORE = (
    "ferrule,ferrule_local,pydantic,pydantic_core,annotated_types,typing_extensions,"
    "typing_inspection,jsonschema_rs,jiter,re2,_re2"
)
"""What `pip install ferrule` brings."""
ENTERED = (
    "ferrule.cli.",
    "ferrule.console.",
    "ferrule.job_engines.",
    "ferrule.runtime.",
    "ferrule.servers.",
    "ferrule.testing.pytest_plugin",
    "ferrule.web",
)
"""What is entered by a command or `open_engine`, which say the line, or by pytest."""


def test_every_module_without_its_library_names_the_line_that_installs_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", EVERY_MODULE, CORE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) > 500
    assert [line for line in lines if " fails: " in line] == []
    told = [line for line in lines if " is told of " in line and not line.startswith(ENTERED)]
    assert told == []
    assert "ferrule.adapters.langchain says pip install langgraph" in lines
    assert "ferrule.adapters.openai_agents says pip install openai-agents" in lines
    assert "ferrule.job_engines.temporal is told of pip install 'ferrule[temporal]'" in lines
    assert "ferrule.testing.journal_conformance says pip install pytest" in lines
