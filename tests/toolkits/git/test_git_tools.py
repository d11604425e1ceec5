"""`git_tools` and `git_toolbox_tools`: which tools there are, what reading operations answer, and
receipts.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, RetryCall
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.toolkits.git.catalog import DEFAULT_OPERATIONS, OPERATIONS
from ferrule.toolkits.git.finder import find_operations
from ferrule.toolkits.git.refs import (
    check_branch,
    check_range,
    check_remote,
    check_revision,
    is_valid_branch,
)
from ferrule.toolkits.git.settings import redact_url
from ferrule.toolkits.git.tools import git_toolbox_tools, git_tools
from ferrule.tools import toolset
from ferrule.tools.definition import SideEffect, Tool

_QUERIES = runpy.run_path(str(Path(__file__).parent / "queries.py"))
TUNED: tuple[tuple[str, str], ...] = _QUERIES["TUNED"]
HELD_OUT: tuple[tuple[str, str], ...] = _QUERIES["HELD_OUT"]


def named(tools: tuple[Tool, ...]) -> list[str]:
    return [tool.full_name for tool in tools]


# ---- which tools


def test_the_default_set_reads_and_the_rest_comes_by_name_or_group() -> None:
    assert named(git_tools()) == [f"git_{name}" for name in DEFAULT_OPERATIONS]
    assert named(git_tools(enabled_tools=["git_status", "git_log", "git_switch"])) == [
        "git_status",
        "git_log",
        "git_switch",
    ]
    assert named(git_tools(enabled_tools=["show", "discover"])) == ["git_show", "git_discover"]
    assert len(git_tools(enabled_tools=["all"])) == 18
    assert {str(tool.side_effect) for tool in git_tools(enabled_tools=["read"])} == {"read"}
    assert named(git_tools(enabled_tools=["mutation"], disabled_tools=["git_commit"])) == [
        "git_fetch", "git_switch", "git_pull_ff_only", "git_rebase", "git_stash", "git_push",
        "git_add",
    ]  # fmt: skip


def test_an_operation_keeps_its_key_whatever_its_tool_is_called() -> None:
    (renamed,) = git_tools(
        enabled_tools=["git_status"], names={"git_status": "state"}, namespace="repo"
    )
    assert (renamed.full_name, toolset.logical_key(renamed)) == ("repo::state", "git_status")


def test_what_changes_something_says_so_and_never_runs_unasked() -> None:
    for tool in git_tools(enabled_tools=["mutation"]):
        assert tool.side_effect in (SideEffect.EXECUTE, SideEffect.EXTERNAL)
        assert tool.risk in ("medium", "high")
        assert not tool.is_repeatable
        assert not tool.parallel
        assert tool.annotations["side_effect_level"] in ("process_exec", "network")
    for tool in git_tools(enabled_tools=["read"]):
        assert tool.annotations["side_effect_level"] == "read_only"
        assert tool.is_repeatable
    assert all(tool.reliability.timeout == 130 for tool in git_tools(enabled_tools=["all"]))


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [("default", "ask"), ("acceptEdits", "ask"), ("plan", "deny"), ("dontAsk", "deny")],
)
def test_the_gate_asks_before_anything_is_changed_also_where_edits_are_accepted(
    world: Any, mode: Any, verdict: str
) -> None:
    arguments = {
        "git_commit": {"message": "x"},
        "git_switch": {"branch": "x"},
        "git_rebase": {"onto": "x"},
        "git_stash": {"action": "push"},
        "git_add": {"all": True},
    }
    for tool in git_tools(enabled_tools=["mutation"]):
        checked = tool.arguments.check(arguments.get(tool.name, {}))
        assert not checked.problems
        assert (
            PermissionGate(mode=mode, root=world.root).decide(tool, checked.values).verdict
            == verdict
        ), tool.name


def test_options_of_the_requirement_shape_the_set(world: Any) -> None:
    world.tools = git_tools(
        repo=world.root,
        enabled_tools=["git_status", "git_log", "git_switch"],
        names={"git_log": "release_git_log"},
        descriptions={"status": "What is open."},
        tool_config={"log": {"risk": "safe"}},
        namespace="release",
        defer_loading=True,
        output_format="json",
    )
    assert named(world.tools) == [
        "release::git_status",
        "release::release_git_log",
        "release::git_switch",
    ]
    assert world.tools[0].description == "What is open."
    assert world.tools[1].risk == "safe"
    assert all(tool.annotations["defer_loading"] for tool in world.tools)
    answer = json.loads(world.ask("release::release_git_log", max_count=1).data)
    assert answer["commits"][0]["subject"] == "commit 3"


@pytest.mark.parametrize(
    "options", [{"enabled_tools": ["git_lo"]}, {"names": {"lgo": "x"}}, {"repos": "x"}]
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        git_tools(**options)
    assert "did you mean" in raised.value.hint or "there are" in raised.value.hint


# ---- what they answer


def test_status_tells_what_is_staged_changed_untracked_and_renamed(world: Any) -> None:
    assert world.do("git_status")["clean"] is True
    world.write("a.txt", "changed\n")
    world.write("new file.txt", "x\n")
    world.write(".git/info/exclude", "left out\n")
    world.write("left out", "x\n")
    world.git("mv", "b.txt", "c.txt")
    answer = world.do("git_status")
    assert (answer["branch"], answer["detached"], answer["clean"]) == ("main", False, False)
    assert answer["files"] == [
        {"path": "a.txt", "unstaged": "modified"},
        {"path": "c.txt", "from": "b.txt", "staged": "renamed"},
        {"path": "new file.txt", "state": "untracked"},
    ]
    assert [row["path"] for row in world.do("git_status", paths=["a.txt"])["files"]] == ["a.txt"]
    assert len(world.do("git_status", untracked=False)["files"]) == 2


def test_branch_head_and_log(world: Any) -> None:
    head = world.git("rev-parse", "HEAD")
    assert {**world.do("git_current_branch"), "receipt": 0} == {
        "operation": "current_branch",
        "branch": "main",
        "detached": False,
        "head": head,
        "receipt": 0,
    }
    commits = world.do("git_log", max_count=2)["commits"]
    assert [commit["subject"] for commit in commits] == ["commit 3", "commit 2"]
    assert commits[0]["commit"] == head
    assert commits[0]["author"] == "A"
    assert [c["subject"] for c in world.do("git_log", rev="HEAD~2")["commits"]] == ["commit 1"]
    assert [c["subject"] for c in world.do("git_log", rev_range="HEAD~1..HEAD")["commits"]] == [
        "commit 3"
    ]
    assert [c["subject"] for c in world.do("git_log", paths=["b.txt"])["commits"]] == ["commit 1"]
    assert [c["subject"] for c in world.do("git_log", grep="commit 2")["commits"]] == ["commit 2"]
    world.git("checkout", "-q", "--detach")
    assert world.do("git_current_branch")["branch"] is None


def test_differences_and_commits_are_shown(world: Any) -> None:
    world.write("a.txt", "one\ntwo\nthree\nfour\n")
    assert "+four" in world.do("git_diff")["text"]
    assert "nothing to show" in world.do("git_diff", staged=True)["text"]
    world.git("add", "-A")
    assert "+four" in world.do("git_diff", staged=True)["text"]
    assert "+three" in world.do("git_diff", rev_range="HEAD~1..HEAD", paths=["a.txt"])["text"]
    assert "1 file changed" in world.do("git_diff", rev="HEAD", stat=True)["text"]
    assert "commit 3" in world.do("git_show")["text"]
    assert world.do("git_show", rev="HEAD~2", path="a.txt")["text"] == "one"


def test_branches_remotes_merge_base_and_conflicts(world: Any) -> None:
    world.git("branch", "side", "HEAD~1")
    world.git("remote", "add", "origin", "https://user:hunter2@example.org/x.git?token=hunter2")
    world.git("config", "branch.main.remote", "origin")
    world.git("config", "branch.main.merge", "refs/heads/main")
    world.git("update-ref", "refs/remotes/origin/main", "HEAD~1")
    branches = world.do("git_branch_list", kind="all")["branches"]
    assert [
        (b["name"], b["remote"], b.get("current", False), b.get("upstream")) for b in branches
    ] == [
        ("main", False, True, "origin/main"),
        ("side", False, False, None),
        ("origin/main", True, False, None),
    ]
    assert [b["name"] for b in world.do("git_branch_list", contains="HEAD")["branches"]] == ["main"]
    assert world.do("git_remote_list")["remotes"] == [
        {"name": "origin", "url": "https://***@example.org/x.git"}
    ]
    assert world.do("git_merge_base", rev="side")["merge_base"] == world.git("rev-parse", "side")
    assert world.do("git_conflicts")["conflicts"] == []
    world.git("checkout", "-q", "side")
    world.commit("other", **{"a.txt": "uno\n"})
    world.git("merge", "main", check=False)
    assert world.do("git_conflicts")["conflicts"] == [
        {"path": "a.txt", "sides": ["base", "ours", "theirs"]}
    ]
    assert world.do("git_status")["files"][0]["state"] == "conflict"


def test_discover_tells_whether_there_is_a_repository(world: Any) -> None:
    answer = world.do("git_discover")
    assert (answer["repository"], answer["branch"], answer["object_format"]) == (
        True,
        "main",
        "sha1",
    )
    shutil.rmtree(world.root / ".git")
    answer = world.do("git_discover")
    assert answer["repository"] is False
    assert "not a git repository" in answer["why"]
    assert world.refused("git_status")[0] is ErrorType.NOT_FOUND


def test_a_repository_without_a_commit_is_no_error(world: Any) -> None:
    shutil.rmtree(world.root / ".git")
    world.git("init", "-q")
    assert world.do("git_current_branch")["head"] is None
    assert len(world.do("git_status")["files"]) == 2
    assert world.do("git_branch_list")["branches"] == []


def test_a_repository_below_the_workspace_is_used_and_one_outside_is_refused(
    world: Any, tmp_path: Path
) -> None:
    inner = world.root / "vendor/lib"
    inner.mkdir(parents=True)
    shutil.copytree(world.root / ".git", inner / ".git")
    world.tools = git_tools(repo="vendor/lib", enabled_tools=["all"])
    assert {row["path"] for row in world.do("git_status")["files"]} == {"a.txt", "b.txt"}
    (inner / "new.txt").write_text("x\n")
    assert world.do("git_add", paths=["new.txt"])["staged"] == ["new.txt"]
    for where in ("..", "/etc", str(tmp_path), "vendor/../../x"):
        world.tools = git_tools(repo=where)
        error, said = world.refused("git_status")
        assert error is ErrorType.PERMISSION_DENIED, said
    (world.root / "link").symlink_to(tmp_path)
    world.tools = git_tools(repo="link")
    assert not world.ask("git_status").success


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("git_log", {"rev": "main", "rev_range": "main..HEAD"}, "not both"),
        ("git_log", {"max_count": 0}, "1 to 1000"),
        ("git_switch", {"branch": "x", "create": True, "force_create": True}, "not both"),
        ("git_switch", {"branch": "x", "start_point": "HEAD"}, "create"),
        ("git_diff", {"rev_range": "a..b", "staged": True}, "neither"),
        ("git_add", {}, "paths"),
        ("git_add", {"paths": ["a.txt"], "all": True}, "paths"),
        ("git_commit", {"message": " "}, "message"),
        ("git_commit", {"message": "a\0b"}, "message"),
        ("git_log", {"author": "x\ny"}, "author"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_go_together_are_refused(
    world: Any, tool: str, arguments: dict[str, Any], said: str
) -> None:
    error, message = world.refused(tool, **arguments)
    assert error is ErrorType.VALIDATION_FAILED
    assert said in message


BAD_REFS = [
    "-x",
    "--output=x",
    "--upload-pack=x",
    "a\nb",
    "a\0b",
    "a\tb",
    "a b",
    "",
    "a..b",
    "HEAD:.env",
    ":a.txt",
    "a\\b",
    "a*",
    "a?",
    "a[b",
    "\x1b[2J",
    "@..@",
    "^main",
    "x" * 300,
    "a\u202eb",
    "|sh",
    ";sh",
    "$(sh)",
    "`sh`",
    "'",
    '"',
]


@pytest.mark.parametrize(
    ("tool", "parameter"),
    [
        ("git_log", "rev"),
        ("git_log", "rev_range"),
        ("git_diff", "rev"),
        ("git_diff", "rev_range"),
        ("git_show", "rev"),
        ("git_merge_base", "rev"),
        ("git_merge_base", "other"),
        ("git_branch_list", "contains"),
        ("git_switch", "branch"),
        ("git_rebase", "onto"),
        ("git_fetch", "branch"),
        ("git_fetch", "remote"),
        ("git_pull_ff_only", "remote"),
        ("git_push", "branch"),
        ("git_push", "remote"),
    ],
)
def test_a_name_that_could_be_something_else_is_refused(
    world: Any, tool: str, parameter: str
) -> None:
    # An empty text is as good as none where the argument may be left out; two dots are right in a
    # range.
    optional = {"contains", "rev_range"} | (
        {"rev"} if tool in ("git_log", "git_diff") else set[str]()
    )
    fine = {""} if parameter in optional else set[str]()
    fine |= {"a..b", "@..@"} if parameter == "rev_range" else set[str]()
    arguments: dict[str, Any] = {"rev": "HEAD"} if parameter == "other" else {}
    before = world.state()
    for ref in BAD_REFS:
        if ref not in fine:
            error, said = world.refused(tool, **{**arguments, parameter: ref})
            assert error in (ErrorType.VALIDATION_FAILED, ErrorType.NOT_FOUND), (ref, said)
    assert world.state() == before


@pytest.mark.parametrize(
    "text", ["", "-x", "a b", "../x", "a..b", "https://host/x", "ext::sh -c x"]
)
def test_what_is_no_name_of_a_remote_is_refused_before_git_is_asked(text: str) -> None:
    with pytest.raises(RetryCall, match="is not the name of a remote"):
        check_remote(text)


@given(st.text(max_size=30))
def test_what_passes_as_one_commit_is_one_word_and_no_option(text: str) -> None:
    try:
        check_revision(text)
    except RetryCall:
        return
    assert text and not text.startswith("-") and text.isprintable()
    assert not set(text) & set(" :\\*?[\n\0") and ".." not in text


@given(st.text(alphabet="abHEAD./-@{}~^:* \n\\", max_size=12))
def test_what_passes_as_a_branch_passes_with_git_too(text: str) -> None:
    import subprocess

    if not is_valid_branch(text):
        with pytest.raises(RetryCall):
            check_branch(text)
        return
    answer = subprocess.run(
        ["git", "check-ref-format", "--branch", text],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert answer.returncode == 0, text


@given(st.text(max_size=20), st.sampled_from(["..", "..."]), st.text(max_size=20))
def test_what_passes_as_a_range_is_two_commits(left: str, dots: str, right: str) -> None:
    try:
        check_range(left + dots + right)
    except RetryCall:
        return
    for side in (left, right):
        if side.strip("."):
            check_revision(side.strip("."))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://t0ken@example.org/a.git", "https://***@example.org/a.git"),
        ("https://u:p@example.org/a.git#x", "https://***@example.org/a.git"),
        ("ssh://git@example.org/a.git", "ssh://git@example.org/a.git"),
        ("ssh://git:pw@example.org/a.git", "ssh://***@example.org/a.git"),
        ("git@example.org:a.git", "git@example.org:a.git"),
        ("../other.git", "../other.git"),
        ("ext::sh -c x\n", "ext::sh -c x\\n"),
    ],
)
def test_addresses_are_shown_without_credentials(url: str, shown: str) -> None:
    assert redact_url(url) == shown


# ---- receipts


def test_a_receipt_says_what_was_done_for_whom_and_with_what_result(world: Any) -> None:
    world.tools = git_tools(
        enabled_tools=["all"], agent="releaser", autonomy_tier="act_with_approval"
    )
    world.write("a.txt", "x\n")
    receipt = world.do("git_status")["receipt"]
    assert receipt["schema"] == "ferrule.git_receipt.v1"
    assert (
        receipt["operation"],
        receipt["status"],
        receipt["exit_category"],
        receipt["exit_code"],
    ) == (
        "status",
        "ok",
        "success",
        0,
    )
    assert receipt["argv"][0] == "git" and "status" in receipt["argv"]
    assert receipt["affected_paths"] == ["a.txt"]
    assert (receipt["agent"], receipt["trace_id"], receipt["autonomy_tier"]) == (
        "releaser",
        "run_1",
        "act_with_approval",
    )
    assert (
        receipt["outputs"][0]["bytes"] == len(" M a.txt\0")
        and len(receipt["outputs"][0]["sha256"]) == 64
    )
    assert receipt["approval"] == {"needed": True, "given_by": "gate", "recorded_under": "c1"}
    assert receipt["policy"] == {
        "side_effect": "read",
        "risk": "low",
        "repository_programs": "none",
    }
    world.call_id = "c2"
    assert world.do("git_status")["receipt"]["receipt_id"] != receipt["receipt_id"]
    world.call_id = "c1"
    assert world.do("git_status")["receipt"]["receipt_id"] == receipt["receipt_id"]


def test_a_receipt_holds_no_credentials_and_no_folder_of_ours(world: Any) -> None:
    world.git("remote", "add", "origin", "https://u:hunter2@example.org/x.git")
    for name in ("git_remote_list", "git_branch_list", "git_discover", "git_status"):
        said = json.dumps(world.do(name))
        assert "hunter2" not in said and "ferrule-git-" not in said


# ---- the toolbox


@pytest.mark.proves("git.finder-ranks")
@pytest.mark.parametrize(("query", "expected"), TUNED)
def test_the_finder_puts_the_meant_operation_first(query: str, expected: str) -> None:
    assert find_operations(query, OPERATIONS.values())[0].operation.name == expected


@pytest.mark.proves("git.finder-ranks")
def test_the_finder_does_nearly_as_well_on_requests_it_was_not_tuned_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def right(rows: tuple[tuple[str, str], ...]) -> int:
        return sum(
            find_operations(query, OPERATIONS.values())[0].operation.name == expected
            for query, expected in rows
        )

    print(f"finder: {right(TUNED)}/{len(TUNED)} tuned, {right(HELD_OUT)}/{len(HELD_OUT)} held out")
    assert len(TUNED) + len(HELD_OUT) >= 60
    assert len({query for query, _ in (*TUNED, *HELD_OUT)}) == len(TUNED) + len(HELD_OUT)
    assert right(HELD_OUT) >= 0.9 * len(HELD_OUT)


@pytest.mark.proves("git.finder-ranks")
@pytest.mark.parametrize(
    "words", [("commit", "commits", "committed", "committing"), ("merge", "merged", "merging")]
)
def test_the_forms_of_a_word_are_ranked_alike(words: tuple[str, ...]) -> None:
    first, *others = (
        [(one.operation.name, one.score) for one in find_operations(word, OPERATIONS.values())]
        for word in words
    )
    assert first and others == [first] * len(others)


@pytest.mark.proves("git.finder-ranks")
def test_letters_inside_of_words_count_for_nothing() -> None:
    assert find_operations("o n st lo", OPERATIONS.values()) == []
    assert find_operations("xyzzy", OPERATIONS.values()) == []
    everything = find_operations("", OPERATIONS.values(), 20)
    assert [match.operation.name for match in everything] == list(OPERATIONS)
    assert {match.score for match in everything} == {0}


def test_a_toolbox_finds_and_runs_what_reads(world: Any) -> None:
    world.tools = git_toolbox_tools(repo=world.root)
    assert named(world.tools) == ["find_git_tool", "run_git_tool"]
    found = world.do("find_git_tool", query="what branch am I on")["operations"]
    assert found[0]["operation"] == "current_branch"
    assert len(world.do("find_git_tool", query="branch", max_results=1)["operations"]) == 1
    assert not {
        row["operation"]
        for row in world.do("find_git_tool", query="", max_results=20)["operations"]
    } & {"commit", "fetch"}
    assert world.do("run_git_tool", operation="current_branch")["branch"] == "main"
    assert len(world.do("run_git_tool", operation="git_log", max_count=2)["commits"]) == 2
    assert world.do("run_git_tool", operation="log", max_count=2, rev=None)["operation"] == "log"
    runner = world.tools[1]
    assert (runner.side_effect, runner.risk) == ("read", "low")


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ("comit", "`conflicts`"),
        ("commit", "switched off"),
        ("logs", "`log`"),
        ("git bisect", "there is no git operation"),
        ("current-brnch", "`current_branch`"),
    ],
)
def test_an_operation_that_is_not_there_is_an_error_result_with_the_nearest(
    world: Any, operation: str, said: str
) -> None:
    world.tools = git_toolbox_tools()
    error, message = world.refused("run_git_tool", operation=operation)
    assert error is ErrorType.NOT_FOUND
    assert said in message


def test_a_toolbox_with_mutations_runs_them_and_is_as_risky_as_they_are(world: Any) -> None:
    world.tools = git_toolbox_tools(include_mutations=True)
    assert (world.tools[1].side_effect, world.tools[1].risk) == ("external", "high")
    assert (
        world.do("find_git_tool", query="make a commit")["operations"][0]["operation"] == "commit"
    )
    world.do("run_git_tool", operation="switch", branch="feature", create=True)
    assert world.git("branch", "--show-current") == "feature"
    error, message = world.refused("run_git_tool", operation="status", branch="x")
    assert error is ErrorType.VALIDATION_FAILED and "`branch` is not an argument" in message
    assert world.refused("run_git_tool", operation="commit")[0] is ErrorType.VALIDATION_FAILED


def test_a_toolbox_refuses_paths_that_may_not_be_read_at_the_gate(world: Any) -> None:
    world.tools = git_toolbox_tools()
    assert (
        world.refused("run_git_tool", operation="show", path=".env")[0]
        is ErrorType.PERMISSION_DENIED
    )
    assert (
        world.refused("run_git_tool", operation="diff", paths=["../x"])[0]
        is ErrorType.PERMISSION_DENIED
    )
