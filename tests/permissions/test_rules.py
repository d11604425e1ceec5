"""Rules: the grammar, what they match, and what lint says about them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ferrule.core.errors import ConfigError
from ferrule.permissions.command_analysis.program_facts import GIT_VALUE
from ferrule.permissions.command_analysis.shell_words import ANY, BRACE, ONE, UNKNOWN
from ferrule.permissions.path_denials import could_name
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet, matches_tool, parse_rule

BuildGate = Callable[..., PermissionGate]


@pytest.mark.parametrize(
    ("text", "tool", "specifier"),
    [
        ("read_file", "read_file", None),
        ("  Bash ", "Bash", None),
        ("Bash(npm test)", "Bash", "npm test"),
        ("Bash(git diff:*)", "Bash", "git diff:*"),
        ("Bash(*)", "Bash", None),
        ("Bash(:*)", "Bash", None),
        ("Read(**)", "Read", None),
        ("Read(//etc/**)", "Read", "//etc/**"),
        ("Edit(~/notes)", "Edit", "~/notes"),
        ("Edit(a (copy).txt)", "Edit", "a (copy).txt"),
        ("WebFetch(domain:example.org)", "WebFetch", "domain:example.org"),
        ("mcp__github", "mcp__github", None),
        ("mcp__github__*", "mcp__github__*", None),
        ("Agent(reviewer)", "Agent", "reviewer"),
        ("Skill(pdf)", "Skill", "pdf"),
        ("math::add", "math::add", None),
        ("read_file(docs/**)", "read_file", "docs/**"),
    ],
)
def test_rules_are_parsed_as_written(text: str, tool: str, specifier: str | None) -> None:
    rule = parse_rule(text, "ask", layer="project")
    assert (rule.tool, rule.specifier, rule.list, rule.layer) == (tool, specifier, "ask", "project")


@pytest.mark.proves("rules.errors-name-column")
@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("(x)", 1),
        ("Bash(x", 5),
        ("Bash(x) y", 8),
        ("Bash x", 5),
        ("Bash()", 6),
        ("Read(!x)", 6),
        ("Edit(a/../b)", 8),
        ("WebFetch(example.org)", 10),
        ("WebFetch(domain:)", 10),
    ],
)
def test_wrong_rules_are_refused_with_rule_column_and_next_step(text: str, column: int) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert f"rule `{text}`" in str(caught.value)
    assert f"column {column}" in str(caught.value)
    assert caught.value.hint and caught.value.code == "rule_syntax"


def test_a_wrong_rule_stops_the_whole_set() -> None:
    with pytest.raises(ConfigError):
        RuleSet.parse(allow=["Bash(ls)"], deny=["Bash(rm"])


@pytest.mark.parametrize(
    ("rule", "name", "matches"),
    [
        ("read_*", "read_file", True),
        ("read_*", "unread_file", False),
        ("*", "anything", True),
        ("mcp__git", "git__log", True),
        ("mcp__git", "github__log", False),
        ("mcp__git__log", "git__log", True),
        ("mcp__git__l*", "git__log", True),
        ("mcp__git__log", "mcp__git__log", True),
        ("math::*", "math::add", True),
        ("add", "math::add", False),
    ],
)
def test_tool_names_are_matched_whole_or_with_wildcards(
    rule: str, name: str, matches: bool
) -> None:
    assert matches_tool(parse_rule(rule), name) is matches


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("docs/**", "docs/a/b.md", True),
        ("docs/**", "sub/docs/a", False),
        ("*.md", "a/b/c.md", True),
        ("README", "sub/README", True),
        ("/README", "sub/README", False),
        ("/README", "README", True),
        ("./src/a.py", "src/a.py", True),
        ("//work/project/src/**", "src/x", True),
        ("//work/project2/**", "src/x", False),
        ("src/", "src/x", True),
        ("src", "srcfoo/x", False),
        ("src/*.py", "src/./a.py", True),
        ("src/*.py", "src/b/../a.py", True),
        ("#x", "#x", True),
    ],
)
def test_path_patterns_follow_gitignore(
    pattern: str, path: str, matches: bool, gate: BuildGate, tools: SimpleNamespace
) -> None:
    decision = gate(allow=[f"Read({pattern})"]).decide(tools.read, {"path": path})
    assert (decision.verdict == "allow") is matches


def test_settings_root_anchors_a_leading_slash(tools: SimpleNamespace) -> None:
    rules = RuleSet.parse(allow=["Read(/a.txt)"], root="/work/project/sub")
    gate = PermissionGate(rules, root=Path("/work/project"), home=Path("/home/person"), reads="ask")
    assert gate.decide(tools.read, {"path": "sub/a.txt"}).verdict == "allow"
    assert gate.decide(tools.read, {"path": "a.txt"}).verdict == "ask"


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("Read(private/)", "private/x"),
        ("Read(private/)", "private"),
        ("Read(private/**)", "private/"),
        ("Read(private/**)", "./private//x"),
        ("Read(private/**)", "a/../private/x"),
        ("Read(private/**)", "/work/project/private/x"),
        ("Read(private/**)", "PRIVATE/x"),
        ("read_file(private/**)", "private/x"),
    ],
)
def test_deny_patterns_match_every_spelling(
    rule: str, path: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    assert gate(deny=[rule], allow=["Read"]).decide(tools.read, {"path": path}).verdict == "deny"


@pytest.mark.parametrize("path", ["docs/private", "docs/private/x", "privately/x"])
def test_a_deny_pattern_with_a_slash_starts_at_the_workspace(
    path: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    judged = gate(deny=["Read(private/**)"], allow=["Read"]).decide(tools.read, {"path": path})
    assert judged.verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "matches"),
    [
        ("Bash(npm test)", "npm test", True),
        ("Bash(npm test)", "npm  'test'", True),
        ("Bash(npm test)", "npm test x", False),
        ("Bash(git diff *)", "git diff", True),
        ("Bash(git diff *)", "git diff a b", True),
        ("Bash(git diff:*)", "git diff a", True),
        ("Bash(git diff:*)", "git difftool", False),
        ("Bash(ls *)", "lsof", False),
        ("Bash(ls*)", "lsof", True),
        ("Bash(git * main)", "git log main", True),
        ("Bash(git log *)", "git 'log x'", False),
        ("Bash(git push --force *)", "git push --force origin", True),
        ("Bash(git push *)", "git push --force origin", False),
        ("Bash(ls \\*.py)", "ls *.py", True),
        ("Bash(ls \\*.py)", "ls a.py", False),
        ("Bash(FOO=1 make *)", "FOO=1 make all", True),
        ("Bash(make *)", "FOO=1 make all", False),
        ("Bash(ls && rm x)", "ls && rm x", True),
        ("run_command(ls *)", "ls x", True),
        ("Bash(env *)", "env ls", True),
    ],
)
def test_command_rules_respect_words(
    rule: str, command: str, matches: bool, gate: BuildGate, tools: SimpleNamespace
) -> None:
    assert (
        gate(allow=[rule]).decide(tools.run, {"command": command}).verdict == "allow"
    ) is matches


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm",
        "/bin/rm x",
        r"\rm x",
        "'rm' x",
        "ls && rm x",
        "echo $(rm x)",
        "FOO=1 rm x",
        "sudo -u y rm x",
        "env A=b rm x",
        "find . -exec rm {} +",
        "xargs -n1 rm x",
        "timeout 5 rm x",
        "sh -c 'rm x'",
        "for i in a; do rm x; done",
        "eval 'rm x'",
        "r\\\nm x",
    ],
)
def test_a_denied_command_is_denied_however_it_is_spelled(
    command: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    decision = gate(deny=["Bash(rm *)"], allow=["Bash"]).decide(tools.run, {"command": command})
    assert (decision.verdict, decision.rule) == ("deny", "Bash(rm *)")


@pytest.mark.parametrize(
    "command", ["git push x", "git -C sub push x", "git --no-pager -c a=b push x"]
)
def test_options_before_the_verb_do_not_hide_it(
    command: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    assert (
        gate(deny=["Bash(git push *)"], allow=["Bash"])
        .decide(tools.run, {"command": command})
        .verdict
        == "deny"
    )


@pytest.mark.proves("rules.path-rules-cover-commands")
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Read(private/**)", "cat private/x"),
        ("Read(private/**)", "cat < private/x"),
        ("Read(private/**)", "cd private && cat x"),
        ("Read(private/**)", "grep --file=private/x y"),
        ("Edit(vendor/**)", "echo x > vendor/y"),
        ("Edit(vendor/**)", "cp a vendor/y"),
        ("Edit(vendor/**)", "cd vendor; touch y"),
    ],
)
def test_path_rules_hold_for_names_in_commands(
    rule: str, command: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    assert (
        gate(deny=[rule], allow=["Bash", "Edit", "Read"])
        .decide(tools.run, {"command": command})
        .verdict
        == "deny"
    )


@pytest.mark.parametrize(
    ("rule", "url", "matches"),
    [
        ("WebFetch(domain:example.org)", "https://example.org/x", True),
        ("WebFetch(domain:example.org)", "https://EXAMPLE.org.:443/x", True),
        ("WebFetch(domain:example.org)", "https://evil.example.org/x", False),
        ("WebFetch(domain:*.example.org)", "https://docs.example.org", True),
        ("WebFetch(domain:*.example.org)", "https://evilexample.org", False),
        ("WebFetch(domain:example.org)", "https://example.org@evil.example/", False),
        ("WebFetch(domain:example.org)", "https://evil.example\\@example.org/", False),
        ("WebFetch(domain:example.org)", "https://evil.example/?example.org", False),
        ("WebFetch(domain:example.org)", "not a url", False),
    ],
)
def test_domains_are_compared_as_hosts(
    rule: str, url: str, matches: bool, gate: BuildGate, tools: SimpleNamespace
) -> None:
    assert (gate(allow=[rule]).decide(tools.fetch, {"url": url}).verdict == "allow") is matches


def test_families_match_by_kind_and_not_by_tool_name(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    agent = tools.make("delegate", tools.run.risk, tools.fetch.side_effect, agent="agent")
    decided = gate(allow=["Agent(reviewer)"])
    assert decided.decide(agent, {"agent": "reviewer"}).verdict == "allow"
    assert decided.decide(agent, {"agent": "reviewer2"}).verdict == "ask"


def test_allowing_an_mcp_server_does_not_allow_a_tool_that_took_its_name(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    real = tools.make("git__log", tools.read.risk, tools.fetch.side_effect, source="mcp:git")
    fake = tools.make("git__log", tools.read.risk, tools.fetch.side_effect, source="file")
    assert gate(allow=["mcp__git"]).decide(real, {}).verdict == "allow"
    assert gate(allow=["mcp__git"]).decide(fake, {}).verdict == "ask"
    assert gate(deny=["mcp__git"]).decide(fake, {}).verdict == "deny"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Reed(**)", "Read"),
        ("Edt(src/**)", "Edit"),
        ("WebFech(domain:a.b)", "WebFetch"),
        ("Bsh(ls)", "Bash"),
    ],
)
def test_a_name_that_is_nearly_a_kind_of_access_is_refused_with_the_nearest(
    text: str, meant: str
) -> None:
    for layer in ("user", "flags"):
        with pytest.raises(ConfigError) as raised:
            parse_rule(text, "allow", layer=layer)
        assert f"did you mean `{meant}`" in raised.value.hint


def test_a_tool_of_ones_own_may_be_called_as_it_is() -> None:
    for text in ("Deploy(prod)", "read(docs/**)", "mcp__reed(x)"):
        assert parse_rule(text).text == text


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ({"allow": ["reed_file"]}, "no tool `reed_file`"),
        ({"allow": ["Write(src/**)"]}, "write `Edit(...)`"),
        ({"allow": ["Bash(ls)"], "deny": ["Bash"]}, "never decides: `Bash` (deny)"),
        ({"allow": ["Bash(git push x)"], "ask": ["Bash(git push:*)"]}, "never decides"),
        ({"deny": ["Read(a/**)", "Read(a/b/**)"]}, "adds nothing to `Read(a/**)`"),
        ({"allow": ["Bash(sudo *)"]}, "allows any command"),
        ({"allow": ["Bash(ls && rm *)"]}, "part by part"),
        ({"allow": ["Bash(git*)"]}, "no word boundary"),
        ({"allow": ["Read(.env)"]}, "never allow anything"),
        ({"allow": ["WebFetch(domain:https://example.org/x)"]}, "no scheme"),
        ({"allow": ["*"]}, "every tool"),
    ],
)
def test_lint_names_rules_that_do_nothing_or_too_much(
    lists: dict[str, list[str]], said: str
) -> None:
    assert any(said in line for line in RuleSet.parse(**lists).lint(["read_file", "run_command"]))


def test_lint_is_silent_about_good_rules() -> None:
    rules = RuleSet.parse(
        deny=["Bash(rm:*)", "Read(.env)"],
        ask=["Edit(ci/**)"],
        allow=["Bash(git diff:*)", "read_file", "Read(docs/**)"],
    )
    assert rules.lint(["read_file", "run_command"]) == []


def test_the_stronger_layer_is_named_as_the_reason(tools: SimpleNamespace) -> None:
    rules = [
        parse_rule("Bash", "deny", layer="user"),
        parse_rule("Bash(ls)", "deny", layer="managed"),
    ]
    decision = PermissionGate(RuleSet(rules), root=Path("/w"), home=Path("/h")).decide(
        tools.run, {"command": "ls"}
    )
    assert (decision.rule, decision.layer) == ("Bash(ls)", "managed")


SECRETS = ("Read(secrets/**)", "Read(vault/key.txt)", "Edit(vendor/**)")


@pytest.mark.proves("rules.path-rules-cover-commands")
@pytest.mark.parametrize(
    ("command", "verdict", "twin"),
    [
        ("cat secrets/*", "deny", "cat src/*.py"),
        ("cat secrets/k?y.txt", "deny", "cat src/k?y.py"),
        ('cat "secrets/$x"', "deny", 'cat "src/$x"'),
        ("for f in secrets/*; do cat x; done", "deny", "for f in src/*.py; do cat x; done"),
        ("cat secret[s]/key.txt", "ask", "cat secreta[s]/key.txt"),
        ("cat secret?/key.txt", "ask", "cat secret/?key.txt"),
        ("cat SECRET?/x", "ask", "cat SECRET/x"),
        ("cat ${x}crets/key.txt", "ask", "cat ${x}cret/key.txt"),
        ('for d in vault; do cat "$d/key.txt"; done', "ask", 'cat "$d/README.md"'),
        ("cd src && cat ../secret?/x", "ask", "cd src && cat secret?/x"),
        ("for f in secret?; do cat x; done", "ask", "for f in *.md; do cat x; done"),
        ("touch vend?r/x", "ask", "cat vend?r/x"),
        ("curl file:///work/project/%73ecrets/key.txt", "deny", "curl file:///work/project/s.txt"),
        ("curl file:///work/project/vault/key.txt?x", "deny", "curl file:///work/project/a.txt?x"),
        (
            "curl --url FILE:///work/project/%73ecrets/x",
            "deny",
            "curl --url https://e.test/secrets/x",
        ),
        ("git show HEAD:secrets/key.txt", "deny", "git show HEAD:src/key.txt"),
        ("cd src && git show HEAD:secrets/key.txt", "deny", "cd src && git show HEAD:key.txt"),
        ("git show :0:secrets/key.txt", "deny", "git show :0:src/key.txt"),
        ("git log -L1,3:secrets/key.txt", "deny", "git log -L1,3:src/x.py"),
        ("git log -L '/a:b/,+3:secrets/key.txt'", "deny", "git log -L '/^def f/,/^}/:src/x.py'"),
        ("git log -L :main:secrets/key.txt", "deny", "git log -L :secrets:src/x.c"),
        ("git show HEAD -- ':(top)secrets'", "deny", "git show HEAD -- ':(top)src'"),
        ("git show HEAD -- :/secrets", "deny", "git show HEAD -- ':(exclude)secrets'"),
        ("cd src && git diff -- ':(icase,top)SECRETS/x'", "deny", "git diff -- ':!secrets'"),
        ("git show HEAD -- 'secret*'", "ask", "git show HEAD -- '*.py'"),
        ("git diff -- ':(glob)secret?/**'", "ask", "git diff -- '*'"),
        ("git cat-file --batch <<< HEAD:secrets/key.txt", "ask", "git cat-file --batch-check"),
        ("git log -p --stdin < list", "ask", "git check-ignore --stdin"),
    ],
)
def test_a_deny_rule_for_paths_holds_for_each_form_of_a_name(
    command: str, verdict: str, twin: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    of = gate(deny=SECRETS, allow=["Bash", "Edit"])
    decision = of.decide(tools.run, {"command": command})
    assert decision.verdict == verdict
    assert re.search("(Read|Edit)\\(|what its input names", decision.reason)
    assert of.decide(tools.run, {"command": twin}).verdict == "allow"


@pytest.mark.parametrize(
    ("path", "rule", "is_possible"),
    [
        (f"/w/sec{ANY}/key.txt", "Read(secrets/**)", True),
        (f"/w/sac{ANY}/key.txt", "Read(secrets/**)", False),
        (f"/w/{BRACE}/key.txt", "Read(secrets/**)", True),
        (f"/w/{BRACE}", "Read(vault/key.txt)", True),
        (f"/w/{ANY}", "Read(vault/key.txt)", False),
        (f"/w/{ANY}{ANY}/key.txt", "Read(a/b/key.txt)", True),
        (f"/w/v{BRACE}t", "Read(vault/key.txt)", True),
        (f"/w/v{BRACE}x", "Read(vault/key.txt)", False),
        (f"/w/{UNKNOWN}/key.txt", "Read(vault/key.txt)", True),
        (f"/w/{UNKNOWN}/key.txt", "Read(secrets/**)", False),
        (f"/w/{UNKNOWN}s/x", "Read(secrets/**)", True),
        (f"/w/src/{ONE}.pem", "Read(**/*.pem)", True),
        (f"/w/src/{ANY}", "Read(*.pem)", True),
        (f"/w/src/{ANY}.py", "Read(*.pem)", False),
        (f"/etc/pass{ONE}d", "Read(//etc/passwd)", True),
        (f"/home/p/.s{ANY}", "Read(~/.ssh/**)", True),
        (f"/w/SEC{ANY}", "Read(secrets)", True),
    ],
)
def test_a_name_with_marks_could_be_one_of_a_rule(path: str, rule: str, is_possible: bool) -> None:
    assert could_name(path, parse_rule(rule), "/w", "/home/p") is is_possible


def test_an_ask_rule_for_paths_holds_for_names_that_could_be_meant(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    of = gate(ask=["Read(secrets/**)"], allow=["Bash"])
    asked = of.decide(tools.run, {"command": "cat secret?/x"})
    assert asked.verdict == "ask" and "Read(secrets/**)" in asked.reason
    assert of.decide(tools.run, {"command": "ls secret?"}).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git --shallow-file x push",
        "git --attr-source HEAD push",
        "git -C x -c a.b=c --no-pager push",
        "git --super-prefix a/ push",
        "setpriv --no-new-privs git push",
        "linux64 git push",
        "choom -n 5 -- git push",
        "tini -s -- git push",
        "uv run git push",
        "uv --quiet run --no-sync git push",
        "poetry run git push",
        "npm exec -- git push",
        "git submodule foreach git push",
        "git submodule foreach --recursive 'cd x; git push'",
        "git bisect run sh -c 'git push'",
        "git bisect run git push",
        "git rebase -x 'cd x && git push' main",
        "git rebase --exec='cd x && git push' main",
        "uv run sh -c 'git push'",
    ],
)
def test_a_denied_program_is_found_behind_options_and_what_runs_it(
    command: str, gate: BuildGate, tools: SimpleNamespace
) -> None:
    of = gate(deny=["Bash(git push:*)"], allow=["Bash"])
    assert of.decide(tools.run, {"command": command}).verdict == "deny"


def test_words_that_run_nothing_are_not_taken_for_programs(
    gate: BuildGate, tools: SimpleNamespace
) -> None:
    of = gate(deny=["Bash(pytest:*)"], allow=["Bash"])
    for command in (
        "uv pip install pytest",
        "poetry add pytest",
        "git log pytest",
        "npm ls pytest",
    ):
        assert of.decide(tools.run, {"command": command}).verdict == "allow", command


def test_options_of_git_with_a_value_are_those_of_its_help() -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    shown = subprocess.run([git, "-h"], capture_output=True, text=True, check=False).stdout
    options = set(re.findall(r"\[(--?[A-Za-z-]+)[ =]<", shown))
    assert options >= {"-C", "-c", "--git-dir"}
    assert options <= GIT_VALUE
