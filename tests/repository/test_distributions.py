"""The distributions that are built from one source tree."""

from __future__ import annotations

import importlib.util
import subprocess

from hatchling.builders.wheel import WheelBuilder
from source import ROOT

BESIDE = ROOT / "packages" / "ferrule-interfaces"


def test_each_file_is_in_the_wheel_of_one_distribution() -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", BESIDE / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    hatch_build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hatch_build)
    library = {file.relative_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    interfaces = set(hatch_build.find_sources().values())
    tracked = subprocess.run(
        ["git", "ls-files", "src/ferrule"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not library & interfaces
    assert library | interfaces >= set(tracked.stdout.splitlines())
    assert {"src/ferrule/web.py", "src/ferrule/cli/entry.py"} <= library
    assert {"src/ferrule/cli/root.py", "src/ferrule/console/static/run.js"} <= interfaces
