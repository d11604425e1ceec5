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
"""Commands, and the extra that each needs; "" for those that work without any."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_extras_names_the_line_that_installs_them(
    command: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(EXTRAS), *command.split()],
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


def test_other_failures_are_not_explained_away() -> None:
    assert describe_missing(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    assert describe_missing(ImportError("no name")) is None
    assert describe_missing(ValueError("x")) is None


def test_what_is_installed_is_not_missing() -> None:
    require("json")
    with pytest.raises(ConfigError, match="not_there"):
        require("not_there", extra="serve")
