"""What users of other programs reported about their boundaries, tried on ours.

Each test is named in `reports/boundary.yaml`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest
from machine import Machine, decide, make_agent, read_home

from ferrule import Agent, Permissions
from ferrule.cli.permission_prompt import TerminalApprover
from ferrule.cli.terminal import Terminal
from ferrule.core.identity import Identity
from ferrule.engine.hooks.events import Occasion, SessionStart
from ferrule.extensions.diagnostics.checkers import Checker, ProjectChecker
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.models.scripted import Scripted, calls, says
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.git.git_command import git_command

READ_ALL = "cat {0} {0}/* {0}/*/* 2>/dev/null; echo {1} >> {0}/planted 2>/dev/null; true"


@pytest.mark.parametrize(
    "target",
    [".ssh", ".config", ".config/gh", ".local/share/ferrule", ".ssh/id_ed25519", "."],
)
@pytest.mark.parametrize("link", ["x", "data/shared", "venv/bin", ".venv/lib", "env/share"])
def test_a_link_in_the_workspace_shows_nothing_of_the_home(
    machine: Machine, link: str, target: str
) -> None:
    place = machine.root / link
    place.parent.mkdir(parents=True, exist_ok=True)
    if link != "x" and link != "data/shared":
        (place.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")
        (place.parent / "bin").mkdir(exist_ok=True) if place.name != "bin" else None
    place.symlink_to(machine.home / target)
    shown = machine.run(READ_ALL.format(link, "reached"))
    assert machine.canary not in shown
    assert not list(machine.home.glob("**/planted"))


@pytest.mark.parametrize("kind", ["run/docker.sock", ".gnupg/S.gpg-agent", "work/broker.sock"])
def test_no_socket_of_another_program_is_reached(machine: Machine, kind: str) -> None:
    place = machine.home / kind
    place.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    here = os.open(place.parent, os.O_PATH)
    try:
        server.bind(f"/proc/self/fd/{here}/{place.name}")
        server.listen()
        server.settimeout(0.2)
        (machine.root / "link.sock").symlink_to(place)
        code = (
            "import socket\n"
            f"for name in ({str(place)!r}, 'link.sock'):\n"
            "    try:\n"
            "        socket.socket(socket.AF_UNIX).connect(name); print('connected')\n"
            "    except OSError as error:\n"
            "        print(type(error).__name__)\n"
        )
        (machine.root / "probe.py").write_text(code)
        assert "connected" not in machine.run("python3 probe.py || /usr/bin/python3 probe.py")
        with pytest.raises(TimeoutError):
            server.accept()
    finally:
        os.close(here)
        server.close()


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "SECRET_TOKEN",
        "OH_SECRET_KEY",
        "OH_SESSION_API_KEYS_0",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "OPENAI_API_KEY",
        "GH_TOKEN",
        "DATABASE_URL",
        "SUPABASE_SERVICE_ROLE_KEY",
    ],
)
def test_variables_that_are_or_point_to_secrets_do_not_reach_commands(
    machine: Machine, name: str
) -> None:
    shown = machine.run(
        "env; cat /proc/1/environ /proc/self/environ /proc/*/environ 2>/dev/null | tr '\\0' '\\n'",
        **{name: machine.canary},
    )
    assert machine.canary not in shown


@pytest.mark.parametrize(
    "name",
    [
        ".git/hooks/pre-commit",
        ".git/config",
        ".husky/_/pre-commit",
        ".husky/pre-commit",
        ".github/hooks/session.json",
        ".github/workflows/ci.yml",
        ".vscode/tasks.json",
        ".devcontainer/devcontainer.json",
        ".claude/settings.json",
        ".cursor/mcp.json",
        "mise.toml",
        ".mise.local.toml",
        ".config/mise/config.toml",
        ".tool-versions",
        ".envrc.local",
        "lefthook-local.yml",
        ".lefthook/pre-commit/x.sh",
        "bunfig.toml",
        ".perldb",
        ".config/autostart/x.desktop",
        ".config/git/config",
        ".config/systemd/user/x.service",
        ".local/bin/ls",
        ".tmux.conf",
        ".lfsconfig",
        ".helix/languages.toml",
        ".vim/coc-settings.json",
        ".vibe/config.toml",
        "crush.json",
        ".bazeliskrc",
        ".config/nvim/init.lua",
        ".config/direnv/direnvrc",
        ".builds/ci.yml",
    ],
)
def test_what_a_program_outside_runs_later_is_not_written(machine: Machine, name: str) -> None:
    subprocess.run(["git", "init", "-q", str(machine.root)], check=True)
    place = machine.root / name
    before = place.read_bytes() if place.exists() else None
    machine.run(f"mkdir -p {Path(name).parent}; echo planted >> {name}; chmod +x {name}; true")
    assert (place.read_bytes() if place.exists() else None) == before
    assert DEFAULT_NAMES.check(name, write=True) is not None


@pytest.mark.parametrize("exists", [True, False])
def test_the_hooks_folder_that_a_repository_names_is_not_written(
    machine: Machine, exists: bool
) -> None:
    subprocess.run(["git", "init", "-q", str(machine.root)], check=True)
    subprocess.run(
        ["git", "-C", str(machine.root), "config", "core.hooksPath", ".githooks"], check=True
    )
    if exists:
        (machine.root / ".githooks").mkdir()
    machine.run("mkdir -p .githooks; echo planted > .githooks/post-commit; true")
    assert not (machine.root / ".githooks/post-commit").exists()


@pytest.mark.parametrize(
    ("allow", "command"),
    [
        ("Bash(env:*)", "env sh -c 'touch /tmp/x'"),
        ("Bash(ls:*)", "ls && touch x"),
        ("Bash(echo:*)", 'echo "$(whoami > x)"'),
        ("Bash(echo:*)", "echo hi > .bashrc"),
        ("Bash(find:*)", "find . -exec touch x {} +"),
        ("Bash(find:*)", "find . -fprint x"),
        ("Bash(javac:*)", "javac -version -processorpath out -processor Evil A.java"),
        ("Bash(git diff:*)", "git diff --output=/tmp/x"),
        ("Bash(git log:*)", "git log --output=../x"),
        ("Bash(git grep:*)", "git grep --open-files-in-pager='touch x' a"),
        ("Bash(git grep:*)", "git grep -O'touch x' a"),
        ("Bash(git status:*)", "git -c core.pager='touch x' status"),
        ("Bash(git status:*)", "git -c core.fsmonitor=./x status"),
        ("Bash(head:*)", "git log | head /etc/shadow"),
    ],
)
def test_an_allowed_program_does_not_start_another(allow: str, command: str) -> None:
    assert decide(command, allow=(allow,)) != "allow"


@pytest.mark.parametrize(
    ("deny", "command"),
    [
        ("Read(.env)", "cat .env"),
        ("Read(./.env)", "cat .env"),
        ("Read(*/.env*)", "cat backend/.env"),
        ("Read(**/secrets/**)", "cat a/secrets/key.txt"),
        ("Read(notes.txt)", "cat < notes.txt"),
        ("Read(notes.txt)", "cp notes.txt other"),
    ],
)
def test_a_deny_rule_for_a_file_holds_in_commands(deny: str, command: str) -> None:
    assert decide(command, allow=("Bash(*)",), deny=(deny,)) == "deny"


@pytest.mark.parametrize("name", [".env", ".env.local", "prod.env", "a/b/.env.production"])
def test_files_of_variables_are_denied_by_default(name: str) -> None:
    assert decide(f"cat {name}", allow=("Bash(*)",)) == "deny"


@pytest.mark.parametrize(
    "vector",
    [
        "core.fsmonitor={0}",
        "diff.external={0}",
        "filter.x.clean={0}",
    ],
)
def test_a_repositorys_git_configuration_runs_nothing_outside(
    machine: Machine, vector: str
) -> None:
    mark = machine.home / "mark"
    script = machine.root / "evil.sh"
    script.write_text(f"#!/bin/sh\necho ran > {mark}\ncat\n")
    script.chmod(0o755)
    for args in (
        ["init", "-q", "."],
        ["config", vector.split("=")[0], vector.split("=")[1].format(script)],
    ):
        subprocess.run(["git", *args], cwd=machine.root, check=True)
    subprocess.run(["git", "add", "README.md"], cwd=machine.root, check=True)
    (machine.root / "README.md").write_text("Changed\n")
    (machine.root / ".gitattributes").write_text("* filter=x diff=x\n")
    for command in ("status", "diff"):
        subprocess.run(["git", command], cwd=machine.root, check=True, capture_output=True)
    assert mark.exists(), "the control: an ordinary git runs it"
    mark.unlink()
    wanted = [("git_command", {"subcommand": name}) for name in ("status", "diff")]
    model = Scripted([calls(*wanted), says("done")])
    allowed = Permissions(allow=["git_command"])
    agent = Agent(model, [git_command], workspace=machine.root, permissions=allowed)
    answered = agent.run_sync("go")
    assert [result.success for result in answered.results] == [True, True]
    assert not mark.exists()


@pytest.mark.parametrize(
    "before",
    [
        "export GIT_PAGER='touch x'",
        "declare -x GIT_PAGER='touch x'",
        "typeset -x GIT_EXTERNAL_DIFF=./x",
        "readonly PATH=$PWD/bin",
        "set -a; GIT_EXTERNAL_DIFF=./x",
        "unset GIT_CONFIG_NOSYSTEM; export GIT_CONFIG=x",
        "printf -v PATH %s ./bin",
        "read -r PATH < x",
        "alias git=./x",
        "hash -p ./x git",
        "git() { ./x; }",
        "enable -f ./x.so git",
        "source ./x",
        "trap ./x EXIT",
    ],
)
@pytest.mark.parametrize("joined", ["; ", " && ", "\n"])
def test_no_builtin_prepares_another_meaning_of_an_allowed_command(
    before: str, joined: str
) -> None:
    allow = ("Bash(git status:*)", "Bash(git diff:*)")
    assert decide("git status", allow=allow) == "allow"
    assert decide(f"{before}{joined}git status", allow=allow) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git status; touch x",
        "git status && touch x",
        "git status || touch x",
        "git status & touch x",
        "git status | sh",
        "git status\ntouch x",
        "git status $(touch x)",
        "git status `touch x`",
        "git status <(touch x)",
        "git status > .bashrc",
        "git statusx",
        "git status-x",
        "./git status",
        "echo *; rm -rf ~",
        "git status # a\ntouch x",
        "git status \\\n; touch x",
        "git status;touch${IFS}x",
        "{ git status; touch x; }",
        "! git status || touch x",
    ],
)
def test_a_rule_covers_its_command_and_nothing_that_is_joined_to_it(command: str) -> None:
    allow = ("Bash(git status:*)", "Bash(echo:*)")
    assert decide(command, allow=allow) != "allow"


LINKS = {
    "to a file": ("ln -s ../../diary.txt link", "link"),
    "to nothing": ("ln -s ../../planted link", "link"),
    "above new folders": ("ln -s ../.. link", "link/new/folder/planted"),
    "above a new file": ("ln -s ../.. link", "link/planted"),
    "of a link": ("ln -s ../.. first; ln -s first link", "link/planted"),
    "absolute": ("ln -s $HOME link", "link/.ssh/planted"),
    "by dots": ("mkdir link", "link/../../../planted"),
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("made_by", ["repository", "command"])
async def test_no_file_tool_writes_through_a_link(
    machine: Machine, kind: str, made_by: str
) -> None:
    script, name = LINKS[kind]
    if made_by == "command":
        await asyncio.to_thread(machine.run, script)
    else:
        variables = {**os.environ, "HOME": str(machine.home)}
        subprocess.run(["sh", "-c", script], cwd=machine.root, check=True, env=variables)
    before = read_home(machine)
    agent = make_agent(machine)
    try:
        session = agent.session()
        for tool, more in (
            ("write_file", {"content": "x"}),
            ("edit_file", {"old_string": "c", "new_string": "x"}),
            ("create_dir", {}),
            ("delete_path", {}),
        ):
            result = await session.call(tool, path=name, **more)
            # What is in the workspace itself, the link, may be removed.
            assert tool == "delete_path" or not result.success, (tool, result)
        await session.call("move_path", source="README.md", target=name)
    finally:
        await agent.close()
    assert read_home(machine) == before


@pytest.mark.parametrize("folder", ["..", "../..", "/", "/tmp", "~", "link", "link/new", ".."])
async def test_no_working_folder_of_a_command_lies_outside(machine: Machine, folder: str) -> None:
    (machine.root / "link").symlink_to("../..")
    before = read_home(machine)
    agent = make_agent(machine)
    try:
        call = {"command": "echo x > planted; pwd", "cwd": folder}
        result = await agent.session().call("run_command", **call)
    finally:
        await agent.close()
    assert not result.success
    assert read_home(machine) == before


@pytest.mark.parametrize(
    "name",
    [
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".ferrule/ferrule.yaml",
        ".harness/settings.md",
        "ferrule.yaml",
        ".yarnrc.yml",
        ".npmrc",
        ".mcp.json",
        ".cursor/mcp.json",
        ".gemini/settings.json",
        ".codex/config.toml",
        ".vscode/tasks.json",
    ],
)
def test_settings_that_did_not_exist_are_not_made_by_a_command(machine: Machine, name: str) -> None:
    folder = name.rpartition("/")[0] or "."
    machine.run(
        f"mkdir -p {folder}; echo x > {name}; echo x > t; mv t {name}; ln -s README.md {name}; "
        f"ln README.md {name}; mkdir other; echo x > other/$(basename {name}); mv other {folder}"
    )
    assert not os.path.lexists(machine.root / name)


async def test_the_caches_of_checkers_have_no_name_that_others_can_take(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing = Checker("sh", (".py",), ("sh", "-c", "printenv > seen"), whole=True)
    none = available_backends(SandboxPolicy(machine.root), probe())[-1]
    runner = HookCommandRunner(machine.root, policy=SandboxPolicy(machine.root), backend=none)
    checker = ProjectChecker(printing, Workspace(machine.root), runner, 60)
    occasion = Occasion(SessionStart(), Identity("t", "u", "s", "r"))
    try:
        await checker.check("", occasion)
        seen = dict(
            line.split("=", 1)
            for line in (machine.root / "seen").read_text().split("\n")
            if "=" in line
        )
        places = [Path(seen[name]).parents[1] for name in ("MYPY_CACHE_DIR", "CARGO_TARGET_DIR")]
        assert all(place.stat().st_mode & 0o077 == 0 for place in places), places
        assert all(place.name not in ("tmp", "") for place in places)
    finally:
        await runner.close()


@pytest.mark.parametrize("kept", ["linked", "folder linked", "named by XDG"])
def test_the_persons_name_in_git_is_found_wherever_it_is_kept(
    machine: Machine, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(machine.home))
    folder = machine.home / "dotfiles/git"
    folder.mkdir(parents=True)
    (folder / "config").write_text(
        f"[user]\n\tname = A Person\n\temail = p@example.org\n[github]\n\ttoken = {machine.canary}\n"
    )
    if kept == "linked":
        (machine.home / ".gitconfig").symlink_to("dotfiles/git/config")
    elif kept == "folder linked":
        (machine.home / ".config/git").symlink_to("../dotfiles/git")
    else:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(machine.home / "dotfiles"))
    subprocess.run(["git", "init", "-q", str(machine.root)], check=True)
    shown = machine.run("git config user.name; git config github.token; cat ~/.gitconfig")
    assert shown.startswith("A Person\n")
    assert machine.canary not in shown


HIDDEN_NAME = "o\x1b]8;;x\x07y\u202ez\u3164\nrun: ls\r"
"""A link of a terminal, a change of direction, a filler that nobody sees, and another line."""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("run_command", {"command": "make \r\x1b[2K ls"}),
        ("run_command", {"command": "make", "cwd": HIDDEN_NAME}),
        ("delete_path", {"path": HIDDEN_NAME}),
        ("move_path", {"source": f"{HIDDEN_NAME}/a.txt", "target": "q\u202e.txt"}),
        ("write_file", {"path": f"{HIDDEN_NAME}/b.txt", "content": "x\x1b[1A\u200b\x9b2J"}),
    ],
)
async def test_a_question_spells_out_what_would_not_be_seen(
    machine: Machine, tool: str, arguments: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.root / HIDDEN_NAME).mkdir()
    (machine.root / HIDDEN_NAME / "a.txt").write_text("a\n")

    async def answer(prompt: str) -> str:
        return "n"

    approver = TerminalApprover(Terminal(), answer, user="u")
    agent = make_agent(machine, permissions=Permissions(approver=approver))
    try:
        result = await agent.session().call(tool, **arguments)
    finally:
        await agent.close()
    asked = capsys.readouterr().err
    assert not result.success and "permission:" in asked
    lines = asked.split("\n")
    assert [line for line in lines if line and not line.isprintable()] == []
    assert not any("\u3164" in line or line.startswith("run: ls") for line in lines)
