"""Hooks from files: what is read, what is refused with its place, and that a repository's do
nothing until trusted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ErrorType, Scripted, Storage, tool
from ferrule.core.errors import ConfigError
from ferrule.core.events import Noticed
from ferrule.engine.hooks.events import EventHook
from ferrule.extensions.hooks.loading import LoadedHooks, load_hooks
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore, find_named_programs

SCRIPT = """\
---
events: [tool.pre]
when: name == "echo"
priority: 10
script: |
  def handle(event, payload):
      text = payload["args"]["text"]
      if "rm" in text:
          return block("no " + text + " at " + event)
      if text == "loud":
          payload["arguments"]["text"] = "LOUD"
          return modify(payload)
      if text == "loop":
          for i in range(1000000000):
              pass
      if text == "wrong":
          return payload["arguments"]["txt"]
      if text == "odd":
          return "no"
      return allow()
timeout_ms: 400
---
Keeps the disk.
"""


@tool(side_effect="none")
def echo(text: str) -> str:
    """Say it."""
    return text


def put(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / ".ferrule" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def loaded(root: Path, *, trust: bool = True, **options: Any) -> LoadedHooks:
    known = TrustStore()
    if trust:
        known.trust(root)
    return load_hooks(known.read(root), **options)


async def said(hooks: tuple[EventHook, ...], text: str) -> str:
    """What `echo` comes to in a run: its text, or the refusal."""
    ours = Agent(
        Scripted([calls(("echo", {"text": text})), says("ok")]),
        [echo],
        plugins=[Parts(hooks=hooks)],
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    result = (await ours.run("go")).results[0]
    assert result.error_type in (ErrorType.NONE, ErrorType.PERMISSION_DENIED)
    return result.error_message or str(result.data)


async def test_a_script_in_a_file_blocks_changes_and_lets_pass(tmp_path: Path) -> None:
    hooks = loaded(put(tmp_path, hooks__disk_dot_md=SCRIPT)).hooks
    assert [(h.name, h.events, h.priority) for h in hooks] == [("disk", ("tool.pre",), 10)]
    assert await said(hooks, "hello") == "hello"
    assert await said(hooks, "loud") == "LOUD"
    assert "the hook `disk`: no rm x at tool.pre" in await said(hooks, "rm x")


@pytest.mark.proves("hook.fail-closed")
async def test_a_script_that_hangs_fails_or_answers_oddly_blocks(tmp_path: Path) -> None:
    hooks = loaded(put(tmp_path, hooks__disk_dot_md=SCRIPT)).hooks
    for text in ("loop", "wrong", "odd"):
        assert "the hook `disk`: it failed" in await said(hooks, text)


async def test_a_script_has_no_way_to_the_outside(tmp_path: Path) -> None:
    for reach in ('fs.read("x")', 'exec.run("sh", [])', 'http.get("http://x")', 'delegate("x")'):
        script = (
            f"---\nevents: [tool.pre]\nscript: |\n  def handle(event, payload):\n      {reach}\n "
            "     return allow()\n---\n"
        )
        hooks = loaded(put(tmp_path, hooks__a_dot_md=script)).hooks
        assert "the hook `a`: it failed" in await said(hooks, "x")


async def test_what_a_script_prints_and_logs_reaches_the_journal(tmp_path: Path) -> None:
    script = (
        "---\nevents: [tool.pre]\nscript: |\n  def handle(event, payload):\n"
        '      print("seen")\n      log.warn("careful", tool="echo")\n'
        "      for i in range(40):\n          print(i)\n      return allow()\n---\n"
    )
    hooks = loaded(put(tmp_path, hooks__watch_dot_md=script)).hooks
    agent = Agent(
        Scripted([calls(("echo", {"text": "x"})), says("ok")]),
        [echo],
        plugins=[Parts(hooks=hooks)],
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    run = await agent.run("go")
    records = agent.journal.records(run.session)
    told = [one.event.text for one in records if isinstance(one.event, Noticed)]
    assert told[:3] == ["`watch`: seen", "`watch`: warn: careful tool=echo", "`watch`: 0"]
    assert told[-1] == "`watch`: [more than 20 lines; the rest is dropped]"
    assert len(told) == 21


@pytest.mark.parametrize("state", ["untrusted", "changed"])
async def test_a_repositorys_hooks_do_nothing_until_they_are_trusted_as_they_stand(
    state: str, tmp_path: Path
) -> None:
    starts = SCRIPT.replace("tool.pre", "turn.start").replace('when: name == "echo"\n', "")
    put(tmp_path, hooks__disk_dot_md=starts)
    if state == "changed":
        TrustStore().trust(tmp_path)
    put(tmp_path, hooks__disk_dot_md=SCRIPT, hooks_dot_json='{"hooks": {"Nonsense": 1}}')
    found = loaded(tmp_path, trust=False)
    assert found.hooks == ()
    assert found.inert == (".ferrule/hooks.json", ".ferrule/hooks/disk.md")


@pytest.mark.proves("trust.restrictions-kept")
@pytest.mark.parametrize("change", ["weaker", "gone", "all gone"])
async def test_hooks_that_were_trusted_guard_calls_after_trust_was_lost_and_do_no_more(
    change: str, tmp_path: Path
) -> None:
    command = 'sh "$FERRULE_HOOKS/guard.sh"'
    table = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]}}
    put(tmp_path, hooks__disk_dot_md=SCRIPT, hooks_dot_json=json.dumps(table))
    put(tmp_path, hooks__guard_dot_sh="grep -q secret && { echo no secrets >&2; exit 2; }; exit 0")
    TrustStore().trust(tmp_path)
    if change == "weaker":
        put(tmp_path, hooks__guard_dot_sh="exit 0", hooks__disk_dot_md="---\n---\n")
    else:
        shutil.rmtree(tmp_path / (".ferrule" if change == "all gone" else ".ferrule/hooks"))
    found = loaded(tmp_path, trust=False)
    try:
        assert len(found.guards) == 2
        assert "no rm" in await said(found.hooks, "rm")
        assert "no secrets" in await said(found.hooks, "secret")
        assert await said(found.hooks, "hello") == "hello"
        # It would have changed the call, which is more than to restrict it.
        assert "no longer trusted" in await said(found.hooks, "loud")
    finally:
        await found.close()


@pytest.mark.proves("trust.restrictions-kept")
async def test_a_guard_whose_program_is_another_one_refuses_and_is_not_started(
    tmp_path: Path,
) -> None:
    table = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "sh ci/g.sh"}]}]}}
    put(tmp_path, hooks_dot_json=json.dumps(table))
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/g.sh").write_text("exit 0\n")
    seen = TrustStore().trust(tmp_path)
    assert seen.named_files == ("ci/g.sh",) and seen.files["ci/g.sh"] == b"exit 0\n"
    (tmp_path / "ci/g.sh").write_text("echo ran > proof.txt\n")
    assert TrustStore().state(tmp_path) == "changed"
    found = loaded(tmp_path, trust=False)
    try:
        assert "not the program that was trusted" in await said(found.hooks, "hello")
    finally:
        await found.close()
    assert not (tmp_path / "proof.txt").exists()


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("sh tools/guard.sh", ("tools/guard.sh",)),
        ("./guard --strict", ("guard",)),
        ('"$CLAUDE_PROJECT_DIR"/tools/guard.sh', ("tools/guard.sh",)),
        ("python3 ${FERRULE_PROJECT_DIR}/ci/x.py src/a.py", ("ci/x.py",)),
        ("cd . && bash -e ci/a.sh; ci/b", ("ci/a.sh", "ci/b")),
        ("timeout 5 node check.js", ("check.js",)),
        ("sh < ci/a.sh", ("ci/a.sh",)),
        ("cat ci/a.sh | sh", ("ci/a.sh",)),
        ("python3 -m ci.guard", ("ci/guard.py",)),
        ("/usr/bin/true", ()),
        ("sh ../outside.sh", ()),
        ("npm run lint", ()),
        ('sh "$FERRULE_HOOKS/guard.sh"', ()),
    ],
)
def test_the_programs_that_a_hook_names_are_found(command: str, programs: tuple[str, ...]) -> None:
    assert find_named_programs(command) == programs


@pytest.mark.parametrize(
    ("front", "place", "words"),
    [
        ("events: [tool.pree]\nscript: x", "2:10", "no such event"),
        ("script: x", "2:1", "needs `events`"),
        ("events: [tool.pre]", "2:1", "found none of them"),
        ("events: [tool.pre]\nscript: x\ncommand: y", "2:1", "`script` and `command`"),
        ("events: [tool.pre]\nscript: x\nwhen: nme == 1", "4:7", "did you mean `name`"),
        (
            "events: [tool.pre]\nscript: x\nwhen: |\n  name ==\n   open(1)",
            "6:",
            "no function `open`",
        ),
        ("events: [tool.pre]\nscript: x\npriority: high", "4:11", "whole number"),
        ("events: [tool.pre]\nscript: x\ntimeout_ms: -1", "4:13", "timeout_ms"),
        ("events: [tool.pre]\nscript: x\non_error: ignore", "4:11", "ignore"),
        ("events: [tool.pre]\nguard: none_such", "3:8", "no guard `none_such`"),
        ("guard: writes_within", "2:8", "needs folders"),
        ("guard: writes_within\nwith: {nowhere: 1}", "3:7", "nowhere"),
        (
            "events: [turn.end]\nguard: writes_within\nwith: {within: [src]}",
            "2:1",
            "is a guard for tool.pre",
        ),
        ("events: [tool.pre]\nurl: https://example.com/x", "2:1", "no hosts are allowed"),
        ("events: [tool.pre\nscript: x", "3:", "not YAML"),
    ],
)
def test_a_mistake_in_a_trusted_file_is_an_error_with_its_place(
    front: str, place: str, words: str, tmp_path: Path
) -> None:
    put(tmp_path, hooks__bad_dot_md=f"---\n{front}\n---\n")
    with pytest.raises(ConfigError) as wrong:
        loaded(tmp_path)
    assert f".ferrule/hooks/bad.md:{place}" in str(wrong.value)
    assert words in str(wrong.value)


def test_all_problems_are_said_at_once_and_unknown_keys_are_warnings(tmp_path: Path) -> None:
    put(
        tmp_path,
        hooks__a_dot_md="no front matter",
        hooks__b_dot_md="---\nevents: [x]\nscript: y\n---\n",
    )
    with pytest.raises(ConfigError) as wrong:
        loaded(tmp_path)
    assert "a.md:1:1" in str(wrong.value)
    assert "b.md:2:" in str(wrong.value)
    for name in ("a", "b"):
        (tmp_path / ".ferrule" / "hooks" / f"{name}.md").unlink()
    put(tmp_path, hooks__c_dot_md="---\nevents: [tool.pre]\nscript: y\npriorty: 3\n---\n")
    assert [str(w) for w in loaded(tmp_path).warnings] == [
        (
            ".ferrule/hooks/c.md:4:1: `priorty` is not a key of a hook and was ignored; did you "
            "mean `priority`?"
        )
    ]


async def test_a_file_can_name_a_guard_that_ships(tmp_path: Path) -> None:
    put(
        tmp_path,
        hooks__keys_dot_md="---\nguard: no_secrets_in_arguments\nwith: {environment: false}\n---\n",
    )
    hooks = loaded(tmp_path).hooks
    assert "the hook `keys`" in await said(hooks, "ghp_" + "a1B2" * 9)
    assert await said(hooks, "hello") == "hello"


async def test_a_file_can_name_a_command_whose_files_are_those_that_were_trusted(
    tmp_path: Path,
) -> None:
    put(
        tmp_path,
        hooks__no_dot_md="---\nevents: [tool.pre]\ncommand: sh $FERRULE_HOOKS/no_sh\n---\n",
        hooks__no_sh="echo not today >&2; exit 2\n",
    )
    found = loaded(tmp_path)
    try:
        put(tmp_path, hooks__no_sh="exit 0\n")
        assert "the hook `no`: not today" in await said(found.hooks, "x")
    finally:
        await found.close()


def test_a_command_that_the_sandbox_hides_from_itself_is_warned_of(tmp_path: Path) -> None:
    put(
        tmp_path,
        hooks__no_dot_md="---\nevents: [tool.pre]\ncommand: sh .ferrule/hooks/no.sh\n---\n",
    )
    assert ["$FERRULE_HOOKS" in str(w) for w in loaded(tmp_path).warnings] == [True]
    (tmp_path / ".harness" / "hooks").mkdir(parents=True)
    (tmp_path / ".harness" / "hooks" / "no.md").write_text("another")
    with pytest.raises(ConfigError, match="different names"):
        loaded(tmp_path)


def test_a_hook_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".ferrule" / "hooks").mkdir(parents=True)
    (tmp_path / "x.md").write_text(SCRIPT)
    (tmp_path / ".ferrule" / "hooks" / "x.md").symlink_to(tmp_path / "x.md")
    with pytest.raises(ConfigError, match="is a link"):
        loaded(tmp_path)


async def test_a_persons_own_hooks_hold_without_trust_but_not_if_others_can_write_them(
    tmp_path: Path,
) -> None:
    own = tmp_path / "config"
    (own / "hooks").mkdir(parents=True, mode=0o700)
    (own / "hooks" / "disk.md").write_text(SCRIPT)
    (own / "hooks" / "disk.md").chmod(0o600)
    root = tmp_path / "w"
    root.mkdir()
    hooks = loaded(root, trust=False, settings_folder=own).hooks
    assert "no rm x" in await said(hooks, "rm x")
    (own / "hooks" / "disk.md").chmod(0o666)
    with pytest.raises(ConfigError, match="others can write"):
        loaded(root, trust=False, settings_folder=own)


def test_settings_in_the_known_shape_are_read_and_mistakes_have_a_place(tmp_path: Path) -> None:
    table = {
        "hooks": {
            "PreToolUse": [
                {
                    "matcher": "Bash|Edit",
                    "hooks": [{"type": "command", "command": "true", "timeout": 9}],
                }
            ],
            "Stop": [{"hooks": [{"type": "command", "command": "true"}]}],
            "PreCompact": [{"hooks": [{"type": "command", "command": "true"}]}],
        }
    }
    put(tmp_path, hooks_dot_json=json.dumps(table))
    found = loaded(tmp_path)
    assert [h.events for h in found.hooks] == [("tool.pre",), ("turn.end",)]
    assert ["`PreCompact` have no effect" in str(w) for w in found.warnings] == [True]
    for text, words in (
        ('{"hooks": {"PreToolUze": []}}', "no such event"),
        ('{"hooks": {"PreToolUse": [{"matcher": "(", "hooks": []}]}}', "not a regular expression"),
        (
            '{"hooks": {"PreToolUse": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}',
            "type `prompt`",
        ),
        ('{"hooks": {"PreToolUse": [{"hooks": [{"type": "command"}]}]}}', "type `command`"),
        ('{"hooks": {"PreToolUse": [{"matcher": "Bash"}]}}', "must be a list"),
        ('{"hooks": []}', "must be a mapping"),
    ):
        put(tmp_path, hooks_dot_json=text)
        with pytest.raises(ConfigError) as wrong:
            loaded(tmp_path)
        assert words in str(wrong.value)
        assert ".ferrule/hooks.json:1:" in str(wrong.value)


def test_an_invalid_file_of_a_person_is_named_where_it_lies_with_what_to_do(tmp_path: Path) -> None:
    own = tmp_path / "config"
    (own / "hooks").mkdir(parents=True, mode=0o700)
    (own / "hooks.json").write_text('{"hooks": ')
    (own / "hooks" / "bad.md").write_text("no front matter")
    for file in (own / "hooks.json", own / "hooks" / "bad.md"):
        file.chmod(0o600)
    root = tmp_path / "w"
    root.mkdir()
    with pytest.raises(ConfigError) as wrong:
        loaded(root, trust=False, settings_folder=own)
    assert f"{own}/hooks/bad.md:1:1" in wrong.value.detail
    assert f"{own}/hooks.json:" in wrong.value.detail
    assert "not JSON" in wrong.value.detail
    assert "may be a guard" in wrong.value.hint
