"""`ferrule a2a`: agents are listed, looked at, approved, and asked again when they changed; their
tools join a run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.storage import paths

sys.path.insert(0, str(Path(__file__).parent.parent / "connectors/a2a"))


@pytest.fixture
def agent(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An agent on this machine, named in the person's settings, and the person's folders empty
    otherwise.
    """
    pytest.importorskip("a2a", reason="the extra `a2a` is not installed here")
    from a2a_world import in_a_thread

    monkeypatch.setenv("FERRULE_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    with in_a_thread(tmp_path) as world:
        settle({"friend": {"url": world.url, "plain_http": True}})
        yield world


def settle(peers: Any) -> None:
    paths.write_private(paths.config() / "ferrule.yaml", json.dumps({"a2a_peers": peers}))


def test_an_agent_is_looked_at_approved_tested_and_revoked(ferrule: Any, agent: Any) -> None:
    assert ferrule("a2a", "list").lines == [f"friend  unknown   {agent.url}"]
    assert ferrule("a2a", "test", "friend").code == 4 and agent.requests == []
    ran = ferrule("a2a", "approve", "friend", "--yes")
    assert ran.code == 0 and '+skill "echo"' in ran.err and "approved `friend`: 1 skills" in ran.err
    assert json.loads(ferrule("a2a", "list", "--json").out)[0]["state"] == "approved"
    ran = ferrule("a2a", "test", "friend")
    assert ran.code == 0 and ran.lines == [
        "friend: Friend 1.0.0; 1 skills; its signature was not checked",
        "  echo  Echo: Does echo.",
    ]
    assert "nothing changed" in ferrule("a2a", "approve", "friend").err
    assert 'skill "echo"' in ferrule("a2a", "show", "friend").out
    ferrule("a2a", "revoke", "friend")
    assert "unknown" in ferrule("a2a", "list").out


def test_without_a_person_nothing_is_approved(ferrule: Any, agent: Any) -> None:
    ran = ferrule("a2a", "approve", "friend")
    assert ran.code == 7 and "needs a confirmation" in ran.err
    assert "unknown" in ferrule("a2a", "list").out


def test_a_change_is_found_shown_as_a_difference_and_waits(ferrule: Any, agent: Any) -> None:
    ferrule("a2a", "approve", "friend", "--yes")
    agent.card["skills"][0]["description"] = "Reads your \u202email."
    ran = ferrule("a2a", "test", "friend")
    assert ran.code == 1 and "differs from the one you approved" in ran.err
    ran = ferrule("a2a", "approve", "friend")
    assert ran.code == 7 and "Reads your \\u202email." in ran.err and "\u202e" not in ran.err
    assert (
        "changed" in ferrule("a2a", "list").out
        and "Reads your" in ferrule("a2a", "show", "friend").out
    )


def test_an_approved_agent_is_a_tool_of_the_command_line(ferrule: Any, agent: Any) -> None:
    assert "friend__echo" not in ferrule("tools", "list").out
    ferrule("a2a", "approve", "friend", "--yes")
    ran = ferrule("tools", "call", "friend__echo", "message=hello", "--yes-to", "friend__echo")
    assert "you said: hello" in ran.out, ran.err


def test_what_is_wrong_is_said_and_the_others_stay(ferrule: Any, agent: Any) -> None:
    settle({"friend": {"url": agent.url, "plain_http": True}, "bad": {"url": "http://far.example"}})
    ran = ferrule("a2a", "list")
    assert len(ran.lines) == 1 and "! peer `bad`" in ran.err
    ran = ferrule("a2a", "show", "frend")
    assert ran.code == 2 and "did you mean `friend`" in ran.err
    agent.card = []
    ran = ferrule("a2a", "approve", "friend", "--yes")
    assert ran.code != 0 and "its card is not an object" in ran.err
    assert "unknown" in ferrule("a2a", "list").out


def test_a_repository_names_no_agents(
    ferrule: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    (folder / "ferrule.yaml").write_text('a2a_peers: {evil: {url: "https://evil.example"}}\n')
    ferrule("trust", "--yes")
    ran = ferrule("a2a", "list")
    assert "evil" not in ran.out and "no A2A agents configured" in ran.err
