"""What a person opens for good is in their settings for that folder, after rules and modes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.core.events import ConsentAnswered, Noticed
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.runtime.sandbox_policy import make_sandbox_policy
from ferrule.sandbox.backends import selection
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage import paths
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.settings.writing import open_for_folder


class Person:
    def __init__(self, choice: Any) -> None:
        self.choice = choice
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        rule = next((one.rule for one in request.offers if one.choice == self.choice), "")
        return ApprovalAnswer(self.choice, rule, by="ada")


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / "shelf"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "write.py").write_text(f"open('{outside}/new.txt', 'w').write('x')\n")
    try:
        name = selection.choose_backend(SandboxPolicy(folder), probe()).name
    except MissingProtections:
        pytest.skip("this machine cannot hold commands as required")
    if name == "landlock":
        pytest.skip("Landlock alone does not see what is refused")
    return folder


def make(folder: Path, person: Person, **options: Any) -> Assembly:
    given: dict[str, Any] = {
        "workspace": str(folder),
        "model": "scripted:none",
        "permissions__allow": ("Bash",),
    }
    return assemble({**given, **options}, notice=lambda text: None, approver=person)


async def run(assembly: Assembly) -> tuple[Any, list[Any]]:
    session = assembly.open_session(None)
    result = await session.call("run_command", command=["python3", "write.py"])
    journal = assembly.agent.journal
    await session.close()
    events = [record.event for record in journal.records(session.id)]
    await assembly.close()
    return result, events


async def test_always_is_written_into_the_persons_settings_for_that_folder(
    workspace: Path, outside: Path
) -> None:
    file = paths.config() / "ferrule.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# mine\nsandbox: {network: [example.com]}  # kept\n")
    person = Person("remember")
    result, events = await run(make(workspace, person))
    assert "run again after a person opened writing in" in str(result.data), result
    assert (outside / "new.txt").exists() and len(person.asked) == 1
    (consent,) = [event for event in events if isinstance(event, ConsentAnswered)]
    assert (consent.tool, consent.choice, consent.by) == ("open_for_commands", "remember", "ada")
    assert str(outside) in consent.grant and str(workspace) in consent.grant
    assert any(
        isinstance(event, Noticed) and f"refused write {outside}/new.txt" in event.text
        for event in events
    )
    assert file.read_text() == (
        "# mine\nsandbox: {network: [example.com]}  # kept\n"
        f'folders:\n  "{workspace}":\n    writable: ["{outside}"]\n'
    )
    # The next session there has it, and one elsewhere does not.
    person = Person("deny")
    (outside / "new.txt").unlink()
    await run(make(workspace, person))
    assert (outside / "new.txt").exists() and person.asked == []
    here = make_sandbox_policy(load_settings(workspace=workspace))
    assert here.writable == (str(outside),) and here.network == ("example.com",)
    assert make_sandbox_policy(load_settings(workspace=outside)).writable == ()


@pytest.mark.parametrize("entry", ["*", "https://example.com", "a b"])
def test_a_host_that_opens_nothing_exactly_is_an_error_before_any_command(
    tmp_path: Path, entry: str
) -> None:
    settings = load_settings(workspace=tmp_path, flags={"sandbox.network": entry}, environment={})
    with pytest.raises(ConfigError, match="`network`: found") as raised:
        make_sandbox_policy(settings)
    assert "write `example.com`" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"permissions__deny": ("Edit(/{outside}/**)",)}, "denied by"),
        ({"permissions__deny": ("Edit(/{outside}/private/*)",)}, "denies something in"),
        ({"permissions__deny": ("Read(/{outside}/private/*)",)}, "denies something in"),
        ({"permissions__deny": ("open_for_commands",)}, "denied by"),
        ({"mode": "dontAsk"}, "mode dontAsk does not ask"),
    ],
)
async def test_deny_rules_and_modes_answer_before_a_person(
    workspace: Path, outside: Path, options: dict[str, Any], why: str
) -> None:
    rules = options.get("permissions__deny", ())
    if rules:
        options = {"permissions__deny": tuple(rule.format(outside=outside) for rule in rules)}
    person = Person("once")
    result, events = await run(make(workspace, person, **options))
    (consent,) = [event for event in events if isinstance(event, ConsentAnswered)]
    assert (consent.choice, consent.by) == ("deny", "gate") and why in consent.note
    assert person.asked == [] and not (outside / "new.txt").exists()
    assert why in str(result.data)


def test_only_the_map_of_folders_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "ferrule.yaml"
    file.write_text("folders:\n  /a:\n    network: [b.example]\n\n# about the model\nmodel: x:y\n")
    open_for_folder(file, "/a", "network", "c.example:443")
    open_for_folder(file, "/b # c", "readable", "/d")
    assert file.read_text() == (
        'folders:\n  "/a":\n    network: ["b.example", "c.example:443"]\n'
        '  "/b # c":\n    readable: ["/d"]\n\n# about the model\nmodel: x:y\n'
    )
    with pytest.raises(ConfigError, match="comment"):
        open_for_folder(file, "/a", "network", "d.example:443")
    file.write_text("folders: {/a: {network: [b]}}\nmodel: [\n")
    with pytest.raises(ConfigError):
        open_for_folder(file, "/a", "network", "c.example:443")
    assert file.read_text().endswith("model: [\n")


def test_a_repository_opens_nothing_for_itself(tmp_path: Path) -> None:
    from ferrule.storage.trust import TrustStore

    settings = tmp_path / ".ferrule/ferrule.yaml"
    settings.parent.mkdir()
    settings.write_text(f'folders: {{"{tmp_path}": {{readable: [/srv/x]}}}}\n')
    trust = TrustStore()
    trust.trust(tmp_path)
    with pytest.raises(ConfigError, match="cannot be set by a repository"):
        load_settings(workspace=tmp_path, trust=trust)


async def test_what_is_opened_for_a_session_may_be_named_by_its_commands(
    workspace: Path,
) -> None:
    # Not below `/tmp`, of which a confined command has its own.
    with TemporaryDirectory(prefix="ferrule-test-", dir=Path.home()) as folder:
        await check_named_folders(workspace, Path(folder))


async def check_named_folders(workspace: Path, outside: Path) -> None:
    (workspace / "write.py").write_text(f"open('{outside}/new.txt', 'w').write('x')\n")
    (workspace / "sub").mkdir()
    (workspace / "sub/inner.py").touch()
    assembly = make(workspace, Person("session"))
    session = assembly.open_session(None)
    other = assembly.open_session(None)
    copy = {"command": ["cp", "write.py", f"{outside}/copy.py"]}
    refused = await session.call("run_command", **copy)
    assert "lies outside the workspace" in str(refused.error_message)
    await session.call("run_command", command=["python3", "write.py"])
    assert (await session.call("run_command", **copy)).success
    nested = {"command": ["cp", "inner.py", f"{outside}/nested.py"], "cwd": "sub"}
    assert (await session.call("run_command", **nested)).success
    assert (outside / "copy.py").exists() and (outside / "nested.py").exists()
    for name in (".env", ".git/config", "../other.py"):
        beyond = {"command": ["cp", "write.py", f"{outside}/{name}"]}
        assert not (await session.call("run_command", **beyond)).success
    again = await other.call("run_command", **copy)
    assert "lies outside the workspace" in str(again.error_message)
    await session.close()
    await other.close()
    await assembly.close()
