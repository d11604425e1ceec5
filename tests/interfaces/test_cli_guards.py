"""The shipped guards as hook files of a trusted repository: each fires on the payload of a whole
run, with a script and with a real model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.storage.trust import TrustStore

SECRET = "ghp_" + "a1B2" * 9
GUARDS = {
    "named": "guard: prefer_named_tools\n",
    "secrets": "guard: no_secrets_in_arguments\n",
    "folder": "guard: writes_within\nwith: { within: [docs] }\nwhen: name == 'write_file'\n",
    "policy": "guard: command_policy\nwith: { deny: ['git push *', 'git push'] }\n",
}
CASES = {
    "named": (
        "Run the command `cat note.txt`.",
        "run_command",
        {"command": "cat note.txt"},
        "use the tool `read_file`",
    ),
    "secrets": (
        f"Write the text {SECRET} to the file docs/a.txt.",
        "write_file",
        {"path": "docs/a.txt", "content": SECRET},
        "holds a GitHub token",
    ),
    "folder": (
        'Write "hello" to the file a.txt.',
        "write_file",
        {"path": "a.txt", "content": "hello"},
        "`a.txt` is not in `docs`",
    ),
    "policy": ("Run the command `git push`.", "run_command", {"command": "git push"}, "git push"),
}
ALLOWED = ("--allow", "run_command", "--allow", "write_file", "--allow", "read_file")


@pytest.fixture
def guarded(folder: Path) -> Path:
    """A workspace whose repository has all four guards, and is trusted."""
    (folder / ".ferrule/hooks").mkdir(parents=True)
    for name, text in GUARDS.items():
        (folder / f".ferrule/hooks/{name}.md").write_text(f"---\n{text}---\nKeeps order.\n")
    (folder / "docs").mkdir()
    TrustStore().trust(folder)
    return folder


def refusals(ran: Any, name: str) -> list[dict[str, Any]]:
    """Results that this guard refused."""
    results = json.loads(ran.out)["results"]
    return [one for one in results if f"the hook `{name}`" in (one["error_message"] or "")]


@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_fires_in_a_run(
    name: str, ferrule: Any, guarded: Path, script: Any, a_call: Any
) -> None:
    _, tool, arguments, why = CASES[name]
    model = script(a_call(tool, **arguments), {"say": "done"})
    (refused,) = refusals(ferrule("run", "--json", "-m", model, *ALLOWED, "go"), name)
    assert refused["error_type"] == "permission_denied"
    assert why in refused["error_message"]
    assert SECRET not in refused["error_message"]
    assert [path.name for path in guarded.rglob("a.txt")] == []


def test_what_no_guard_minds_runs(ferrule: Any, guarded: Path, script: Any, a_call: Any) -> None:
    steps = [
        a_call("read_file", path="note.txt"),
        a_call("write_file", path="docs/a.txt", content="hello"),
        a_call("run_command", command="echo hello"),
        {"say": "done"},
    ]
    ran = ferrule("run", "--json", "-m", script(*steps), *ALLOWED, "go")
    assert [one["success"] for one in json.loads(ran.out)["results"]] == [True] * 3
    assert (guarded / "docs/a.txt").read_text() == "hello"


@pytest.mark.model
@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_fires_on_a_call_of_the_real_model(
    name: str, ferrule: Any, guarded: Path
) -> None:
    request, tool, _, why = CASES[name]
    ran = ferrule("run", "--json", "-m", "local:smollm2", *ALLOWED, request)
    refused = refusals(ran, name)
    assert refused, ran
    assert (refused[0]["tool"], why in refused[0]["error_message"]) == (tool, True)
    assert [path.name for path in guarded.rglob("a.txt")] == []


@pytest.mark.model
def test_a_call_of_the_real_model_that_no_guard_minds_runs(ferrule: Any, guarded: Path) -> None:
    ran = ferrule("run", "--json", "-m", "local:smollm2", *ALLOWED, "Read the file note.txt.")
    (read,) = json.loads(ran.out)["results"]
    assert (read["tool"], read["success"]) == ("read_file", True)
