"""The command line keeps large results as the settings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule.cli.terminal_agent import TerminalAssembly, assemble_at_terminal
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import RunArtifacts


def artifacts_of(assembly: TerminalAssembly) -> RunArtifacts:
    kept = assembly.agent.artifacts
    assert kept is not None and isinstance(kept.store, FileArtifactStore)
    return kept


def test_the_settings_say_from_which_size_on_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly = assemble_at_terminal({"workspace": str(tmp_path)})
    assert artifacts_of(assembly).threshold == 32_768
    assert "artifact_read" in assembly.agent.catalog and "artifact_fetch" in assembly.agent.catalog
    monkeypatch.setenv("FERRULE_ARTIFACTS_THRESHOLD", "2048")
    assert artifacts_of(assemble_at_terminal({"workspace": str(tmp_path)})).threshold == 2048


def test_without_the_tools_that_read_them_the_model_gets_no_stubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_TOOLS_DENIED", "artifact_read")
    assembly = assemble_at_terminal({"workspace": str(tmp_path)})
    assert artifacts_of(assembly).threshold is None
    assert "artifact_read" not in assembly.agent.catalog


@pytest.mark.parametrize(
    ("written", "threshold"),
    [("threshold: 4096", 4096), ("heavy_output_threshold_bytes: 8192", 8192)],
)
def test_a_file_may_lower_the_threshold(
    own_folders: Path, tmp_path: Path, written: str, threshold: int
) -> None:
    (own_folders / "config").mkdir()
    (own_folders / "config" / "ferrule.yaml").write_text(f"artifacts:\n  {written}\n")
    assert artifacts_of(assemble_at_terminal({"workspace": str(tmp_path)})).threshold == threshold
