"""Variables that a call sets for its command: the gate sees them, the person is shown them, and
rules do not cover them.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.identity import Identity
from ferrule.engine.dispatcher import Dispatcher, PreparedCall
from ferrule.permissions.approvals import digest_arguments
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_variables import (
    controls_programs,
    format_assignments,
    is_harmless,
    loads_code,
)
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy
from ferrule.toolkits.packs import agent_command_tools
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool
from unheld import share_unheld

ORDERS = [
    "PATH",
    "HOME",
    "SHELL",
    "GIT_DIR",
    "GIT_PAGER",
    "git_dir",
    "PYTHONPATH",
    "PYTHONHOME",
    "npm_config_script_shell",
    "PERL5LIB",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "LESSOPEN",
    "MAKEFLAGS",
    "CC",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "RUSTC_WRAPPER",
    "PIP_INDEX_URL",
    "HTTP_PROXY",
    "XDG_CONFIG_HOME",
    "PYTEST_ADDOPTS",
    "SSL_CERT_FILE",
    "GOFLAGS",
    "CARGO_HOME",
]
LOADS = [
    "LD_PRELOAD",
    "DYLD_INSERT_LIBRARIES",
    "BASH_ENV",
    "BASH_FUNC_ls",
    "NODE_OPTIONS",
    "PYTHONSTARTUP",
    "GIT_CONFIG_COUNT",
]


(TOOL, *_) = agent_command_tools(output_format="value")
PERMISSIVE = ("Bash(env)", "Bash(env:*)", "Bash(npm test)", "Bash(npm:*)")


def gate(*allow: str, deny: tuple[str, ...] = (), **options: Any) -> PermissionGate:
    return PermissionGate(
        RuleSet.parse(allow=allow, deny=deny), root=Path("/work"), home=Path("/home/p"), **options
    )


def decided(of: PermissionGate, command: Any, tool: Tool = TOOL, **env: str) -> Any:
    return of.decide(tool, {"command": command, **({"env": env} if env else {})})


@pytest.mark.parametrize("mode", ["default", "bypassPermissions", "acceptEdits"])
@pytest.mark.parametrize("name", ORDERS)
def test_a_variable_that_programs_take_orders_from_asks_whatever_is_allowed(
    name: str, mode: Any
) -> None:
    of = gate(*PERMISSIVE, "run_command", "Bash", mode=mode)
    assert decided(of, ["env"]).verdict == "allow"
    decision = decided(of, ["env"], **{name: "x"})
    assert decision.verdict == "ask" and f"`{name}`" in decision.reason
    # Nothing that a person could say holds for the next one.
    assert [offer.choice for offer in decision.offers] == ["once"]


@pytest.mark.parametrize("name", LOADS)
def test_a_variable_that_loads_code_is_refused_by_the_gate_itself(name: str) -> None:
    decision = decided(
        gate("run_command", "Bash", mode="bypassPermissions"), ["env"], **{name: "x"}
    )
    assert (decision.verdict, decision.layer) == ("deny", "builtin") and name in decision.reason


def test_a_rule_for_the_bare_command_does_not_cover_it_with_a_variable() -> None:
    of = gate("Bash(npm test)", "Bash(npm:*)")
    assert decided(of, ["npm", "test"]).verdict == "allow"
    asked = decided(of, ["npm", "test"], DJANGO_SETTINGS_MODULE="evil")
    assert asked.verdict == "ask"
    (once, exact, *_) = asked.offers
    assert (once.choice, exact.rule) == ("once", "Bash(DJANGO_SETTINGS_MODULE=evil npm test)")
    of.grant(exact.rule)
    assert decided(of, ["npm", "test"], DJANGO_SETTINGS_MODULE="evil").verdict == "allow"
    assert decided(of, ["npm", "test"], DJANGO_SETTINGS_MODULE="other").verdict == "ask"
    assert decided(of, ["npm", "test"], DJANGO_SETTINGS_MODULE="evil", X="1").verdict == "ask"


@pytest.mark.parametrize("value", [".env", "/etc/passwd", "../x", ".git/config"])
def test_what_no_command_may_name_no_variable_may_name(value: str) -> None:
    of = gate("Bash", "run_command", mode="bypassPermissions")
    assert decided(of, ["cat"], FILE=value, CI=value).verdict == "deny"


def test_harmless_variables_are_as_if_they_were_not_set() -> None:
    assert decided(gate("Bash(npm test)"), ["npm", "test"], CI="1", LC_ALL="C").verdict == "allow"


def test_a_rule_for_all_commands_and_one_for_the_tool_cover_ordinary_variables() -> None:
    for rule in ("Bash", "run_command"):
        assert decided(gate(rule), ["npm", "test"], DEBUG="1").verdict == "allow"


@pytest.mark.parametrize(
    "rule",
    [
        "Bash(npm test)",
        "Bash(npm:*)",
        "Bash(npm *)",
        "run_command(npm test)",
        "Bash(DEBUG=1 npm *)",
    ],
)
def test_a_deny_rule_is_not_led_astray_by_a_variable(rule: str) -> None:
    of = gate("Bash", deny=(rule,), mode="bypassPermissions")
    assert decided(of, ["npm", "test"], DEBUG="1").verdict == "deny"
    assert decided(of, "npm test", DEBUG="1").verdict == "deny"


def test_what_is_no_variable_is_asked_about_by_the_gate_and_refused_by_the_tool() -> None:
    decision = gate("Bash").decide(TOOL, {"command": ["env"], "env": {"A B": "x"}})
    assert decision.verdict == "ask"


def test_every_tool_of_a_pack_says_what_its_variables_are() -> None:
    made = agent_command_tools(
        names={"run_command": "go"}, namespace="release", descriptions={"run_command": "Run it."}
    )[0]
    decision = decided(gate("release::go"), ["env"], tool=made, PYTHONPATH="x")
    assert decision.verdict == "ask" and "PYTHONPATH" in decision.reason


@pytest.mark.parametrize("given", [{"PATH": "x"}, ["PATH=x"], "PATH=x"])
def test_a_tool_of_ones_own_may_take_variables_in_any_form(given: Any) -> None:
    made = define_tool(
        "go", "Go.", parameters={"env": {}, "line": "What."}, handler=lambda **given: None,
        touches={"env": "variables", "line": "command"}, side_effect="execute",
    )  # fmt: skip
    decision = gate("Bash").decide(made, {"env": given, "line": "ls"})
    assert decision.verdict == "ask" and "`PATH`" in decision.reason
    assert gate("Bash").decide(made, {"line": "ls"}).verdict == "allow"


_VALUES = st.one_of(
    st.text("ab1 $'\\\";|./", min_size=1, max_size=6),
    st.sampled_from([".env", "/etc/passwd", "../x", "a:.git/config"]),
)
_RULES = st.lists(
    st.sampled_from(
        [
            "Bash(npm test)",
            "Bash(npm:*)",
            "Bash(DEBUG=1 npm test)",
            "Bash(DEBUG=1 npm:*)",
            "Bash(DEBUG=*)",
            "Bash(*)",
        ]
    ),
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(_RULES, st.one_of(st.just("1"), _VALUES))
def test_a_variable_beside_a_command_is_judged_as_one_before_it(
    allow: list[str], value: str
) -> None:
    of, text = gate(*allow), f"DEBUG={shlex.quote(value)} npm test"
    assume(analyse_command(text).problem is None)  # what the parser is not sure of is asked about
    written = decided(of, text)
    beside_it = decided(of, "npm test", DEBUG=value)
    assert beside_it.verdict == written.verdict


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True))
def test_each_name_is_of_one_kind(name: str) -> None:
    assert not (is_harmless(name) and (loads_code(name) or controls_programs(name)))
    assert bool(format_assignments([f"{name}=x"])) != is_harmless(name)


# ---- through the whole pipeline


def ask(root: Path, of: PermissionGate, arguments: dict[str, Any]) -> ToolResult | PreparedCall:
    async def run() -> ToolResult | PreparedCall:
        dispatcher = Dispatcher(Catalog([TOOL]), of)
        prepared = dispatcher.evaluate(ToolCall("c1", "run_command", json.dumps(arguments)))
        if prepared.evaluation.verdict == "ask":
            return prepared
        resources: dict[type, object] = {Workspace: Workspace(root), Sandbox: share_unheld()}
        result = await dispatcher.execute(
            prepared, Context(Identity("t", "u", "s", "r"), "c1", resources=resources)
        )
        assert isinstance(result, ToolResult)
        return result

    return asyncio.run(run())


async def test_the_person_sees_the_variables_and_the_approval_is_bound_to_them(world: Any) -> None:
    preview = world.tools["run_command"].preview
    shown = await preview(
        {"command": ["env"], "env": {"PYTHONPATH": "src\u202e", "A": "1"}}, world.context()
    )
    assert "with PYTHONPATH=src\\u202e" in shown and "with A=1" in shown
    values = {"command": ["env"], "env": {"PYTHONPATH": "src"}}
    assert digest_arguments("run_command", values) != digest_arguments(
        "run_command", {**values, "env": {"PYTHONPATH": "evil"}}
    )


def test_nothing_runs_before_the_question_about_a_variable_is_answered(tmp_path: Path) -> None:
    asked = ask(
        tmp_path, gate("run_command"), {"command": ["touch", "made"], "env": {"PATH": "bin"}}
    )
    assert isinstance(asked, PreparedCall) and asked.evaluation.digest
    refused = ask(
        tmp_path, gate("run_command"), {"command": ["touch", "made"], "env": {"LD_PRELOAD": "x.so"}}
    )
    assert isinstance(refused, ToolResult) and refused.error_type is ErrorType.PERMISSION_DENIED
    silent = ask(
        tmp_path,
        gate("run_command", mode="dontAsk"),
        {"command": ["touch", "made"], "env": {"PATH": "x"}},
    )
    assert isinstance(silent, ToolResult) and not silent.success
    assert list(tmp_path.iterdir()) == []


async def test_what_a_person_said_yes_to_is_set(world: Any) -> None:
    assert (
        "PYTHONPATH=src"
        in (await world.run(["env"], env={"PYTHONPATH": "src"}))["stdout"].splitlines()
    )


# ---- which environment it is


async def test_replace_gives_nothing_but_what_the_call_says(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C.UTF-8")
    record = await world.run(["env"], env={"A": "1"}, env_mode="replace")
    names = {line.partition("=")[0] for line in record["stdout"].splitlines()}
    assert names <= {"A", "PATH", "PWD"} and "A" in names
    for mode in ("inherit_clean", "patch"):
        lines = (await world.run(["env"], env={"A": "1"}, env_mode=mode))["stdout"].splitlines()
        assert {"A=1", "LANG=C.UTF-8"} <= set(lines)


async def test_no_mode_hands_on_a_key(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "secret-value")
    for mode in ("inherit_clean", "patch", "replace"):
        assert "secret-value" not in (await world.run(["env"], env_mode=mode))["stdout"]
    world.set(CommandPolicy(shell_allowed=True, allow_env=("ACME_API_KEY",)))
    assert "secret-value" in (await world.run(["env"]))["stdout"]
    assert "secret-value" not in (await world.run(["env"], env_mode="replace"))["stdout"]
    shown = await world.tools["run_command"].preview(
        {"command": ["env"], "env_mode": "replace"}, world.context()
    )
    assert "with no variables but PATH" in shown


def test_a_command_of_a_script_sets_what_its_author_wants() -> None:
    from ferrule.command import command_run, run_sync

    record = run_sync(command_run(["env"], {"env": {"PYTHONPATH": "src"}}))
    assert "PYTHONPATH=src" in record["stdout"].splitlines()
