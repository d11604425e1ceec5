"""`ferrule init`: the project that it makes works as it is, and nothing is written that a person
did not ask for.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.init.project import project_files
from ferrule.storage.trust import TrustStore

QUIETLY = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:asyncio",
    "-p",
    "no:hypothesispytest",
    "-W",
    "error",
)
"""Without the plugins of this suite."""


def test_a_project_made_in_an_empty_folder_passes_its_tests(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """In processes of their own, as a newcomer runs it."""

    def ran(*words: str) -> str:
        made = subprocess.run(
            words,
            cwd=tmp_path / "shop",
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        return made.stdout + made.stderr

    (tmp_path / "shop").mkdir()
    told = ran(str(Path(sys.executable).with_name("ferrule")), "init")
    wrote = [line for line in told.splitlines() if line.startswith("wrote ")]
    assert wrote == [f"wrote {name}" for name in project_files("shop")]
    assert "4 passed" in ran(sys.executable, "-m", "pytest", *QUIETLY)


def test_the_tools_of_a_new_project_are_valid_pass_their_tests_and_work_once_trusted(
    ferrule: Any, folder: Path
) -> None:
    ferrule("init", "p")
    ferrule("trust", "p", "--revoke")
    assert ferrule("validate", "-C", "p", "--strict").err == "4 files, 0 errors, 0 warnings\n"
    assert "3 of 3 cases passed" in ferrule("tools", "test", "-C", "p").err
    call = ("tools", "call", "count_words", "text=to be", "-C", "p")
    refused = ferrule(*call)
    assert refused.code == 2 and "there is no tool `count_words`" in refused.err
    assert "without a sandbox: tools.py\n" in ferrule("trust", "p", "--yes").err
    assert ferrule(*call).out == '{"words":2,"longest":"to"}\n'


def test_the_hook_of_a_new_project_is_asked_once_it_is_trusted(ferrule: Any, folder: Path) -> None:
    push = ("tools", "call", "run_command", "command=git push", "--allow", "run_command")
    assert ferrule("init", "p").code == 0
    assert ferrule("trust", "p", "--revoke").code == 0
    assert "pushing is done by a person" not in ferrule(*push, "-C", "p").err
    assert ferrule("trust", "p", "--yes").code == 0
    assert "pushing is done by a person" in ferrule(*push, "-C", "p").err


def test_what_init_wrote_is_trusted_as_it_stands_and_it_says_what_to_do_next(
    ferrule: Any, folder: Path
) -> None:
    made = ferrule("init", "my shop")
    assert (made.code, made.out) == (0, "")
    commands = made.err.partition("next:\n")[2].splitlines()[:3]
    assert [line.split("  ")[1] for line in commands] == [
        "python -m pytest",
        "ferrule tools list",
        "ferrule chat",
    ]
    assert "cd 'my shop'" in made.err and "a change asks again" in made.err
    assert TrustStore().state("my shop") == "trusted"
    Path("my shop/tools.py").write_text("")
    assert TrustStore().state("my shop") == "changed"


def test_init_says_how_to_get_pytest_where_it_is_not_installed(
    ferrule: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pip install pytest" not in ferrule("init", "one").err
    find = importlib.util.find_spec

    def find_no_pytest(name: str, package: str | None = None) -> Any:
        return None if name == "pytest" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_no_pytest)
    steps = ferrule("init", "two").err.partition("next:\n")[2].splitlines()
    assert steps[0].startswith("  pip install pytest ")
    assert steps[1].startswith("  python -m pytest ")


@pytest.mark.parametrize(
    "name", [".ferrule/hooks/theirs.md", "harness.md", ".harness/tools/theirs.md", ".mcp.json"]
)
def test_a_folder_that_brought_something_before_is_not_trusted_by_init(
    ferrule: Any, folder: Path, name: str
) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("")
    made = ferrule("init")
    assert made.code == 0 and "ferrule trust " in made.err and "until you trust it" in made.err
    assert TrustStore().state(".") == "untrusted"


def test_init_does_not_trust_a_link_that_it_finds(ferrule: Any, folder: Path) -> None:
    Path(".harness").symlink_to("/tmp")
    assert "until you trust it" in ferrule("init").err
    assert TrustStore().state(".") == "untrusted"


def test_a_file_that_is_there_is_not_replaced_and_nothing_else_is_written(
    ferrule: Any, folder: Path
) -> None:
    Path("tools.py").write_text("mine")
    refused = ferrule("init")
    assert refused.code == 2
    assert "`tools.py` exists; nothing was written" in refused.err
    assert "--force replaces them; --settings-only writes only the settings" in refused.err
    assert (
        sorted(os.listdir()) == ["note.txt", "tools.py"] and Path("tools.py").read_text() == "mine"
    )
    forced = ferrule("init", "--force")
    assert forced.code == 0
    assert [line for line in forced.err.splitlines() if line.startswith("replaced")] == [
        "replaced tools.py"
    ]
    assert Path("tools.py").read_text() == project_files("work")["tools.py"]


@pytest.mark.parametrize("name", ["tests", ".ferrule", ".ferrule/hooks"])
def test_a_project_is_not_written_through_a_link(
    ferrule: Any, folder: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).symlink_to(outside)
    for force in ((), ("--force",)):
        refused = ferrule("init", *force)
        assert refused.code == 2 and "is a link; nothing was written through it" in refused.err
    assert list(outside.iterdir()) == [] and not Path("README.md").exists()


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(
    ferrule: Any, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("kept")
    Path("README.md").symlink_to(tmp_path / "secret")
    assert ferrule("init").code == 2
    assert ferrule("init", "--force").code == 0
    assert (tmp_path / "secret").read_text() == "kept" and not Path("README.md").is_symlink()


def test_settings_that_are_there_are_not_replaced_and_only_force_is_offered(
    ferrule: Any, folder: Path
) -> None:
    settings = Path(".ferrule/ferrule.yaml")
    assert ferrule("init", "--settings-only").code == 0
    assert sorted(os.listdir()) == [".ferrule", "note.txt"]
    settings.write_text("mine")
    refused = ferrule("init", "--settings-only")
    assert (refused.code, settings.read_text()) == (2, "mine")
    assert "--force replaces it\n" in refused.err and "--settings-only" not in refused.err
    assert ferrule("init", "--settings-only", "--force").code == 0
    assert settings.read_text() != "mine"


def test_a_folder_that_cannot_be_made_is_said(ferrule: Any, folder: Path) -> None:
    refused = ferrule("init", "note.txt/below")
    assert refused.code == 2 and "cannot write below `note.txt/below`" in refused.err
