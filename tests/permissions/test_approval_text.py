"""What a person sees of a call that they are asked about: every argument, at every interface."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, ToolFailed, tool
from ferrule.adapters.framework_approvals import Attempt, FrameworkApprover
from ferrule.cli.permission_prompt import TerminalApprover
from ferrule.cli.terminal import Terminal
from ferrule.console.html import template_environment
from ferrule.console.questions import Question
from ferrule.console.viewer import Viewer
from ferrule.core.calls import ErrorType, ToolCall
from ferrule.core.identity import Identity
from ferrule.engine.session import Session
from ferrule.notebook import NotebookApprover
from ferrule.permissions.approval_text import describe_call, encode_arguments
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.servers.a2a.conversations import Task
from ferrule.servers.acp.permission import EditorApprover
from ferrule.servers.ag_ui.interrupts import OpenInterrupt
from ferrule.testing import calls, says
from ferrule.tools.catalog import Catalog


@tool(risk="high")
def swap(path: str, old_string: str, new_string: str, mode: str = "text") -> str:
    """Swap a text."""
    return path + old_string + new_string + mode


VALUES = {"path": "late.txt", "old_string": "safe", "new_string": "EVIL", "mode": "text"}


def asked(**more: Any) -> ApprovalRequest:
    sent = {name: value for name, value in VALUES.items() if name != "mode"}
    return replace(
        ApprovalRequest(
            ToolCall("c1", "swap", json.dumps(sent)),
            swap,
            "high",
            "it writes",
            (),
            "",
            (GrantOffer("once", ""),),
            "d1",
            Identity("t", "u", "s", "r"),
            values=VALUES,
        ),
        **more,
    )


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def at_the_terminal(request: ApprovalRequest, capsys: pytest.CaptureFixture[str]) -> str:
    async def read(prompt: str) -> str:
        raise EOFError

    run(TerminalApprover(Terminal(), read, user="u").ask(request))
    return capsys.readouterr().err


def in_the_console(request: ApprovalRequest, *_: Any) -> str:
    async def page() -> str:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        parts: Any = (
            template_environment()
            .get_template("parts.html")
            .make_module({"viewer": Viewer("u", operator=False, tenant="t"), "root": ""})
        )
        return str(parts.question(Question("q", "t", "u", "s", request, 0, future)))

    shown = run(page())
    # What is folded is not seen.
    shown = re.sub(r"<details data-keep=\S+><summary>.*?</details>", "", shown, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


def at_an_mcp_client(request: ApprovalRequest, *_: Any) -> str:
    client_approvals = pytest.importorskip("ferrule.servers.mcp.client_approvals")
    return str(client_approvals.build_question(request))


def in_an_editor(request: ApprovalRequest, *_: Any) -> str:
    said: list[Any] = []

    async def editor(params: Any) -> Any:
        said.append(params["toolCall"]["content"])
        return {}

    run(EditorApprover("s", editor, user="u", workspace=None).ask(request))
    return "\n".join(one["content"]["text"] for one in said[0])


def over_ag_ui(request: ApprovalRequest, *_: Any) -> str:
    async def interrupt() -> Any:
        return OpenInterrupt.of(request).to_json(set())

    shown = run(interrupt())
    assert shown["metadata"]["ferrule"]["shown"] in shown["message"]
    return shown["message"]


def over_a2a(request: ApprovalRequest, *_: Any) -> str:
    async def question() -> str:
        session: Any = Session
        task = Task(session)
        asking = asyncio.create_task(task.ask(request))
        shown = await task.updates.get()
        asking.cancel()
        return shown.text

    return run(question())


def in_a_notebook(request: ApprovalRequest, capsys: pytest.CaptureFixture[str]) -> str:
    run(NotebookApprover(read=lambda text: "n").ask(request))
    return capsys.readouterr().out


def in_a_framework(request: ApprovalRequest, *_: Any) -> str:
    approver = FrameworkApprover("graph", Catalog([swap]), None)
    approver.attempts["c1"] = attempt = Attempt("c1", "k", "swap", None)
    run(approver.ask(request))
    assert attempt.pending is not None
    return attempt.pending.describe()


INTERFACES = [
    at_the_terminal,
    in_the_console,
    at_an_mcp_client,
    in_an_editor,
    over_ag_ui,
    over_a2a,
    in_a_notebook,
    in_a_framework,
]


@pytest.mark.parametrize("show", INTERFACES)
def test_every_interface_shows_the_arguments_that_a_preview_does_not(
    show: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    failing = show(asked(preview_error="this call would fail now: no `safe` in late.txt"), capsys)
    assert "EVIL" in failing and "would fail now: no `safe`" in failing
    partial = show(asked(preview="would change late.txt: -safe"), capsys)
    assert "EVIL" in partial and "would change late.txt" in partial
    changed = show(asked(values={**VALUES, "new_string": "WORSE", "mode": "raw"}), capsys)
    assert "WORSE" in changed and "EVIL" not in changed, "what would run, not what was sent"
    assert "raw" in changed


def test_what_a_preview_shows_is_not_listed_again_and_all_else_is() -> None:
    preview = "--- late.txt\n-safe\n+EVIL"
    assert describe_call(asked(preview=preview)) == preview
    by_chance = asked(preview=preview, values={**VALUES, "mode": "safe"})
    assert describe_call(by_chance) == f'{{"mode":"safe"}}\n{preview}'
    lists = asked(preview="rm -r build", values={"command": ["rm", "-r", "build"], "path": "x"})
    assert describe_call(lists) == '{"path":"x"}\nrm -r build'
    assert describe_call(asked(), 10) == '{"path":"l\n[shown: 10 of 59 characters]'


def test_arguments_without_a_json_form_are_shown_as_they_are() -> None:
    assert encode_arguments(asked(values={"path": Path("x")})) == '{"path":"x"}'
    assert encode_arguments(asked(values={"path": {(1, 2): 3}})) == "{'path': {(1, 2): 3}}"
    assert encode_arguments(asked(values={"path": "x", "more": None})) == '{"path":"x"}'
    unread = replace(asked(values={}), call=ToolCall("c1", "swap", '["broken'))
    assert encode_arguments(unread) == '["broken'


def test_a_call_that_would_fail_is_asked_about_and_the_model_does_not_learn_why() -> None:
    async def preview(values: Any, context: Any) -> str:
        raise ToolFailed(ErrorType.NOT_FOUND, "the secret is 7")

    seen: list[ApprovalRequest] = []

    class Person:
        async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
            seen.append(request)
            return ApprovalAnswer("deny", by="p", note="no")

    model = Scripted([calls(("swap", VALUES)), says("over")])
    agent = Agent(
        model, [replace(swap, preview=preview)], permissions=Permissions(approver=Person())
    )
    result = agent.run_sync("go")
    (request,) = seen
    assert request.preview == ""
    assert request.preview_error == "this call would fail now: the secret is 7"
    assert "secret" not in str(model.histories[-1])
    assert result.results and "secret" not in str(result.results)
