"""`apply_patch`: patches become calls of the tools that change files, all checked before the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Session
from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall
from ferrule.testing import RecordingApprover
from ferrule.toolkits import COMMAND_TOOLS, FILE_TOOLS
from ferrule.toolkits.files.patch import FileChange, Hunk, parse_patch
from ferrule.toolkits.files.patch_tool import apply_patch, find_command_patch

PATCH = """*** Begin Patch
*** Update File: a.py
@@ def two():
     one = 1
-    return one
+    return one + 1
*** Add File: new/b.txt
+hello
+
+there
*** Update File: old.txt
*** Move to: moved.txt
-x
+y
*** Delete File: gone.txt
*** End Patch"""
A = "def one():\n    one = 1\n    return one\n\n\ndef two():\n    one = 1\n    return one\n"
CHANGED = (
    "def one():\n    one = 1\n    return one\n\n\ndef two():\n    one = 1\n    return one + 1\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(A)
    (tmp_path / "old.txt").write_text("w\nx\n")
    (tmp_path / "gone.txt").write_text("")
    (tmp_path / ".env").write_text("KEY=secret\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/c.txt").write_text("1\n2\n")
    return tmp_path


def open_session(folder: Path, **permissions: Any) -> tuple[Session, RecordingApprover]:
    approver = RecordingApprover()
    given = {"allow": ["Edit(**)", "run_command"], "approver": approver, **permissions}
    agent = Agent(
        Scripted([]),
        [*FILE_TOOLS, *COMMAND_TOOLS, apply_patch],
        workspace=folder,
        permissions=Permissions(**given),
    )
    return agent.session(), approver


def test_a_patch_is_parsed_into_changes_of_files() -> None:
    two = Hunk(
        ("    one = 1", "    return one"), ("    one = 1", "    return one + 1"), ("def two():",)
    )
    assert parse_patch(PATCH) == [
        FileChange("update", "a.py", hunks=(two,)),
        FileChange("add", "new/b.txt", content="hello\n\nthere\n"),
        FileChange("update", "old.txt", "moved.txt", hunks=(Hunk(("x",), ("y",)),)),
        FileChange("delete", "gone.txt"),
    ]
    diff = "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@ def f\n-x\n+y\n z\n"
    assert parse_patch(diff) == [
        FileChange("update", "a", hunks=(Hunk(("x", "z"), ("y", "z"), ("def f",)),))
    ]
    made = "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert parse_patch(made) == [FileChange("add", "n", content="x\n"), FileChange("delete", "o")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 of the patch"),
        ("*** Begin Patch\n*** End Patch", "changes no file"),
        ("*** Begin Patch\nx\n*** End Patch", "line 2 of the patch: found 'x'"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "line 3 of the patch"),
        ("*** Begin Patch\n*** Update File: a\n@@\n x\n*** End Patch", "nothing of what to change"),
        ("*** Begin Patch\n*** Update File: a\n-x\ny\n*** End Patch", "line 4 of the patch"),
    ],
)
def test_what_is_no_patch_is_refused_by_its_line(text: str, said: str) -> None:
    with pytest.raises(RetryCall, match=said):
        parse_patch(text)


@pytest.mark.proves("patch.as-calls")
async def test_each_file_of_a_patch_is_a_call_of_its_own(folder: Path) -> None:
    session, approver = open_session(folder, allow=[])
    result = await session.call("apply_patch", input=PATCH)
    assert result.success, result.error_message
    assert [request.call.tool for request in approver.requests] == [
        "edit_file", "write_file", "edit_file", "move_path", "delete_path",
    ]  # fmt: skip
    assert "+    return one + 1" in approver.requests[0].preview
    assert (folder / "a.py").read_text() == CHANGED
    assert (folder / "new/b.txt").read_text() == "hello\n\nthere\n"
    assert (folder / "moved.txt").read_text() == "w\ny\n"
    assert not (folder / "old.txt").exists() and not (folder / "gone.txt").exists()
    await session.close()


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("*** Update File: old.txt\n-absent\n+y", "the hunk's old text"),
        ("*** Update File: a.py\n-    one = 12345\n+y", "Send the patch again with them"),
        ("*** Update File: .env\n-KEY=secret\n+KEY=mine", "secret"),
        ("*** Update File: ../x\n-1\n+2", "leads out of the workspace"),
        ("*** Add File: old.txt\n+x", "exists already"),
        (
            "*** Update File: a.py\n     one = 1\n-    return one\n+    return 2",
            "fits at lines 2, 7",
        ),
    ],
)
async def test_a_patch_that_does_not_fit_or_may_not_changes_nothing(
    folder: Path, second: str, said: str
) -> None:
    session, _ = open_session(folder)
    first = "*** Begin Patch\n*** Update File: sub/c.txt\n-1\n+one\n"
    result = await session.call("apply_patch", input=f"{first}{second}\n*** End Patch")
    assert not result.success
    assert said in str(result.error_message)
    assert "KEY=secret" not in str(result.error_message)
    assert (folder / "sub/c.txt").read_text() == "1\n2\n"
    await session.close()


async def test_what_was_done_before_a_refused_call_is_said(folder: Path) -> None:
    session, _ = open_session(folder, allow=["Edit(a.py)"], approver=RecordingApprover(["deny"]))
    result = await session.call("apply_patch", input=PATCH)
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert "stopped at `new/b.txt`" in str(result.error_message)
    assert "Done before it: replaced the text at line 6" in str(result.error_message)
    unseen = await session.call(
        "apply_patch", input="*** Begin Patch\n*** Update File: sub/c.txt\n-3\n+4\n*** End Patch"
    )
    assert "does not fit `sub/c.txt`" in str(unseen.error_message)
    assert "1: 1" not in str(unseen.error_message)
    await session.close()


SUB = "*** Begin Patch\n*** Update File: sub/c.txt\n-1\n+$one\n*** End Patch"


@pytest.mark.proves("patch.in-a-command")
@pytest.mark.parametrize(
    ("command", "folder_of"),
    [
        (f"apply_patch <<'EOF'\n{SUB}\nEOF", ""),
        (f"apply_patch << 'PATCH'\n{SUB}\nPATCH\n", ""),
        (f'cd sub && apply_patch <<"EOF"\n{SUB.replace("sub/", "")}\nEOF', "sub"),
        (["apply_patch", SUB], ""),
        (["bash", "-lc", f"apply_patch <<'EOF'\n{SUB}\nEOF"], ""),
    ],
)
async def test_a_patch_in_a_command_is_applied_as_a_patch(
    folder: Path, command: Any, folder_of: str
) -> None:
    found = find_command_patch(command)
    assert found is not None and found[1] == folder_of
    session, _ = open_session(folder)
    result = await session.call("run_command", command=command)
    assert result.success, result.error_message
    assert (folder / "sub/c.txt").read_text() == "$one\n2\n"
    refused = "*** Begin Patch\n*** Update File: .env\n-KEY=secret\n+K\n*** End Patch"
    denied = await session.call("run_command", command=["apply_patch", refused])
    assert denied.error_type is ErrorType.PERMISSION_DENIED
    await session.close()


@pytest.mark.proves("patch.in-a-command")
@pytest.mark.parametrize(
    "command",
    [
        f"apply_patch <<EOF\n{SUB}\nEOF",
        f"apply_patch <<'EOF'\n{SUB}\nEOF\nrm -rf sub",
        "git apply_patch x",
        ["apply_patch"],
    ],
)
def test_what_a_shell_would_read_otherwise_is_left_to_the_shell(command: Any) -> None:
    assert find_command_patch(command) is None


async def test_a_patch_whose_move_cannot_be_made_changes_nothing(folder: Path) -> None:
    session, _ = open_session(folder)
    result = await session.call(
        "apply_patch",
        input="*** Begin Patch\n*** Update File: sub/c.txt\n*** Move to: old.txt\n-1\n+0\n*** End Patch",
    )
    assert result.error_message is not None and "`old.txt` exists already" in result.error_message
    assert (folder / "sub/c.txt").read_text() == "1\n2\n"


async def test_a_place_that_a_patch_has_freed_can_be_filled_by_it(folder: Path) -> None:
    session, _ = open_session(folder, allow=["Edit(**)"])
    result = await session.call(
        "apply_patch",
        input="*** Begin Patch\n*** Delete File: old.txt\n*** Add File: old.txt\n+new\n"
        "*** Delete File: gone.txt\n*** Update File: sub/c.txt\n*** Move to: gone.txt\n-1\n+0\n"
        "*** End Patch",
    )
    assert result.success, result
    assert (folder / "old.txt").read_text() == "new\n"
    assert (folder / "gone.txt").read_text() == "0\n2\n"


async def test_a_move_of_a_patch_to_the_same_place_is_none(folder: Path) -> None:
    session, _ = open_session(folder)
    for target in ("sub/c.txt", "./sub/../sub/c.txt"):
        patch = f"*** Begin Patch\n*** Update File: sub/c.txt\n*** Move to: {target}\n-1\n+1\n*** End Patch"
        result = await session.call("apply_patch", input=patch)
        assert result.success, result
    assert (folder / "sub/c.txt").read_text() == "1\n2\n"
