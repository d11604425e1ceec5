"""The gate sees where a call would go: rules for hosts hold for HTTP tools, and a rule that lets
one look lets nobody change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest_http import Service, one_tool

from ferrule.connectors.http.tools import URL_KEY
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet, parse_rule
from ferrule.testing.fakes import RecordingApprover
from ferrule.testing.http_double import Reply
from ferrule.tools.definition import Tool

HOSTS = 'hosts: ["*.example.com"]'
GET = one_tool("https://{{where}}.example.com/x", top=HOSTS)
POST = one_tool("https://{{where}}.example.com/x", method="POST", top=HOSTS)


def verdict(tool: Tool, *rules: tuple[str, str], where: str = "api", mode: Any = "default") -> str:
    made = RuleSet(tuple(parse_rule(text, which, layer="user") for which, text in rules))  # type: ignore[arg-type]
    checked = tool.arguments.check({"where": where})
    assert not checked.problems
    return PermissionGate(made, mode=mode, root=Path("/w")).decide(tool, checked.values).verdict


def test_a_tool_that_goes_outside_asks_where_nothing_is_said() -> None:
    assert verdict(GET) == verdict(POST) == "ask"
    assert verdict(POST, mode="plan") == "deny" and verdict(GET, mode="plan") == "ask"
    assert verdict(POST, mode="acceptEdits") == verdict(POST, mode="auto") == "ask"
    assert verdict(GET, mode="dontAsk") == "deny"


def test_a_rule_for_a_host_holds_for_the_host_of_the_call() -> None:
    for tool in (GET, POST):
        assert (
            verdict(tool, ("deny", "WebFetch(domain:api.example.com)"), ("allow", "it")) == "deny"
        )
        assert verdict(tool, ("deny", "WebFetch(domain:*.example.com)"), ("allow", "it")) == "deny"
        assert (
            verdict(
                tool, ("deny", "WebFetch(domain:api.example.com)"), ("allow", "it"), where="other"
            )
            == "allow"
        )
        assert verdict(tool, ("ask", "WebFetch(domain:api.example.com)"), ("allow", "it")) == "ask"
        assert verdict(tool, ("deny", "WebFetch")) == "deny"
    assert verdict(GET, ("allow", "WebFetch(domain:api.example.com)")) == "allow"
    assert verdict(GET, ("allow", "WebFetch(domain:api.example.com)"), where="other") == "ask"


def test_a_rule_that_lets_one_look_lets_nobody_change() -> None:
    assert verdict(POST, ("allow", "WebFetch(domain:api.example.com)")) == "ask"
    assert verdict(POST, ("allow", "WebFetch")) == "ask"
    assert verdict(POST, ("allow", "it")) == "allow"
    assert verdict(POST, ("allow", "it(domain:api.example.com)")) == "allow"
    assert verdict(POST, ("allow", "it(domain:api.example.com)"), where="other") == "ask"


def test_what_is_offered_to_remember_is_no_wider_than_the_tool() -> None:
    decision = PermissionGate(root=Path("/w")).decide(
        POST, POST.arguments.check({"where": "api"}).values
    )
    assert {offer.rule for offer in decision.offers} == {"", "it"}


async def test_the_person_is_shown_the_address_and_a_denied_call_sends_nothing(
    service: Service,
) -> None:
    approver = RecordingApprover(["deny"])
    tool = service.tool("/x/{{id}}", "body_template: {n: '{{n}}'}", method="POST")
    result = await service.call(tool, {"id": "a b", "n": 1}, approver=approver)
    assert (
        result.error_type == "permission_denied"
        and not service.requests
        and service.server.connection_count == 0
    )
    (request,) = approver.requests
    assert f"{service.url}/x/a%20b" in str(request)


async def test_an_address_among_the_arguments_is_worked_out_anew(service: Service) -> None:
    tool = service.tool("/x/{{id}}")
    checked = tool.arguments.check({"id": 1, URL_KEY: "https://evil.example.com/"})
    assert not checked.problems and checked.values[URL_KEY] == f"{service.url}/x/1"
    assert tool.arguments.check(checked.values).values == checked.values
    from ferrule.core.errors import ToolFailed

    with pytest.raises(ToolFailed, match="not the one that was allowed"):
        await tool.handler(id=2, **{URL_KEY: f"{service.url}/x/1"})
    assert not service.requests


@pytest.mark.parametrize("which", ["deny", "ask"])
async def test_a_redirect_is_judged_by_the_rules_for_its_host(service: Service, which: str) -> None:
    place = f"http://other.localhost:{service.server.port}/b"
    tool = service.tool("/a", names=("other.localhost",))
    service.replies = [Reply(302, headers={"location": place}), Reply(json={"ok": 1})]
    result = await service.call(tool, allow=["it"], **{which: ["WebFetch(domain:other.localhost)"]})
    assert result.error_type == "permission_denied" and "a redirect leads there" in (
        result.error_message or ""
    )
    assert [request.target for request in service.requests] == ["/a"]
    service.replies = [Reply(302, headers={"location": place}), Reply(json={"ok": 1})]
    assert (
        await service.call(
            tool, allow=["it"], **{which: ["WebFetch(domain:elsewhere.example.com)"]}
        )
    ).data == {"ok": 1}
