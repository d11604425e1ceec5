"""An approval is for what was shown: what changed since is asked about again, and never run."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted
from ferrule.engine import driver
from ferrule.engine.approval_requests import digest_files
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import AllowlistApprover, ApprovalAnswer, ApprovalRequest
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_analysis.named_scripts import find_scripts
from ferrule.permissions.filesystem import Workspace
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.toolkits import commands
from ferrule.toolkits.files import tools as files

LINES = "one\ntwo\nthree\n"


class Person:
    """Says yes, and lets something happen while they read the question."""

    def __init__(self, meanwhile: Callable[[], object], times: int = 1, choice: Any = "once"):
        self.meanwhile = meanwhile
        self.times = times
        self.choice = choice
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        if len(self.asked) <= self.times:
            self.meanwhile()
        if len(self.asked) > 1 and self.choice == "deny later":
            return ApprovalAnswer("deny", by="them")
        grants = [offer.rule for offer in request.offers if offer.choice == self.choice]
        if self.choice in ("session", "remember") and grants:
            return ApprovalAnswer(self.choice, grants[0], by="them")
        return ApprovalAnswer("once", by="them")


async def work(root: Path, person: Any, *steps: tuple[str, dict[str, Any]]) -> list[Any]:
    agent = Agent(
        Scripted([calls(step) for step in steps] + [says("ok")]),
        [*files.TOOLS, *commands.TOOLS],
        workspace=root,
        permissions=Permissions(approver=person),
    )
    try:
        return list((await agent.run("go")).results)
    finally:
        await agent.close()


def write(root: Path, name: str, text: str) -> Callable[[], object]:
    def happen() -> None:
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)

    return happen


CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a new file": ("write_file", {"path": "n.txt", "content": "mine"}, "n.txt"),
    "a file": ("write_file", {"path": "a.txt", "content": "mine"}, "a.txt"),
    "an edit": (
        "edit_file",
        {"path": "a.txt", "old_string": "two", "new_string": "2"},
        "a.txt",
    ),
    "lines": (
        "replace_lines",
        {"path": "a.txt", "line_start": 2, "line_end": 2, "new_content": "2"},
        "a.txt",
    ),
    "an insertion": (
        "insert_lines",
        {"path": "a.txt", "line_start": 2, "new_content": "x"},
        "a.txt",
    ),
    "a removal": ("delete_path", {"path": "a.txt"}, "a.txt"),
    "a removal of a folder": ("delete_path", {"path": "folder"}, "folder/inside.txt"),
    "a move": ("move_path", {"source": "a.txt", "target": "b.txt"}, "a.txt"),
    "a move onto": ("move_path", {"source": "a.txt", "target": "b.txt"}, "b.txt"),
    "a script": ("run_command", {"command": ["bash", "s.sh"]}, "s.sh"),
    "a script of a shell": ("run_command", {"command": "true && bash ./s.sh > out.txt"}, "s.sh"),
    "a program": ("run_command", {"command": ["./s.sh"]}, "s.sh"),
    "a wrapped script": ("run_command", {"command": "timeout 5 bash s.sh"}, "s.sh"),
    "a script in a folder": ("run_command", {"command": "cd folder && sh run.sh"}, "folder/run.sh"),
    "a script beside an option": ("run_command", {"command": "python3 -I x.py"}, "x.py"),
    "a sourced script": ("run_command", {"command": ". ./s.sh"}, "s.sh"),
    "a script as input": ("run_command", {"command": "bash < s.sh"}, "s.sh"),
    "a script from a pipeline": ("run_command", {"command": "cat s.sh | nice bash -s"}, "s.sh"),
    "a module": ("run_command", {"command": "python3 -m x"}, "x.py"),
    "an absent module": ("run_command", {"command": "python3 -m later"}, "later/__main__.py"),
    "a build file": ("run_command", {"command": "make all"}, "Makefile"),
    "scripts of a package": ("run_command", {"command": "npm run build"}, "package.json"),
    "an absent script": ("run_command", {"command": "sh later.sh"}, "later.sh"),
    "a joined module": ("run_command", {"command": "python3 -Bmlater"}, "later.py"),
    "a file of an option": ("run_command", {"command": "awk --file=x.awk a.txt"}, "x.awk"),
    "a file joined to an option": ("run_command", {"command": "make -fx.mk"}, "x.mk"),
    "a file of a program": ("run_command", {"command": "sed -f x.sed a.txt"}, "x.sed"),
    "a file of an unknown program": ("run_command", {"command": "builder x.mk"}, "x.mk"),
    "a package in a folder": (
        "run_command",
        {"command": "npm --prefix folder test"},
        "folder/package.json",
    ),
    "a script where the call starts": (
        "run_command",
        {"command": "sh run.sh", "cwd": "folder"},
        "folder/run.sh",
    ),
    "a program where the call starts": (
        "run_command",
        {"command": "./run.sh", "cwd": "folder"},
        "folder/run.sh",
    ),
    "a build file where the call starts": (
        "run_command",
        {"command": "make all", "cwd": "folder"},
        "folder/Makefile",
    ),
    "a wildcard where the call starts": (
        "run_command",
        {"command": "bash r*.sh", "cwd": "folder"},
        "folder/run.sh",
    ),
    "a quoted command": ("run_command", {"command": "env -S 'bash s.sh'"}, "s.sh"),
    "a wildcard": ("run_command", {"command": "bash s*.sh"}, "s.sh"),
    "a variable": ("run_command", {"command": "S=s.sh; bash $S"}, "s.sh"),
    "a substitution": ("run_command", {"command": "bash $(ls s.sh)"}, "s.sh"),
    "a script's own interpreter": ("run_command", {"command": ["./own"]}, "interpreter"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/inside.txt").write_text("x")
    (tmp_path / "folder/run.sh").write_text("exit 0\n")
    (tmp_path / "a.txt").write_text(LINES)
    (tmp_path / "x.py").write_text("pass\n")
    (tmp_path / "s.sh").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "s.sh").chmod(0o755)
    (tmp_path / "own").write_text("#!./interpreter\n")
    (tmp_path / "own").chmod(0o755)
    return tmp_path


@pytest.mark.proves("approval.is-for-what-was-shown")
@pytest.mark.parametrize("kind", CALLS)
async def test_what_changes_between_question_and_run_is_asked_about_again(
    kind: str, root: Path
) -> None:
    tool, arguments, name = CALLS[kind]
    theirs = "#!/bin/sh\necho theirs > proof.txt\ntwo\n"
    person = Person(write(root, name, theirs), choice="deny later")
    (result,) = await work(root, person, (tool, arguments))
    assert len(person.asked) == 2
    assert "has changed since it was approved" in person.asked[1].reason
    # A yes for this once, and no rule that would cover what was not shown.
    assert person.asked[1].offers == (GrantOffer("once", ""),)
    assert not result.success
    assert (root / name).read_text() == theirs
    assert not (root / "proof.txt").exists()


@pytest.mark.proves("approval.is-for-what-was-shown")
@pytest.mark.parametrize("kind", sorted(CALLS.keys() - {"a variable", "a substitution"}))
async def test_what_stays_as_it_was_is_asked_about_once(kind: str, root: Path) -> None:
    tool, arguments, _ = CALLS[kind]
    person = Person(write(root, "beside.txt", "x"))
    await work(root, person, (tool, arguments))
    assert len(person.asked) == 1


@pytest.mark.proves("approval.is-for-what-was-shown")
async def test_the_new_preview_is_shown_and_a_second_yes_runs_it(root: Path) -> None:
    person = Person(write(root, "n.txt", "theirs\n"))
    (result,) = await work(root, person, ("write_file", {"path": "n.txt", "content": "mine"}))
    assert result.success and (root / "n.txt").read_text() == "mine"
    first, second = person.asked
    assert "theirs" not in first.preview and "-theirs" in second.preview


@pytest.mark.proves("approval.is-for-what-was-shown")
async def test_an_answer_that_grants_more_runs_nothing_that_was_not_shown(root: Path) -> None:
    person = Person(write(root, "s.sh", "echo theirs > proof.txt\n"), choice="session")
    seen: list[bool] = []
    ask = person.ask

    async def look(request: ApprovalRequest) -> ApprovalAnswer:
        seen.append((root / "proof.txt").exists())
        return await ask(request)

    person.ask = look  # pyright: ignore[reportAttributeAccessIssue]
    await work(root, person, ("run_command", {"command": ["bash", "s.sh"]}))
    assert seen == [False, False]


async def test_what_changes_each_time_is_not_run_and_not_asked_about_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = iter(range(100))

    def happen() -> None:
        (root / "a.txt").write_text(str(next(count)))

    person = Person(happen, times=100)
    (result,) = await work(root, person, ("write_file", {"path": "a.txt", "content": "mine"}))
    assert len(person.asked) == driver._MOST_CHANGES + 1  # pyright: ignore[reportPrivateUsage]
    assert not result.success and "changed each time" in (result.error_message or "")


async def test_a_policy_that_answers_in_a_persons_place_is_asked_again_too(root: Path) -> None:
    (result,) = await work(
        root, AllowlistApprover(["write_file"]), ("write_file", {"path": "n", "content": "x"})
    )
    assert result.success


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("bash s.sh", {"s.sh"}),
        ("bash -x s.sh a", {"s.sh", "a"}),
        ("./run --now", {"./run"}),
        ("env A=1 python3 x.py", {"x.py"}),
        ("nice -n 5 sh s.sh", {"s.sh"}),
        ("ls s.sh", set()),
        ("cat a.txt | sh -s", {"a.txt"}),
        ("cat a.txt | sort | sh", {"a.txt"}),
        ("sh < a.txt > b.txt", {"a.txt"}),
        ("cat a.txt | sort", set()),
        ("python3 -m a.b c", {"a/b.py", "a/b/__main__.py", "a.b", "c"}),
    ],
)
def test_scripts_are_found_in_commands(line: str, named: set[str]) -> None:
    parts = analyse_command(line).parts
    found = {name for part in parts for name in find_scripts(part, parts)}
    assert found == named


@pytest.mark.proves("approval.is-for-what-was-shown")
@pytest.mark.parametrize("command", [["bash", "link.sh"], ["./link.sh"], ["bash", "k.pem"]])
async def test_a_script_that_may_not_be_read_is_asked_about_again_without_reading_it(
    command: list[str],
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "real.sh"
    outside.write_text("#!/bin/sh\nexit 0\n")
    outside.chmod(0o755)
    (root / "link.sh").symlink_to(outside)
    (root / "k.pem").write_text("exit 0\n")
    gate, workspace = PermissionGate(root=root), Workspace(root)
    opened: list[str] = []
    real_open = os.open

    def record(path: Any, *given: Any, **more: Any) -> int:
        opened.append(os.fspath(path))
        return real_open(path, *given, **more)

    run = next(tool for tool in commands.TOOLS if tool.name == "run_command")

    def digest() -> Coroutine[Any, Any, str]:
        return digest_files(run, {"command": command}, gate, workspace)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", record)
        before = await digest()
        assert await digest() == before
    (root / "k.pem").write_text("echo theirs\n")
    outside.write_text("#!/bin/sh\necho theirs\n")
    assert await digest() != before
    assert not [path for path in opened if path.endswith((".sh", ".pem"))]
    workspace.close()
