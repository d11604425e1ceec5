"""A real server from PyPI, by the block of its README. One from npm: the first hour. All: `make lab NAME=mcp-servers`."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def real() -> ModuleType:
    """The script that tries all servers."""
    path = Path(__file__).parents[3] / "evals/mcp_servers.py"
    spec = importlib.util.spec_from_file_location("mcp_servers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mcp_servers"] = module
    spec.loader.exec_module(module)
    return module


async def test_a_real_server_starts_from_the_block_of_its_readme(
    real: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = Path(sys.prefix) / "bin"
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{binaries}")
    monkeypatch.setenv("FERRULE_CACHE", str(tmp_path / "cache"))
    server = next(one for one in real.SERVERS if one.entry[0] == "time")
    reason = real.why_not(server)
    if reason:
        pytest.skip(reason)
    real.make_workspace(tmp_path / "work")
    tried = await real.try_server(server, tmp_path / "work", "2026-07-28")
    assert tried.tools >= 2 and tried.answers == ["ok", "ok"]
