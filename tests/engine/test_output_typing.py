"""A strict type checker knows what a run ends with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CHECKED = "output_typing.py"


def test_pyright_infers_the_output_of_runs(tmp_path: Path) -> None:
    (tmp_path / CHECKED).write_text((HERE / CHECKED).read_text(encoding="utf-8"), encoding="utf-8")
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
