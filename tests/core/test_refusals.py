"""Who refused a call is recorded, and `denied by a person` is said only of a person."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.core.errors import ConfigError
from ferrule.core.events import PersonAnswered
from ferrule.core.refusals import describe_denial, name_answerer
from ferrule.core.vocabulary import Refuser
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import ApprovalAnswer, DenyingApprover
from ferrule.storage.audit.audit import audit_calls
from ferrule.storage.audit.explanation import explain
from ferrule.storage.journal.sqlite import SqliteJournal


@tool(side_effect="write", risk="high")
def scribble(path: str) -> str:
    """Write something."""
    return path


class Person:
    async def ask(self, request: Any) -> ApprovalAnswer:
        return ApprovalAnswer("deny", by="ada", note="")


class Broken:
    async def ask(self, request: Any) -> ApprovalAnswer:
        raise ConfigError("no line to anybody")


APPROVERS: dict[Refuser, Any] = {
    "person": Person(),
    "nobody": DenyingApprover(),
    "error": Broken(),
}


@pytest.mark.proves("audit.who-refused")
@pytest.mark.parametrize("refuser", APPROVERS)
async def test_who_refused_is_in_the_journal_and_in_what_is_read_from_it(refuser: Refuser) -> None:
    with SqliteJournal(":memory:") as journal:
        agent = Agent(
            Scripted([calls(("scribble", {"path": "a"})), says("ok")]),
            [scribble],
            permissions=Permissions(approver=APPROVERS[refuser]),
            storage=Storage(journal=journal),
        )
        ran = await agent.run("go")
        await agent.close()
        records = list(journal.records(ran.session))
        (answer,) = [one.event for one in records if isinstance(one.event, PersonAnswered)]
        assert (answer.choice, answer.refused_by) == ("deny", refuser)
        (call,) = audit_calls(records)
        text = "\n".join(explain(call))
        assert f"by {name_answerer(answer.by, refuser)}" in text
        assert ("nobody" in text) == (refuser != "person")
        assert "denied by a person" not in f"{ran.results[0].error_message}{text}"


@pytest.mark.proves("audit.who-refused")
@pytest.mark.parametrize("refuser", get_args(Refuser))
def test_denied_by_a_person_is_said_only_of_a_person(refuser: Refuser) -> None:
    said = describe_denial("somebody", refuser, "")
    assert ("by a person" in said) == (refuser == "person")
    assert ("somebody" in name_answerer("somebody", refuser)) == (refuser == "person")


def test_a_yes_names_who_gave_it() -> None:
    assert name_answerer("ada", "") == "ada"
    assert name_answerer("", "") == "a person"
    assert ApprovalAnswer("once", by="ada").refuser == ""
