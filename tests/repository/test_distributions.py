"""The distributions that are built from one source tree."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import venv
from pathlib import Path

import pytest
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


def test_the_readme_names_a_line_that_pip_can_resolve(tmp_path: Path) -> None:
    """The distributions want each other in this one version, which no index has."""
    line = re.search(
        r"^pip install (.*?) +#", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert line is not None and "'.[all]'" in line[1]
    words = shlex.split(line[1].replace("[all]", "[cli]"))
    paths = [str(one) for word in words for one in sorted(ROOT.glob(word)) or [f"{ROOT}/{word}"]]
    # With the pip that comes with Python, which is what people have.
    venv.create(tmp_path / "new", symlinks=True, with_pip=True)
    pip = [str(tmp_path / "new/bin/pip"), "install", "--dry-run", "--quiet"]
    tried = subprocess.run([*pip, *paths], check=False, capture_output=True, text=True, timeout=600)
    if "satisfies the requirement hatchling" in tried.stderr:
        pytest.skip("no package index can be reached")
    assert tried.returncode == 0, tried.stderr
