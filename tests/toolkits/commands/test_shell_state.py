"""The shell of a session: what one command leaves is what the next one begins with."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Session
from ferrule.core.calls import ErrorType
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.plugins import Parts
from ferrule.sandbox.backends import selection
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.testing import RecordingApprover
from ferrule.toolkits import COMMAND_TOOLS
from ferrule.toolkits.commands import CommandPolicy

ANY = ["run_command"]


class Shell:
    """A session whose commands run as a model would run them."""

    def __init__(self, folder: Path, policy: CommandPolicy, **permissions: Any) -> None:
        self.folder = folder
        self.answers = ["once"]
        self.approver = RecordingApprover(self._answer)
        rules = {"allow": ANY, "approver": self.approver, **permissions}
        self.agent = Agent(
            Scripted([]),
            COMMAND_TOOLS,
            workspace=folder,
            permissions=Permissions(**rules),
            plugins=[Parts(resources=[policy])],
        )
        self.session: Session = self.agent.session()

    def _answer(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(self.answers[0], by="test")

    async def call(self, command: object, **more: Any) -> Any:
        return await self.session.call("run_command", command=command, **more)

    async def run(self, command: object, **more: Any) -> str:
        result = await self.call(command, **more)
        assert result.success, result.error_message
        return str(result.data)


@pytest.fixture
async def shell(tmp_path: Path) -> Any:
    (tmp_path / "sub/deep").mkdir(parents=True)
    try:
        selection.choose_backend(SandboxPolicy(tmp_path), probe())
    except MissingProtections:
        pytest.skip("this machine cannot hold commands as required")
    made = Shell(tmp_path, CommandPolicy())
    yield made
    await made.session.close()


async def test_folder_and_exported_variables_live_on_and_end_with_a_restart(shell: Shell) -> None:
    moved = await shell.run("cd sub && export WHO=ada; own=1; cd deep")
    assert moved == "(no output)\n[the next command starts in `sub/deep`]"
    assert await shell.run("pwd") == f"{shell.folder}/sub/deep\n"
    assert await shell.run("echo $WHO-$own; false") == "ada-\n[exit status 1]"
    assert await shell.run(["printenv", "WHO"]) == "ada\n"
    assert await shell.run("ls", cwd="sub") == "deep\n"
    assert "[the next command starts in `sub`]" in await shell.run("unset WHO; cd ..")
    assert await shell.run('echo "<$WHO>" && pwd') == f"<>\n{shell.folder}/sub\n"
    again = await shell.run('echo "<$WHO>" && pwd', restart=True)
    assert again == f"<>\n{shell.folder}\n"
    odd = 'a b"c\\d$e`f`' + "'g' ü="
    await shell.run(f"export ODD={shlex.quote(odd)}")
    assert await shell.run(["printenv", "ODD"]) == odd + "\n"
    other = shell.agent.session()
    await shell.run("cd sub")
    assert (await other.call("run_command", command="pwd")).data == f"{shell.folder}\n"
    await other.close()


async def test_an_activated_environment_lives_on(shell: Shell) -> None:
    programs = shell.folder / "env/bin"
    programs.mkdir(parents=True)
    (programs / "greet").write_text("#!/bin/sh\necho hello from $VIRTUAL_ENV\n")
    (programs / "greet").chmod(0o755)
    (programs / "activate").write_text(
        f"export VIRTUAL_ENV={shlex.quote(str(shell.folder / 'env'))}\n"
        'export PATH="$VIRTUAL_ENV/bin:$PATH" VIRTUAL_ENV_PROMPT="(env) " PS1="(env) "\n'
    )
    await shell.run("source env/bin/activate")
    assert await shell.run("greet") == f"hello from {shell.folder}/env\n"


STATES: dict[str, str] = {
    "function": "ls() { echo planted; }; export -f ls; export A=1",
    "function as a variable": 'export "BASH_FUNC_ls%%=() { echo planted; }" || export A=1',
    "alias": "shopt -s expand_aliases; alias ls='echo planted'; export A=1",
    "start-up file": "export BASH_ENV=$PWD/start",
    "start-up file of sh": "export ENV=$PWD/start",
    "prompt": "export PROMPT_COMMAND='echo planted' PS4='$(echo planted >&2)'",
    "trap": "trap 'echo planted' DEBUG; export A=1",
    "built-in switched off": "enable -n printf; export A=1",
    "separator": "export IFS=s",
    "arguments": "set -- planted; export A=1",
    "library": "export LD_PRELOAD=./start.so",
}
"""What a shell would carry on to its next command."""


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
async def test_nothing_that_a_command_leaves_is_run_by_the_next_one(
    shell: Shell, state: str
) -> None:
    (shell.folder / "start").write_text("echo planted\n")
    await shell.call(state)
    assert await shell.run("ls && cat /dev/null") == "start\nsub\n"


@pytest.mark.parametrize("value", ["", "sub", "$PWD/sub"])
async def test_a_search_path_without_a_shell_is_not_kept(shell: Shell, value: str) -> None:
    assert "its PATH is not kept" in await shell.run(f"export PATH={value} A=1")
    assert await shell.run(["printenv", "A"]) == "1\n"
    assert await shell.run("ls") == "sub\n"


async def test_a_folder_outside_or_gone_is_not_kept(shell: Shell) -> None:
    left = await shell.run("cd sub/deep && cd $(printf /tm%s p) && pwd")
    assert left.startswith(
        "/tmp\n[the next command starts in `.`: where this one ended lies outside"
    )
    await shell.run("cd sub/deep")
    (shell.folder / "sub/deep").rmdir()
    gone = await shell.call("pwd")
    assert gone.error_type is ErrorType.NOT_FOUND
    assert await shell.run("pwd", restart=True) == f"{shell.folder}\n"


async def test_names_are_judged_from_the_folder_that_was_carried(shell: Shell) -> None:
    (shell.folder / "sub/.env").write_text("secret")
    (shell.folder / "sub/deep/.git/hooks").mkdir(parents=True)
    await shell.run("cd sub")
    assert await shell.run("ls -d deep ../sub") == "../sub\ndeep\n"
    # Not the folder above: the tests lie in `/tmp`, which is the session's own for commands.
    etc = os.path.relpath("/etc", shell.folder / "sub")
    for text in ("cat .env", f"ls {etc}", "touch deep/.git/hooks/x", f"cd {etc}"):
        refused = await shell.call(text)
        assert refused.error_type is ErrorType.PERMISSION_DENIED, text
    assert await shell.run("ls -d ..", cwd="sub/deep") == "..\n"
    away = await shell.call(
        f"ls {os.path.relpath('/etc', shell.folder / 'sub/deep')}", cwd="sub/deep"
    )
    assert away.error_type is ErrorType.PERMISSION_DENIED
    from_top = f"ls {os.path.relpath('/etc', shell.folder)}"
    again = await shell.call(from_top, restart=True)
    assert again.error_type is ErrorType.PERMISSION_DENIED
    assert await shell.run("pwd") == f"{shell.folder}/sub\n"
    shell.session.set_mode("acceptEdits")
    assert await shell.run("ls -d ../sub") == "../sub\n"
    shell.agent.copy().take_over(shell.session)
    assert await shell.run("ls -d ../sub") == "../sub\n"
    assert (await shell.call(f"ls {etc}")).error_type is ErrorType.PERMISSION_DENIED


async def test_a_rule_for_a_command_does_not_cover_it_with_what_was_carried(
    shell: Shell,
) -> None:
    await shell.session.close()
    shell = Shell(shell.folder, CommandPolicy(), allow=["Bash(printenv:*)", "Bash(cd:*)"])
    assert await shell.run("printenv HOME; cd sub") != ""
    assert not shell.approver.requests
    await shell.run("export PATH=planted:$PATH WHO=ada")
    shell.answers = ["deny"]
    without = await shell.run("printenv PATH WHO")
    assert "planted" not in without and "ada" not in without
    assert "[it ran without `PATH`, `WHO`, which earlier commands have set" in without
    question = shell.approver.requests[-1]
    assert "earlier commands have set `PATH`, `WHO`" in question.reason
    assert "with PATH=" in question.preview and "in `sub`" in question.preview
    shell.answers = ["once"]
    asked = len(shell.approver.requests)
    assert "planted" in await shell.run("printenv PATH")
    assert "ada" in await shell.run("printenv WHO")
    assert len(shell.approver.requests) == asked + 1
    await shell.run("export WHO=eve")
    await shell.run("printenv WHO")
    assert "earlier commands have set `WHO`" in shell.approver.requests[-1].reason
    assert "planted" not in await shell.run("printenv PATH", restart=True)
    await shell.session.close()


async def test_what_a_program_writes_as_state_sets_nothing_that_loads_code(shell: Shell) -> None:
    forge = shell.folder / "forge.py"
    forge.write_text(
        "import os, re\n"
        "line = open(f'/proc/{os.getppid()}/cmdline').read()\n"
        "name = re.search(r'>>(\\S+/\\.copies/[0-9a-f]+)', line)[1]\n"
        "print(name)\n"
        "open(name, 'wb').write(b'\\0declare -x LD_PRELOAD=\"x\"\\ndeclare -x WHO=\"eve\"\\n\\0/etc\\n')\n"
    )
    left = await shell.run("cd . && python3 forge.py; trap - EXIT")
    assert ".copies" in left and "lies outside the workspace" in left
    seen = await shell.run("pwd; printenv LD_PRELOAD; printenv WHO")
    assert seen == f"{shell.folder}\neve\n"


async def test_a_command_in_the_background_is_reported_and_ended_by_a_restart(
    shell: Shell,
) -> None:
    begun = await shell.run("echo up; sleep 1000", background=True)
    assert "running in the background" in begun
    await shell.run("cd sub")
    assert await shell.run("pwd", restart=True) == f"{shell.folder}\n"
    commands = shell.session.driver.memory["ferrule.commands"]
    assert commands.running_count == 0


@pytest.mark.parametrize(
    ("permissions", "asked", "written"),
    [
        ({"allow": ["Bash(cd:*)", "Bash(echo:*)", "Edit(/out)"]}, 1, True),
        ({"allow": ["Bash(cd:*)", "Bash(echo:*)", "Edit(**)"]}, 0, True),
        ({"allow": ["Bash(cd:*)", "Bash(echo:*)", "Edit(/out)"], "deny": ["Edit(sub/**)"]}, 0, False),
        ({"allow": ["Bash(cd:*)"]}, 1, True),
        ({"allow": ["Bash(cd:*)"], "deny": ["Edit(sub/**)"]}, 0, False),
    ],
)  # fmt: skip
async def test_calls_of_one_answer_are_judged_where_they_start(
    shell: Shell, permissions: dict[str, Any], asked: int, written: bool
) -> None:
    steps = [
        calls(("run_command", {"command": "cd sub"}), ("run_command", {"command": "echo 1 > out"})),
        says("done"),
    ]
    agent = Agent(
        Scripted(steps),
        COMMAND_TOOLS,
        workspace=shell.folder,
        permissions=Permissions(approver=shell.approver, **permissions),
        plugins=[Parts(resources=[CommandPolicy()])],
    )
    await agent.run("go")
    assert (shell.folder / "sub/out").exists() is written
    assert not (shell.folder / "out").exists()
    assert len(shell.approver.requests) == asked
    assert all("sub" in request.preview for request in shell.approver.requests)


async def test_a_folder_that_is_gone_ends_one_command_and_not_all(shell: Shell) -> None:
    await shell.run("cd sub/deep")
    (shell.folder / "sub/deep").rmdir()
    refused = await shell.call("pwd")
    assert refused.error_type == ErrorType.NOT_FOUND
    assert "nothing was run" in refused.error_message and "starts in `sub`" in refused.error_message
    assert await shell.run("basename $PWD") == "sub\n"


async def test_a_workspace_that_was_made_anew_is_found_again(shell: Shell) -> None:
    await shell.run("echo one > one.txt; cd sub")
    shutil.rmtree(shell.folder)
    assert not (await shell.call("pwd")).success
    shell.folder.mkdir()
    (shell.folder / "two.txt").write_text("two\n")
    await shell.call("pwd")
    assert await shell.run("ls; echo three > three.txt") == "two.txt\n"
    assert (shell.folder / "three.txt").read_text() == "three\n"
