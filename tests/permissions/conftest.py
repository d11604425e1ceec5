"""Tools without effects, one per kind of subject, and a gate for a workspace that need not
exist.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from confined_tools import hold

from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.tools.definition import CheckedArguments, Risk, SideEffect, Tool, Touch

ROOT, HOME = Path("/work/project"), Path("/home/person")


class Anything:
    """Accepts all arguments: the gate gets checked values."""

    schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012

    def check(self, arguments: Any) -> CheckedArguments:
        return CheckedArguments(dict(arguments), [], [])


def make_tool(
    name: str,
    risk: Risk = Risk.SAFE,
    side_effect: SideEffect = SideEffect.NONE,
    *,
    source: str = "python",
    **touches: str,
) -> Tool:
    return Tool(
        name=name,
        description=name,
        arguments=Anything(),
        handler=lambda: None,
        risk=risk,
        side_effect=side_effect,
        touches={parameter: Touch(kind) for parameter, kind in touches.items()},
        source=source,
    )


@pytest.fixture
def tools() -> SimpleNamespace:
    return SimpleNamespace(
        make=make_tool,
        now=make_tool("now"),
        search=make_tool("grep_search", Risk.LOW, SideEffect.READ, path="read"),
        read=make_tool("read_file", Risk.MEDIUM, SideEffect.READ, path="read"),
        write=make_tool("write_file", Risk.HIGH, SideEffect.WRITE, path="write"),
        move=make_tool("move", Risk.HIGH, SideEffect.WRITE, source_path="write", target="write"),
        run=hold(make_tool("run_command", Risk.HIGH, SideEffect.EXECUTE, command="command")),
        fetch=make_tool("http_get", Risk.MEDIUM, SideEffect.EXTERNAL, url="url"),
        wipe=make_tool("wipe", Risk.CRITICAL, SideEffect.WRITE, path="write"),
        deploy=make_tool("deploy", Risk.HIGH, SideEffect.EXTERNAL),
        unsaid=make_tool("unsaid", Risk.MEDIUM, SideEffect.UNDECLARED, path="read"),
    )


@pytest.fixture
def gate() -> Callable[..., PermissionGate]:
    """`gate(allow=[...], deny=[...], ask=[...], mode=..., grants=...)`.

    Reads ask, so that the steps of a decision can be told apart.
    """

    def build(*, deny: Any = (), ask: Any = (), allow: Any = (), **options: Any) -> PermissionGate:
        rules = RuleSet.parse(deny=deny, ask=ask, allow=allow)
        return PermissionGate(rules, **{"root": ROOT, "home": HOME, "reads": "ask", **options})

    return build
