"""The gate's decision: order, modes, risk, offers, and what must hold whatever the rules say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.permissions.call_analysis import OpenedFolders
from ferrule.permissions.grants import Grants
from ferrule.permissions.rule_evaluation import (
    MODES,
    Decision,
    PermissionGate,
    describe_decision,
    digest_arguments,
    select_mode,
)
from ferrule.permissions.rules import PermissionRule, RuleSet, parse_rule
from ferrule.permissions.safe_mode import SafeMode
from ferrule.tools.definition import Risk, SideEffect, Tool, Touch

BuildGate = Callable[..., PermissionGate]
ROOT, HOME = Path("/work/project"), Path("/home/person")


def test_risk_decides_where_no_rule_does(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate()
    assert decided.decide(tools.now, {}).verdict == "allow"
    for tool in (tools.search, tools.read, tools.write, tools.wipe):
        assert decided.decide(tool, {"path": "a"}).verdict == "ask"


def test_what_may_be_read_and_not_written_is_refused_for_writing_alone(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(mode="bypassPermissions")
    for path in (".git/HEAD", ".gitmodules"):
        assert decided.decide(tools.read, {"path": path}).verdict == "allow"
        assert decided.decide(tools.write, {"path": path}).verdict == "deny"


def test_reads_that_name_what_they_read_are_free_where_a_person_sees_them(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(deny=["Read(b/**)"], ask=["Read(c/**)"], reads="allow")
    verdicts = {
        path: decided.decide(tools.read, {"path": path}).verdict
        for path in ("a/x", "b/x", "c/x", ".env", "../x", ".ferrule/x")
    }
    assert verdicts == {
        "a/x": "allow",
        "b/x": "deny",
        "c/x": "ask",
        ".env": "deny",
        "../x": "deny",
        ".ferrule/x": "deny",
    }
    assert decided.decide(tools.write, {"path": "a/x"}).verdict == "ask"
    nameless = replace(tools.read, name="anything", touches={})
    assert decided.decide(nameless, {"path": "a/x"}).verdict == "ask", "nobody knows what it reads"
    plan = decided.with_mode("plan")
    assert plan.decide(tools.read, {"path": "a/x"}).verdict == "allow"
    assert gate().decide(tools.read, {"path": "a/x"}).verdict == "ask"


def test_the_first_list_that_matches_wins_whatever_is_more_specific(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(
        deny=["Edit(a/**)"],
        ask=["Edit(a/b/**)", "Edit(c/**)"],
        allow=["Edit(a/b/c)", "Edit(c/d)", "Edit(e)"],
    )
    verdicts = [
        decided.decide(tools.write, {"path": path}).verdict for path in ("a/b/c", "c/d", "e", "f")
    ]
    assert verdicts == ["deny", "ask", "allow", "ask"]


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        ".env",
        "a/.env.local",
        "k.pem",
        ".ferrule/x",
        "agents/harvey.yaml",
        "~/x",
        "a\0b",
        "/work/project2/x",
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_outside_reserved_and_secret_names_are_refused_in_every_mode(
    path: str, mode: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(allow=["*", "Read", "Edit", "Bash"], mode=mode)
    assert decided.decide(tools.read, {"path": path}).verdict == "deny"


def test_a_refusal_says_of_the_path_what_it_is(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(allow=["*", "Read", "Edit"])
    reasons = {
        path: decided.decide(tools.write, {"path": path}).reason
        for path in (".env", "agents/a", "../x")
    }
    assert "`.env` may hold secrets" in reasons[".env"]
    assert "`agents/a` is " in reasons["agents/a"]
    assert "`../x` lies outside the workspace" in reasons["../x"]


def test_a_decision_says_why_and_by_which_rule_of_whom(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    def said(tool: Tool, **options: Any) -> tuple[str, ...]:
        made = gate(**options).decide(tool, {"path": "a"})
        return (made.verdict, made.reason, made.rule, made.layer)

    assert [
        said(tools.now),
        said(tools.write),
        said(tools.write, mode="dontAsk"),
        said(tools.write, mode="acceptEdits"),
        said(tools.write, mode="bypassPermissions"),
        said(tools.read, reads="allow"),
    ] == [
        ("allow", "`now` has safe risk", "", "builtin"),
        ("ask", "`write_file` has high risk", "", "builtin"),
        ("deny", "`write_file` has high risk; mode dontAsk does not ask", "", "builtin"),
        ("allow", "mode acceptEdits: an edit in the workspace", "", "builtin"),
        ("allow", "mode bypassPermissions", "", "builtin"),
        ("allow", "reads in the workspace", "", "builtin"),
    ]
    for verdict in ("deny", "ask", "allow"):
        decided = said(tools.write, **{verdict: ["Edit(a)"]})
        assert decided[0] == verdict and decided[2:] == ("Edit(a)", "user"), decided[1]


def test_a_tilde_is_the_home_of_the_person(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(allow=["Read"], home=ROOT.parent)
    verdicts = [
        decided.decide(tools.read, {"path": path}).verdict
        for path in ("~/project/a", "~/other/a", "~")
    ]
    assert verdicts == ["allow", "deny", "deny"]


@pytest.mark.parametrize("path", [Path(".env"), [Path("a"), Path(".env")]])
def test_paths_that_are_not_text_are_judged_too(
    path: Any, gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(allow=["Read(a)"])
    assert decided.decide(tools.read, {"path": path}).verdict == "deny"
    assert decided.decide(tools.read, {"path": Path("a")}).verdict == "allow"
    assert decided.decide(tools.read, {"path": Path("b")}).verdict == "ask"


def test_every_subject_must_be_covered_to_allow_and_any_suffices_to_deny(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    call = {"source_path": "a/x", "target": "b/x"}
    assert gate(allow=["Edit(a/**)"]).decide(tools.move, call).verdict == "ask"
    assert gate(allow=["Edit(a/**)", "Edit(b/**)"]).decide(tools.move, call).verdict == "allow"
    assert gate(allow=["Edit"], deny=["Edit(b/**)"]).decide(tools.move, call).verdict == "deny"


def test_a_family_rule_does_not_allow_effects_beyond_its_kind(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    assert gate(allow=["Read"]).decide(tools.unsaid, {"path": "a"}).verdict == "ask"
    assert gate(allow=["unsaid"]).decide(tools.unsaid, {"path": "a"}).verdict == "allow"
    assert gate(allow=["unsaid(a/**)"]).decide(tools.unsaid, {"path": "a/b"}).verdict == "allow"


@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [
        ("default", {"read": "ask", "write": "ask", "run": "ask", "deploy": "ask"}),
        ("acceptEdits", {"read": "allow", "write": "allow", "run": "ask", "deploy": "ask"}),
        ("auto", {"read": "allow", "write": "allow", "run": "ask", "deploy": "ask"}),
        ("plan", {"read": "ask", "write": "deny", "run": "deny", "deploy": "deny"}),
        ("dontAsk", {"read": "deny", "write": "deny", "run": "deny", "deploy": "deny"}),
        (
            "bypassPermissions",
            {"read": "allow", "write": "allow", "run": "allow", "deploy": "allow"},
        ),
    ],
)
def test_modes(
    mode: str, verdicts: dict[str, str], gate: BuildGate, tools: SimpleNamespace
) -> None:
    call = {"path": "a", "command": "make all"}
    decided = gate(mode=mode)
    assert {
        name: decided.decide(getattr(tools, name), call).verdict for name in verdicts
    } == verdicts


@pytest.mark.parametrize("mode", MODES)
def test_deny_and_explicit_ask_and_critical_hold_in_every_mode(
    mode: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(mode=mode, deny=["Edit(a)"], ask=["Edit(b)"], allow=["Edit", "wipe"])
    assert decided.decide(tools.write, {"path": "a"}).verdict == "deny"
    assert decided.decide(tools.write, {"path": "b"}).verdict != "allow"
    assert decided.decide(tools.wipe, {"path": "c"}).verdict != "allow"


def test_plan_mode_is_not_lifted_by_an_allow_rule(gate: BuildGate, tools: SimpleNamespace) -> None:
    decision = gate(mode="plan", allow=["Edit"]).decide(tools.write, {"path": "a"})
    assert decision.verdict == "deny" and "plan" in decision.reason


def test_an_unknown_mode_is_an_error() -> None:
    assert select_mode("auto") == "auto"
    with pytest.raises(ConfigError, match="no such mode"):
        select_mode("yolo")


@pytest.mark.parametrize("choice", ["once", "session"])
def test_low_risk_asks_once_per_session(
    choice: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate()
    decision = decided.decide(tools.search, {"path": "a"})
    assert decision.verdict == "ask"
    decided.apply_answer(
        tools.search, choice, next(o.rule for o in decision.offers if o.choice == choice)
    )
    assert decided.decide(tools.search, {"path": "b"}).verdict == "allow"
    assert gate().decide(tools.search, {"path": "b"}).verdict == "ask"


def test_once_is_once_above_low_risk(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate()
    decided.apply_answer(tools.write, "once")
    decided.apply_answer(tools.write, "deny")
    assert decided.decide(tools.write, {"path": "a"}).verdict == "ask"


def test_grants_lift_neither_deny_nor_explicit_ask_nor_critical(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    grants = Grants()
    for rule in ("Edit", "write_file", "wipe", "Bash"):
        grants.grant(rule)
    decided = gate(grants=grants, deny=["Edit(a)"], ask=["Edit(b)"])
    assert decided.decide(tools.write, {"path": "a"}).verdict == "deny"
    assert decided.decide(tools.write, {"path": "b"}).verdict == "ask"
    assert decided.decide(tools.write, {"path": "c"}).verdict == "allow"
    assert decided.decide(tools.wipe, {"path": "c"}).verdict == "ask"
    assert decided.decide(tools.run, {"command": "cat .env"}).verdict == "deny"


def test_a_decision_follows_grants_that_come_and_go(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided, call = gate(), {"path": "a"}
    verdicts = [decided.decide(tools.write, call).verdict]
    decided.grant("Edit(a)")
    verdicts.append(decided.decide(tools.write, call).verdict)
    decided.grants.forget("Edit(a)")
    verdicts.append(decided.decide(tools.write, call).verdict)
    assert verdicts == ["ask", "allow", "ask"]


def test_only_what_was_offered_can_be_granted(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate()
    offers = decided.decide(tools.write, {"path": "a"}).offers
    with pytest.raises(ConfigError, match="not offered"):
        decided.apply_answer(tools.write, "session", "*", offers=offers)
    decided.apply_answer(tools.write, "session", offers[1].rule, offers=offers)
    assert [rule.text for rule in decided.grants.rules] == [offers[1].rule]


@pytest.mark.proves("gate.bare-deny-hides")
def test_a_bare_name_in_deny_hides_the_tool(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(deny=["write_file", "mcp__git", "Bash", "read_file(a)"])
    assert decided.is_hidden("write_file") and decided.is_hidden(tools.write)
    assert decided.is_hidden("git__log") and decided.is_hidden(tools.run)
    assert not decided.is_hidden(tools.read) and not decided.is_hidden("now")


@pytest.mark.proves("gate.parse-failure-never-allows")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "command", ["ls &&", "ls 'x", "(", "ls\x0b", "$X y", "curl x | sh", "cat .e*", "echo > $X"]
)
def test_what_cannot_be_judged_is_never_allowed(
    command: str, mode: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    grants = Grants()
    grants.grant("Bash")
    decision = gate(mode=mode, allow=["Bash", "run_command", "*"], grants=grants).decide(
        tools.run, {"command": command}
    )
    assert decision.verdict != "allow"
    assert not [offer for offer in decision.offers if offer.choice != "once"]


def test_a_command_over_the_limit_is_denied(gate: BuildGate, tools: SimpleNamespace) -> None:
    decision = gate(allow=["Bash"], mode="bypassPermissions").decide(
        tools.run, {"command": ";".join(["ls"] * 51)}
    )
    assert decision.verdict == "deny" and "50" in decision.reason


def test_a_path_outside_can_be_made_a_question(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(outside="ask", allow=["Bash"])
    assert decided.decide(tools.run, {"command": "cat /etc/hosts"}).verdict == "ask"
    assert decided.decide(tools.run, {"command": "cat ~/.ssh/id_rsa"}).verdict == "deny"


@pytest.mark.parametrize(
    ("command", "session"),
    [
        ("git diff --stat", ["Bash(git diff --stat)", "Bash(git diff:*)"]),
        ("npm run build", ["Bash(npm run build)", "Bash(npm run build:*)"]),
        ("ls -la", ["Bash(ls -la)", "Bash(ls:*)"]),
        ("cargo build && cargo test", ["Bash(cargo build && cargo test)"]),
        ("ls *.py", [r"Bash(ls \*.py)", "Bash(ls:*)"]),
        ("echo hi > out.txt", ["Bash(echo hi > out.txt)"]),
        ("python x.py", ["Bash(python x.py)"]),
        ("sh x.sh", ["Bash(sh x.sh)"]),
        ("env A=b make", ["Bash(env A=b make)"]),
        ("find . -name x -exec grep y {} +", ["Bash(find . -name x -exec grep y {} +)"]),
        ("python3 a.py", ["Bash(python3 a.py)"]),
        ("python3 -c 'print(1)'", ["Bash(python3 -c 'print(1)')"]),
        ("python3 -", []),
        ("python3", []),
        ("node -i", []),
        ("timeout 5 python3 -", []),
        ("xargs ls", []),
        ("sqlite3 a.db", []),
        ("psql", []),
        ("sudo ls", []),
        ("rm -rf x", []),
        ("git push --force", []),
        ("curl -d x https://e.example", []),
    ],
)
def test_commands_are_offered_grants_that_are_not_too_wide(
    command: str, session: list[str], gate: BuildGate, tools: SimpleNamespace
) -> None:
    decision = gate().decide(tools.run, {"command": command})
    assert decision.verdict == "ask"
    assert [offer.rule for offer in decision.offers if offer.choice == "session"] == session
    remembered = [rule for rule in session if rule.endswith(":*)")]
    assert [offer.rule for offer in decision.offers if offer.choice == "remember"] == remembered
    assert decision.offers[0].choice == "once"


def test_the_missing_part_of_a_compound_command_is_offered(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decision = gate(allow=["Bash(cd *)", "Bash(ls *)"]).decide(
        tools.run, {"command": "cd src && ls && make"}
    )
    assert "Bash(git diff:*)" not in [offer.rule for offer in decision.offers]
    decision = gate(allow=["Bash(ls *)"]).decide(tools.run, {"command": "ls && cargo build"})
    assert "Bash(cargo build:*)" in [offer.rule for offer in decision.offers]


def test_edits_are_offered_by_file_and_folder_of_this_workspace(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decision = gate().decide(tools.write, {"path": "src/a [1].py"})
    rules = [offer.rule for offer in decision.offers if offer.choice == "remember"]
    assert rules == [r"Edit(//work/project/src/a \[1\].py)", "Edit(//work/project/src/**)"]


def test_an_explicit_ask_and_critical_risk_are_offered_once_only(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    asked = gate(ask=["Bash(git push *)"]).decide(tools.run, {"command": "git push"})
    critical = gate().decide(tools.wipe, {"path": "a"})
    assert [o.choice for o in asked.offers] == ["once"] and [o.choice for o in critical.offers] == [
        "once"
    ]
    assert asked.rule == "Bash(git push *)"


COMMANDS = st.lists(
    st.sampled_from(
        [
            "ls",
            "git diff",
            "git push --force",
            "npm test",
            "cat a b",
            "rm -rf x",
            "find . -delete",
            "echo '*' x",
            "make",
            "FOO=1 make",
            "sudo ls",
            "sh -c 'ls'",
            "timeout 5 make",
            "xargs make",
            "grep -rn 'a b' src",
            "echo hi > out.txt",
            "python -m x",
            "cat *.py",
            "cat $X",
            "ls (",
            "cd sub",
            "docker ps",
            "npm run x",
        ]
    ),
    min_size=1,
    max_size=3,
).map(" && ".join)
PATHS = st.sampled_from(
    ["a", "src/a.py", "src/[x]", "a b", "#a", "!a", "x/y/z", "..", ".env", "*", "docs/", "a)", "(b"]
)
CALLS = st.one_of(
    st.tuples(st.just("run"), COMMANDS.map(lambda command: {"command": command})),
    st.tuples(
        st.sampled_from(["read", "write", "search", "wipe", "unsaid"]),
        PATHS.map(lambda path: {"path": path}),
    ),
    st.tuples(
        st.just("fetch"),
        st.sampled_from(["https://a.example/x", "x", "http://b.example:8"]).map(
            lambda u: {"url": u}
        ),
    ),
    st.tuples(st.sampled_from(["now", "deploy"]), st.just(dict[str, str]())),
)
RULES = st.sampled_from(
    [
        "Bash",
        "Bash(ls:*)",
        "Bash(git *)",
        "Bash(rm *)",
        "Bash(make)",
        "Bash(* x)",
        "Read",
        "Read(src/**)",
        "Edit",
        "Edit(*)",
        "Edit(a)",
        "Edit(/src)",
        "WebFetch(domain:a.example)",
        "write_file",
        "run_command",
        "*",
        "deploy",
        "read_file(src/**)",
        "run_command(npm test)",
        "wipe",
        "Read(//work/**)",
    ]
)
LISTS = st.fixed_dictionaries(
    {name: st.lists(RULES, max_size=3) for name in ("deny", "ask", "allow")}
)


def _tool(name: str) -> Tool:
    risk, effect, touches = {
        "run": (Risk.HIGH, SideEffect.EXECUTE, {"command": "command"}),
        "read": (Risk.MEDIUM, SideEffect.READ, {"path": "read"}),
        "write": (Risk.HIGH, SideEffect.WRITE, {"path": "write"}),
        "search": (Risk.LOW, SideEffect.READ, {"path": "read"}),
        "wipe": (Risk.CRITICAL, SideEffect.WRITE, {"path": "write"}),
        "unsaid": (Risk.MEDIUM, SideEffect.UNDECLARED, {"path": "read"}),
        "fetch": (Risk.MEDIUM, SideEffect.EXTERNAL, {"url": "url"}),
        "now": (Risk.SAFE, SideEffect.NONE, {}),
        "deploy": (Risk.HIGH, SideEffect.EXTERNAL, {}),
    }[name]
    full = {"run": "run_command", "read": "read_file", "write": "write_file"}.get(name, name)
    arguments: Any = None
    return Tool(
        name=full,
        description="",
        arguments=arguments,
        handler=lambda: None,
        risk=risk,
        side_effect=effect,
        touches={key: Touch(kind) for key, kind in touches.items()},
    )


TOOLS = {
    name: _tool(name)
    for name in ("run", "read", "write", "search", "wipe", "unsaid", "fetch", "now", "deploy")
}
RANK = {"deny": 0, "ask": 1, "allow": 2}


def build(
    lists: dict[str, list[str]],
    mode: Any = "default",
    extra: tuple[PermissionRule, ...] = (),
    grants: Grants | None = None,
) -> PermissionGate:
    return PermissionGate(
        RuleSet((*RuleSet.parse(**lists), *extra)), mode=mode, root=ROOT, home=HOME, grants=grants
    )


@pytest.mark.proves("gate.more-deny-never-allows-more")
@given(CALLS, LISTS, RULES, st.sampled_from(MODES))
def test_adding_a_deny_rule_never_allows_more(
    call: tuple[str, Any], lists: Any, rule: str, mode: str
) -> None:
    tool, values = TOOLS[call[0]], call[1]
    before = build(lists, mode).decide(tool, values).verdict
    after = build(lists, mode, (parse_rule(rule, "deny"),)).decide(tool, values).verdict
    assert RANK[after] <= RANK[before]


@given(CALLS, LISTS, RULES, st.sampled_from(MODES))
def test_adding_an_allow_rule_or_grant_never_lifts_a_deny(
    call: tuple[str, Any], lists: Any, rule: str, mode: str
) -> None:
    tool, values = TOOLS[call[0]], call[1]
    grants = Grants()
    grants.grant(rule)
    if build(lists, "bypassPermissions").decide(tool, values).verdict == "deny":
        assert (
            build(lists, mode, (parse_rule(rule, "allow"),), grants).decide(tool, values).verdict
            == "deny"
        )


@given(CALLS, LISTS)
def test_every_offered_grant_satisfies_the_gate(call: tuple[str, Any], lists: Any) -> None:
    tool, values = TOOLS[call[0]], call[1]
    decision = build(lists).decide(tool, values)
    for offer in decision.offers:
        if offer.rule:
            grants = Grants()
            grants.grant(offer.rule)
            assert build(lists, grants=grants).decide(tool, values).verdict == "allow", offer


@given(
    st.sampled_from(sorted(TOOLS)),
    st.dictionaries(
        st.sampled_from(["path", "command", "url"]),
        st.one_of(st.text(), st.none(), st.integers(), st.lists(st.text()), st.binary()),
    ),
    LISTS,
    st.sampled_from(MODES),
)
def test_decide_is_total_and_deterministic(
    name: str, values: dict[str, Any], lists: Any, mode: str
) -> None:
    decided = build(lists, mode)
    decision = decided.decide(TOOLS[name], values)
    assert isinstance(decision, Decision) and decision.verdict in RANK and decision.reason
    assert (
        decided.decide(TOOLS[name], values)
        == decision
        == build(lists, mode).decide(TOOLS[name], values)
    )
    assert decided.explain_steps(TOOLS[name], values)[-1]


@pytest.mark.proves("gate.failure-is-deny")
def test_a_failure_inside_the_gate_is_a_deny_with_the_reason(tools: SimpleNamespace) -> None:
    class Broken:
        def check(self, name: str, *, write: bool) -> str | None:
            raise RuntimeError("no list")

    broken: Any = Broken()
    decision = PermissionGate(root=ROOT, home=HOME, names=broken, mode="bypassPermissions").decide(
        tools.write, {"path": "a"}
    )
    assert decision.verdict == "deny" and "no list" in decision.reason


@pytest.mark.proves("gate.safe-call-is-cheap")
def test_a_safe_call_enters_few_functions(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(allow=["Bash(ls)"], deny=["Bash(rm *)"])
    decided.decide(tools.now, {})
    entered: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "ferrule" in frame.f_code.co_filename:
            entered.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        decided.decide(tools.now, {})
    finally:
        sys.setprofile(None)
    assert entered == ["decide"]


def test_safe_mode_refuses_programs_that_are_not_listed(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    decided = gate(allow=["Bash"], safe_mode=SafeMode())
    for command in (
        "make",
        "ls | make",
        "sh -c ls",
        "./ls",
        "env ls",
        "$X",
        "ls $(id)",
        "timeout 5 ls",
        "ls #\\\nmake",
        "ls \\\n#\\\nmake",
        "cat <<E\n`make`\nE",
        "cat <<-E\n\t$(make)\n\tE",
        "ls ${PATH#`make`}",
    ):
        assert decided.decide(tools.run, {"command": command}).verdict != "allow", command
    for command in ("ls", "cat a | grep b", "ls # make", "cat <<'E'\n`make`\nE"):
        assert decided.decide(tools.run, {"command": command}).verdict == "allow", command
    assert gate(safe_mode=SafeMode()).decide(tools.run, {"command": "ls"}).verdict == "ask"
    assert (
        gate(allow=["Bash"], safe_mode=SafeMode(on=False))
        .decide(tools.run, {"command": "make"})
        .verdict
        == "allow"
    )
    more = SafeMode().allow("make").deny("ls")
    assert more.find_refusal(["make"]) == "" and more.find_refusal(["ls"])


def test_the_longest_permission_prefix_replaces_shorter_ones(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    safe = SafeMode(
        on=False,
        permissions={".": ("read", "write", "exec"), "docs": ("read",), "docs/open": ("write",)},
    )
    decided = gate(allow=["Edit", "Read", "Bash"], safe_mode=safe)
    assert safe.has_permission("x", "write") and not safe.has_permission("docs/x", "write")
    assert decided.decide(tools.write, {"path": "docs/x"}).verdict == "deny"
    assert decided.decide(tools.write, {"path": "docsx"}).verdict == "allow"
    assert decided.decide(tools.read, {"path": "docs/open/x"}).verdict == "deny"
    assert decided.decide(tools.run, {"command": "touch docs/x"}).verdict == "deny"
    assert decided.decide(tools.run, {"command": "rm x"}).verdict == "deny"
    with pytest.raises(ConfigError, match="execute"):
        SafeMode(permissions={".": ("execute",)})


def test_searches_can_ask_about_paths_that_no_argument_named(gate: BuildGate) -> None:
    decided = gate(deny=["Read(private/**)"])
    assert (
        decided.find_path_refusal("private/x")
        and decided.find_path_refusal(".env")
        and decided.find_path_refusal("../x")
    )
    assert not decided.find_path_refusal("src/x")


@pytest.mark.proves("gate.digest-binds")
def test_a_digest_changes_with_tool_and_arguments_and_not_with_order() -> None:
    assert digest_arguments("a", {"x": 1, "y": [2]}) == digest_arguments("a", {"y": [2], "x": 1})
    assert (
        len(
            {
                digest_arguments("a", {"x": 1}),
                digest_arguments("b", {"x": 1}),
                digest_arguments("a", {"x": "1"}),
                digest_arguments("a", {"x": True}),
                digest_arguments("a", {"x": Path("1")}),
                digest_arguments("a", {"x": b"1"}),
                digest_arguments("a", {"x": None}),
                digest_arguments("a", {}),
            }
        )
        == 8
    )


@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.booleans() | st.text() | st.floats(), st.lists)
    )
)
def test_a_digest_of_any_json_value_is_stable(values: dict[str, Any]) -> None:
    assert digest_arguments("t", values) == digest_arguments("t", dict(reversed(values.items())))


def test_a_decision_can_be_explained_step_by_step(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(allow=["Bash(ls *)"])
    lines = decided.explain_steps(tools.run, {"command": "ls; rm x"})
    assert "touches command `rm x`" in lines and any(
        line.startswith("deny rules: nothing") for line in lines
    )
    assert describe_decision(decided.decide(tools.run, {"command": "ls"}))[0].startswith(
        "allow: allowed by `Bash(ls *)`"
    )


def test_with_mode_keeps_rules_and_grants(gate: BuildGate, tools: SimpleNamespace) -> None:
    decided = gate(deny=["Bash"])
    decided.grant("write_file")
    planned = decided.with_mode("plan")
    assert planned.decide(tools.run, {"command": "ls"}).rule == "Bash"
    assert planned.grants is decided.grants and decided.mode == "default"
    with pytest.raises(ConfigError):
        PermissionGate(mode="yolo")  # pyright: ignore[reportArgumentType]


def test_a_command_may_name_a_folder_that_a_person_opened_for_commands(
    tmp_path: Path, tools: SimpleNamespace
) -> None:
    opened = OpenedFolders(("/srv/data",), ("/srv/out",))
    rules = RuleSet(
        [parse_rule("Bash", "allow"), parse_rule("Read(//srv/data/private/**)", "deny")]
    )
    gate = PermissionGate(rules, root=tmp_path, opened=opened)
    for command, verdict in (
        ("cat /srv/data/a.csv", "allow"),
        ("cp a.txt /srv/out/a.txt", "allow"),
        ("cp a.txt /srv/data/a.txt", "deny"),
        ("cat /srv/database", "deny"),
        ("cat /srv/data/../secrets", "deny"),
        ("cat /srv/data/private/a", "deny"),
        ("cat /srv/data/.env", "deny"),
        ("cat /srv/out/id_rsa", "deny"),
        ("echo x > /srv/out/.ferrule/a", "deny"),
        ("cat /etc/passwd /srv/data/a.csv", "deny"),
    ):
        decision = gate.with_mode("default").decide(tools.run, {"command": command})
        assert decision.verdict == verdict, (command, decision)
    outside = gate.decide(tools.run, {"command": "cp a.txt /srv/new/a.txt"})
    assert "a person can open it with `sandbox.writable`" in outside.reason
    assert len(outside.reason) < 4 * 40
    reading = gate.decide(tools.run, {"command": "cat /srv/new/a.txt"})
    assert "a person can open it with `sandbox.readable`" in reading.reason
