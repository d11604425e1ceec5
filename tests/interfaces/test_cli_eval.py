"""`ferrule eval` and `ferrule sessions to-case`: cases run from the command line and by pytest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ferrule.runtime.trial_agents import CopyTrust
from ferrule.storage.export.bundles import write_bundle
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore

SHOP = Path(__file__).parents[2] / "evals" / "cases"
CASES = str(SHOP / "shop.cases.yaml")
ANSWERS = f"scripted:{SHOP / 'shop.answers.yaml'}"


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


@pytest.mark.proves("evaluation.exit-code")
def test_thirty_cases_pass_with_a_model_that_makes_no_mistake(
    ferrule: Callable[..., Any], folder: Path
) -> None:
    ran = ferrule("eval", CASES, "-m", ANSWERS, "--json")
    assert ran.code == 0, ran.out + ran.err
    (target,) = json.loads(ran.out)["targets"]
    assert (target["passed"], len(target["cases"])) == (30, 30)
    assert "30/30 trials, 30 passed" in ran.err
    assert sorted(path.name for path in folder.iterdir()) == ["note.txt"]


@pytest.mark.proves("evaluation.exit-code")
def test_a_deliberate_regression_is_found_and_named(
    ferrule: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("eval", CASES, "-m", ANSWERS, "-q", "--case", "read *", "--case", "file tree")
    assert ferrule(*words, "-o", "old.json", "-o", "old.xml", "-o", "old.md").code == 0
    assert Path("old.xml").read_text().startswith("<?xml")
    monkeypatch.setenv("FERRULE_TOOLS_DENIED", "read_file")
    assert ferrule(*words, "-o", "new.json").code == 1
    ran = ferrule("eval", "--compare", "old.json", "new.json")
    assert ran.code == 1
    assert "worse: 6 of 8 cases" in ran.out
    assert "read settings" in ran.out
    assert "file tree" not in ran.out
    assert ferrule("eval", "--compare", "old.json", "old.json").code == 0
    assert ferrule(*words, "--at-least", "20%").code == 0
    assert ferrule(*words, "--at-least", "50%").code == 1


@pytest.mark.proves("evaluation.exit-code")
def test_an_unreachable_model_has_an_exit_code_of_its_own(
    ferrule: Callable[..., Any], folder: Path
) -> None:
    write("none.yaml", "a: [{fail: {code: unreachable, detail: no server}}]")
    write("cases.yaml", "cases: [{name: a, message: x}]")
    assert ferrule("eval", "cases.yaml", "-m", "scripted:none.yaml").code == 6
    write("wrong.yaml", "cases: [{name: a, mesage: x}]")
    wrong = ferrule("eval", "wrong.yaml", "-m", "scripted:none.yaml")
    assert wrong.code == 2
    assert "did you mean `message`?" in wrong.err
    assert ferrule("eval").code == 2
    assert ferrule("eval", "cases.yaml", "-m", "scripted:none.yaml", "-o", "x.txt").code == 2
    assert ferrule("eval", "cases.yaml", "-m", "scripted:none.yaml", "--json", "--junit").code == 2


def test_a_script_of_another_case_is_not_used(ferrule: Callable[..., Any], folder: Path) -> None:
    write("talk.yaml", "read: [{say: x}]")
    write("cases.yaml", "cases: [{name: raed, message: x}]")
    ran = ferrule("eval", "cases.yaml", "-m", "scripted:talk.yaml")
    assert ran.code == 2
    assert "there is `scripted:talk.yaml#read`" in ran.err


def test_the_copy_of_a_trusted_folder_is_trusted_until_it_differs(
    ferrule: Callable[..., Any], folder: Path
) -> None:
    shop = folder / "shop"
    (shop / ".ferrule").mkdir(parents=True)
    settings = shop / ".ferrule" / "ferrule.yaml"
    settings.write_text("permissions: {allow: [Edit(a.txt)]}\n")
    write(
        "cases.yaml", "cases: [{name: a, message: x, fixture: shop, expect: {calls: [write_file]}}]"
    )
    write(
        "talk.yaml",
        "[{call: {tool: write_file, arguments: {path: a.txt, content: x}}}, {say: done}]",
    )
    words = ("eval", "cases.yaml", "-m", "scripted:talk.yaml", "-q")
    refused = ferrule(*words)
    assert refused.code == 1, "nobody trusts it, so its rules allow nothing"
    assert "permission_denied" in refused.out
    TrustStore().trust(shop)
    assert ferrule(*words).code == 0
    settings.write_text("permissions: {allow: [Edit(a.txt), Edit(b.txt)]}\n")
    assert ferrule(*words).code == 1, "it was changed since"
    TrustStore().trust(shop)
    copy = Path(shutil.copytree(shop, "copy"))
    assert CopyTrust(shop).state(copy) == "trusted"
    (copy / ".ferrule" / "more.yaml").write_text("")
    assert CopyTrust(shop).state(copy) == "untrusted"


def change(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the only case of a file."""
    content = yaml.safe_load(file.read_text())
    edit(content["cases"][0])
    file.write_text(yaml.safe_dump(content))


@pytest.fixture
def recorded(ferrule: Callable[..., Any], folder: Path) -> str:
    """The id of a session in which a file was written."""
    write("talk.yaml", yaml.safe_dump([
        {"call": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "\x7f\u2028ä\U000e0041"}}]},
        {"say": "written:\n\u0085 'yes'"},
    ]))  # fmt: skip
    ran = ferrule("run", "-m", "scripted:talk.yaml", "--allow", "Edit(**)", "--json", "go: on")
    assert ran.code == 0, ran.err
    return str(json.loads(ran.out)["session"])


def test_a_recorded_session_becomes_a_case_that_holds_without_a_model(
    ferrule: Callable[..., Any], recorded: str
) -> None:
    made = ferrule("sessions", "to-case", recorded[:8], "-o", "kept", "--name", "writes")
    assert made.code == 0, made.err
    assert made.out == "kept/writes.cases.yaml\n"
    Path("talk.yaml").unlink()
    offline = ferrule("eval", "kept/writes.cases.yaml", "--offline", "--json")
    assert offline.code == 0, offline.out
    (target,) = json.loads(offline.out)["targets"]
    assert target["model"] == "recording"
    again = ferrule("sessions", "to-case", recorded[:8], "-o", "kept", "--name", "writes")
    assert again.code == 2
    assert "exists already" in again.err


def test_a_case_from_a_session_is_run_live_with_what_was_approved_then(
    ferrule: Callable[..., Any], recorded: str
) -> None:
    ferrule("sessions", "to-case", recorded, "-o", "kept", "--name", "writes")
    live = ferrule("eval", "kept/writes.cases.yaml", "-m", "scripted:talk.yaml")
    assert live.code == 0, live.out
    change(Path("kept/writes.cases.yaml"), lambda case: case.pop("approve"))
    unapproved = ferrule("eval", "kept/writes.cases.yaml", "-m", "scripted:talk.yaml")
    assert unapproved.code == 1
    assert "permission_denied" in unapproved.out


def test_cases_without_a_recording_are_not_taken_for_passed(
    ferrule: Callable[..., Any], folder: Path
) -> None:
    write("cases.yaml", "cases: [{name: a, message: x}]")
    offline = ferrule("eval", "cases.yaml", "--offline")
    assert offline.code == 2
    assert "no case is left to run" in offline.err


def test_what_a_recording_does_not_hold_fails_and_what_it_cannot_show_is_said(
    ferrule: Callable[..., Any], recorded: str
) -> None:
    ferrule("sessions", "to-case", recorded, "-o", "kept", "--name", "writes")
    case = Path("kept/writes.cases.yaml")
    whole = case.read_text()
    change(case, lambda one: one["expect"]["calls"][0]["arguments"].update(path="b.txt"))
    other = ferrule("eval", str(case), "--offline")
    assert other.code == 1
    assert "expected write_file" in other.out
    case.write_text(whole + '    never: {changes: ["*"], effects_above: write}\n')
    ran = ferrule("eval", str(case), "--offline")
    assert ran.code == 0
    assert "not judged: changes of files: a recording has no files" in ran.out
    case.write_text(whole + "    never: {effects_above: read}\n")
    assert "with the side effect `write`" in ferrule("eval", str(case), "--offline").out


def test_only_cases_with_a_recording_are_run_offline(
    ferrule: Callable[..., Any], recorded: str
) -> None:
    ferrule("sessions", "to-case", recorded, "--name", "writes")
    file = Path("writes.cases.yaml")
    file.write_text(file.read_text() + "  - {name: live, message: x}\n")
    ran = ferrule("eval", str(file), "--offline")
    assert ran.code == 0
    assert "1 cases were not run: they have no recording" in ran.out


def test_the_same_file_is_run_by_pytest(
    ferrule: Callable[..., Any], recorded: str, folder: Path, environment: dict[str, str]
) -> None:
    ferrule("sessions", "to-case", recorded, "--name", "writes")
    write("answers.yaml", "good: [{say: milk}]\nbad: [{say: bread}]\n")
    write("cases.yaml", yaml.safe_dump({
        "models": ["scripted:answers.yaml"],
        "cases": [
            {"name": name, "message": "x", "expect": {"output": {"contains": "milk", "function": "mine:check"}}}
            for name in ("good", "bad")
        ],
    }))  # fmt: skip
    write("mine.py", "def check(text, evidence):\n    assert evidence.turns == 1\n")
    write("test_own.py", (
        "from ferrule import Agent, Storage\nfrom ferrule.testing import Scripted, says\n"
        "def make(trial):\n"
        "    return Agent(Scripted([says('milk')]), storage=Storage(journal=trial.journal))\n"
        "def test_good(evaluate_cases):\n"
        "    assert evaluate_cases('cases.yaml', make, 'scripted:test', only=['good']).holds\n"
    ))  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ferrule.testing.pytest_plugin",
         "cases.yaml", "writes.cases.yaml", "test_own.py"],
        capture_output=True, text=True, check=False, timeout=120,
        env={**environment, "PYTHONPATH": "."},
    )  # fmt: skip
    assert "bad: 0 of 1 trials passed" in done.stdout
    assert "trial 1: output: must contain 'milk', found 'bread'" in done.stdout
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr


def test_a_bundle_that_does_not_replay_fails_its_case(
    ferrule: Callable[..., Any], recorded: str, folder: Path
) -> None:
    from ferrule.core.events import RunFinished
    from ferrule.core.identity import Identity
    from ferrule.storage.export.bundles import read_recording

    ferrule("sessions", "to-case", recorded, "--name", "writes")
    bundle = Path("writes.ferrule")
    (records,) = read_recording(bundle)
    bundle.unlink()
    with SqliteJournal(":memory:") as journal:
        for record in records:
            event = record.event
            if isinstance(event, RunFinished):
                event = RunFinished(event.stop, "another answer", history=event.history)
            identity = Identity(record.tenant, record.user, record.session, record.run)
            journal.append(record.session, record.run, [event], identity=identity)
        write_bundle(bundle, journal, [recorded])
    ran = ferrule("eval", "writes.cases.yaml", "--offline", "--json")
    assert ran.code == 1
    assert "replay: session" in ran.out
