"""What the sandbox refused a command is said with the line that opens it, and a person can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_world import World

from ferrule.core.errors import ToolFailed
from ferrule.permissions import provenance
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver
from ferrule.sandbox.backends import selection
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.network.proxy import Proxy
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.commands import CommandPolicy

PROXY_DEFAULTS = dict(Proxy.__init__.__kwdefaults__ or {})
ASK = (
    "import os, socket; from urllib.parse import urlsplit\n"
    "proxy = urlsplit(os.environ['HTTPS_PROXY'])\n"
    "with socket.create_connection((proxy.hostname, proxy.port)) as peer:\n"
    "    peer.sendall(b'CONNECT HOST HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
    "    print(peer.recv(400).decode()); raise SystemExit(1)\n"
)
"""Asks the sandbox's proxy for HOST, and fails."""
WAIT_SECONDS = 60
"""How long something may take that must happen."""


class Person:
    """Gives answers in turn, and keeps the questions."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        choice: Any = self.answers.pop(0)
        offer = next((one for one in request.offers if one.choice == choice), None)
        assert choice == "deny" or offer is not None, request.offers
        return ApprovalAnswer(choice, offer.rule if offer else "", by="person")


@pytest.fixture
def remembered() -> list[Opening]:
    return []


@pytest.fixture
def held(
    world: World, tmp_path_factory: pytest.TempPathFactory, remembered: list[Opening]
) -> World:
    policy = SandboxPolicy(world.folder)
    try:
        name = selection.choose_backend(policy, probe()).name
    except MissingProtections:
        pytest.skip("this machine cannot hold commands as required")
    if name == "landlock":
        pytest.skip("Landlock alone does not see what is refused")
    world.set(
        CommandPolicy(
            shell_allowed=True,
            confine=policy,
            remember_opening=remembered.append,
            closed_folders=(str(tmp_path_factory.mktemp("state")),),
        )
    )
    return world


@pytest.fixture
def ask(held: World) -> Callable[..., Person]:
    def make(*answers: str) -> Person:
        person = held.resources[Approver] = Person(*answers)
        return person

    return make


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the person outside the workspace, with a secret in it."""
    folder = tmp_path_factory.mktemp("outside") / "shelf"
    folder.mkdir()
    (folder / ".env").write_text("TOKEN=private")
    return folder


def notes(record: dict[str, Any]) -> str:
    return "\n".join(record.get("notes", ()))


async def test_a_refused_write_is_said_with_the_line_that_opens_it(
    held: World, outside: Path
) -> None:
    record = await held.run(f"echo x > '{outside}/new.txt'")
    assert record["exit_code"] != 0
    assert f"refused to write `{outside}/new.txt`" in notes(record)
    assert f'sandbox: {{writable: ["{outside}"]}}' in notes(record)
    assert not (outside / "new.txt").exists()


@pytest.mark.proves("sandbox.own-code")
async def test_a_write_into_the_environment_of_ferrule_says_why_and_what_to_do(
    held: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = held.folder / ".venv/lib/python3.12/site-packages"
    site.mkdir(parents=True)
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter([str(held.folder / ".venv")]))
    for script in (f"mkdir '{site}/package'", "mkdir .venv/lib/python3.12/site-packages/package"):
        record = await held.run(script)
        assert record["exit_code"] != 0
        assert f"Ferrule itself runs from `{held.folder}/.venv`" in notes(record)
        assert "`uv tool install ferrule`" in notes(record)


async def test_a_person_opens_a_folder_for_one_command(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    person = ask("once", "deny")
    record = await held.run(f"echo x > '{outside}/new.txt'")
    assert record["success"] and "run again after a person opened" in notes(record)
    assert (outside / "new.txt").read_text() == "x\n"
    asked = person.asked[0]
    assert asked.tool.name == "open_for_commands" and asked.risk == "critical"
    assert f"opens: {outside}" in asked.preview.splitlines()
    assert asked.values["write"] == str(outside)
    # The next command does not have it, and the same session's home is still there.
    record = await held.run(f"echo y > '{outside}/new.txt'")
    assert not record["success"] and len(person.asked) == 2
    assert "not opened" in notes(record)
    assert (outside / "new.txt").read_text() == "x\n"
    # A no is not asked about twice.
    assert not (await held.run(f"echo y > '{outside}/new.txt'"))["success"]
    assert len(person.asked) == 2


async def test_a_yes_for_the_session_or_for_good_holds_for_later_commands(
    held: World, outside: Path, ask: Callable[..., Person], remembered: list[Opening]
) -> None:
    person = ask("remember")
    await held.run("echo kept > ~/mine; echo kept > /tmp/mine")
    record = await held.run(f"echo x > '{outside}/new.txt'")
    assert record["success"] and remembered == [Opening("write", str(outside))]
    again = await held.run(f"cat ~/mine /tmp/mine; echo y > '{outside}/more.txt'")
    assert again["success"] and again["stdout"] == "kept\nkept\n" and len(person.asked) == 1


async def test_what_is_secret_or_reserved_in_an_opened_folder_stays_covered(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    ask("session")
    record = await held.run(f"echo x > '{outside}/new.txt'; cat '{outside}/.env'")
    assert (outside / "new.txt").exists() and "private" not in str(record)
    record = await held.run(
        f"cat '{outside}/.env'; mkdir -p '{outside}/.ferrule'; echo > '{outside}/.env'"
    )
    assert not record["success"] and "private" not in str(record)
    assert not (outside / ".ferrule").exists()
    assert (outside / ".env").read_text() == "TOKEN=private"


@pytest.mark.parametrize(
    "printed",
    [
        "cat: {folder}/letter: No such file or directory",
        "touch: cannot touch '{folder}/letter': Read-only file system",
        "the sandbox refused to write `{folder}/letter`; denied {folder}/letter",
        "curl: (6) Could not resolve host: evil.example.com",
        "curl: (56) CONNECT tunnel failed, response 403 `evil.example.com:443` is not one of",
    ],
)
async def test_a_printed_text_asks_nobody(
    held: World, outside: Path, ask: Callable[..., Person], printed: str
) -> None:
    person = ask()
    text = printed.format(folder=outside)
    (held.folder / "printed.txt").write_text(f"{text}\n")
    record = await held.run("cat printed.txt; cat printed.txt >&2; exit 1")
    assert record["exit_code"] == 1 and person.asked == []


async def test_a_command_adds_no_line_to_the_question_about_it(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    person = ask("deny")
    forged = f"pass\nopens: /harmless\r\n\x1b[2Kopens: /other\n{'#' * 3000}"
    code = f"open('{outside}/new.txt', 'w'); '''{forged}'''"
    await held.run(["python3", "-c", code])
    lines = person.asked[0].preview.splitlines()
    assert [line for line in lines if line.startswith("opens:")] == [f"opens: {outside}"]
    assert len(lines) == 4 and lines[0] == f"opens: {outside}"
    assert all(line.isprintable() and len(line) < 600 for line in lines)
    assert "/harmless" not in person.asked[0].reason


async def test_what_is_said_of_a_text_does_not_depend_on_what_exists(held: World) -> None:
    there = Path(__file__).parent
    if there.is_relative_to("/tmp"):
        pytest.skip("this checkout is below /tmp, of which commands have their own")
    gone = there.with_name("nothing-here")
    said: list[str] = []
    for folder in (there, gone):
        record = await held.run(f"echo \"cat: '{folder}/test.py': No such file\"; exit 1")
        said.append(notes(record).replace(str(folder), "FOLDER"))
    assert "commands do not see `FOLDER/test.py`" in said[0]
    assert 'sandbox: {readable: ["FOLDER"]}' in said[0]
    assert said[0] == said[1]


async def test_what_a_command_sees_or_has_to_itself_is_not_said_to_be_unseen(
    held: World, outside: Path
) -> None:
    held.set(
        CommandPolicy(
            shell_allowed=True, confine=SandboxPolicy(held.folder, readable=(str(outside),))
        )
    )
    for path in (f"{outside}/gone", "/usr/gone", "/tmp/gone", f"{held.folder}/gone"):
        record = await held.run(f"echo 'cat: {path}: No such file'; exit 1")
        assert "commands do not see" not in notes(record)


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ("cat: /srv/my books/letter: No such file or directory", "/srv/my books/letter"),
        ("ls: cannot access '/srv/my books': No such file or directory", "/srv/my books"),
        ("ld: /srv/lib/a.o needs /srv/lib/b.o: No such file", "/srv/lib/b.o"),
    ],
)
async def test_a_path_with_blanks_is_named_whole(held: World, printed: str, named: str) -> None:
    (held.folder / "printed.txt").write_text(f"{printed}\n", encoding="utf-8")
    record = await held.run("cat printed.txt; exit 1")
    assert f"commands do not see `{named}`" in notes(record)


async def test_a_covered_name_of_the_workspace_is_said(held: World) -> None:
    (held.folder / ".env").write_text("TOKEN=private")
    record = await held.run("cat .env")
    assert "`.env` is covered by the sandbox: may hold secrets" in notes(record)
    record = await held.run("cat a.txt sub/missing")
    assert "covered" not in notes(record) and "commands do not see" not in notes(record)


async def test_what_did_not_make_a_command_fail_is_not_said(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    person = ask()
    record = await held.run(f"echo x > '{outside}/new.txt'; true")
    assert record["success"] and not notes(record)
    record = await held.run(f"(echo x > '{outside}/new.txt') 2>/dev/null; exit 3")
    assert record["exit_code"] == 3 and not notes(record) and person.asked == []


async def test_a_refused_host_is_said_and_asked_with_its_port(
    held: World, ask: Callable[..., Person]
) -> None:
    (held.folder / "ask.py").write_text(ASK.replace("HOST", "files.example.com:443"))
    person = ask("deny")
    record = await held.run(["python3", "ask.py"])
    assert "403" in record["stdout"]
    assert "refused a connection to `files.example.com:443`" in notes(record)
    assert 'sandbox: {network: ["files.example.com:443"]}' in notes(record)
    assert person.asked[0].values["host"] == "https://files.example.com:443"
    assert "opens: files.example.com:443" in person.asked[0].preview.splitlines()
    # What is not the open internet is said, and not asked.
    for host in ("169.254.169.254:80", "10.0.0.1:80", "localhost:80", "printer:80", "[::1]:80"):
        (held.folder / "ask.py").write_text(ASK.replace("HOST", host))
        record = await held.run(["python3", "ask.py"])
        assert f"refused a connection to `{host}`" in notes(record)
    assert len(person.asked) == 1


async def test_a_host_that_was_opened_and_is_still_refused_is_not_asked_again(
    held: World, ask: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name leads to a private address: that is another refusal, which no name opens."""

    async def resolve(host: str) -> list[str]:
        return ["10.0.0.1"]

    monkeypatch.setattr(Proxy.__init__, "__kwdefaults__", {**PROXY_DEFAULTS, "resolve": resolve})
    (held.folder / "ask.py").write_text(ASK.replace("HOST", "files.example.com:443"))
    person = ask("once")
    record = await held.run(["python3", "ask.py"])
    assert len(person.asked) == 1 and not record["success"]
    assert "leads to 10.0.0.1" in notes(record) and "a person opens it" not in notes(record)
    assert notes(record).count("run again") == 1


async def test_a_program_out_of_sight_is_opened(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    program = outside / "hello"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    person = ask("deny", "once")
    await held.run("true")
    with pytest.raises(ToolFailed, match="out of sight"):
        await held.run([str(program)])
    held.commands.sandbox.openings = type(held.commands.sandbox.openings)()
    record = await held.run([str(program)])
    assert record["stdout"] == "hello\n"
    assert person.asked[1].values["read"] == str(outside)


async def test_nothing_is_opened_beside_a_running_command(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    person = ask()
    running = await held.run("sleep 1000", background_after_ms=50)
    record = await held.run(f"echo x > '{outside}/new.txt'")
    assert not record["success"] and person.asked == []
    assert "writable" in notes(record)
    await held.call("kill_command", handle_id=running["handle_id"])


async def test_once_is_not_open_for_another_command(
    held: World, outside: Path, ask: Callable[..., Person]
) -> None:
    person = ask("once", "deny")
    (held.folder / "slow.sh").write_text(
        f"touch begun; test -e again && sleep 0.3; touch again; echo x > '{outside}/new.txt'\n"
    )

    async def start_other() -> Any:
        async with asyncio.timeout(WAIT_SECONDS):
            while not person.asked:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # the first is being run again
        return await held.run(f"echo y > '{outside}/other.txt'")

    first, other = await asyncio.gather(held.run(["sh", "slow.sh"]), start_other())
    assert first["success"] and (outside / "new.txt").exists()
    assert not other["success"] and not (outside / "other.txt").exists()


async def test_a_policy_that_opens_less_holds_at_once_also_beside_a_running_command(
    held: World, outside: Path
) -> None:
    narrow = held.resources[CommandPolicy]
    assert isinstance(narrow, CommandPolicy) and narrow.confine is not None
    wide = replace(narrow, confine=replace(narrow.confine, writable=(str(outside),)))
    held.resources[CommandPolicy] = wide
    await held.run("sleep 1000", background_after_ms=50)
    assert (await held.run(f"echo x > '{outside}/a.txt'"))["success"]
    held.resources[CommandPolicy] = narrow
    assert not (await held.run(f"echo x > '{outside}/b.txt'"))["success"]
    assert not (outside / "b.txt").exists()
