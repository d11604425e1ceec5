"""The types keep what a command could have chosen from what is shown and started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKED = Path(__file__).with_name("provenance_typing.py")


@pytest.mark.proves("programs.one-finder", "sandbox.opened-folders.provenance")
def test_pyright_refuses_a_path_or_program_of_unknown_origin(tmp_path: Path) -> None:
    (tmp_path / CHECKED.name).write_text(CHECKED.read_text(encoding="utf-8"), encoding="utf-8")
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": True,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    pyright = Path(sys.executable).with_name("pyright")
    command = [str(pyright), "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("0 errors, 0 warnings, 0 informations"), done.stdout
