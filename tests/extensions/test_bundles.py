"""Bundles: their conditions hold turn by turn, what they require is there, and hooks in them and in
main files take effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Agent, ErrorType, Permissions, Scripted, Storage, tool
from ferrule.core.calls import ToolResult
from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import Action, TurnStart, modify
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.front_matter import parse_document
from ferrule.extensions.hooks.decorator import hook
from ferrule.extensions.hooks.loading import LoadedHooks, load_hooks
from ferrule.extensions.tool_files.bundles import Bundle, collect_conditions, parse_bundle
from ferrule.extensions.tool_files.loading import load_tools
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import ConfigurationSnapshot

SHIP = "tools:\n  - name: ship\n    script: |\n      def run(args):\n          return 'shipped'\n"
GUARD = """hooks:
  - name: no-rm
    event: tool.pre
    when: name == "echo"
    script: |
      def handle(event, payload):
          return block("no rm") if "rm" in payload["arguments"]["text"] else allow()
"""


@tool(side_effect="none")
def echo(text: str) -> str:
    """Say it."""
    return text


def plugin(name: str, *parts: str, head: str = "") -> bytes:
    return f"---\nname: {name}\ndescription: Things.\n{head}{''.join(parts)}---\n".encode()


def hooks_of(files: dict[str, bytes], state: Any = "trusted", **more: Any) -> LoadedHooks:
    return load_hooks(ConfigurationSnapshot("/nowhere", state, "", files), **more)


async def turns(files: dict[str, bytes], *messages: str, extra: Any = ()) -> list[list[ToolResult]]:
    """What `ship` and `echo rm` come to in each turn of a session with these messages."""
    world = ScriptEnvironment()
    both = calls(("ship", {}), ("echo", {"text": "rm"}))
    steps = [step for _ in messages for step in (both, says("done"))]
    agent = Agent(
        Scripted(steps),
        [*load_tools(files).make_tools(world), echo],
        plugins=[Parts(hooks=[*hooks_of(files, messages=world.messages).hooks, *extra])],
        storage=Storage(journal=SqliteJournal(":memory:")),
        permissions=Permissions(mode="bypassPermissions"),
    )
    session = agent.session()
    try:
        return [list((await session.run(message)).results) for message in messages]
    finally:
        await session.close()


@pytest.mark.parametrize("spelling", ["when", "condition"])
async def test_tools_and_hooks_of_a_bundle_take_part_in_the_turns_that_its_condition_names(
    spelling: str,
) -> None:
    files = {
        ".harness/plugins/r.md": plugin(
            "rel", SHIP, GUARD, head=f"{spelling}: '\"release\" in text'\n"
        )
    }
    first, second, third = await turns(files, "a release", "something else", "release again")
    assert [one.success for one in first] == [True, False]
    assert "no rm" in (first[1].error_message or "")
    assert [one.success for one in second] == [False, True]
    assert second[0].error_type is ErrorType.PERMISSION_DENIED
    assert "the bundle `rel` is not active in this turn" in (second[0].error_message or "")
    assert [one.success for one in third] == [True, False]


async def test_the_condition_is_decided_on_the_message_as_hooks_left_it() -> None:
    @hook("turn.start", priority=500)
    def rewrite(start: TurnStart) -> Action:
        return modify({"text": start.text.replace("ship it", "release")})

    files = {".harness/plugins/r.md": plugin("rel", SHIP, head='when: text == "release"\n')}
    ((ship, _),) = await turns(files, "ship it", extra=[rewrite])
    assert ship.success


async def test_a_bundle_without_a_condition_takes_part_always() -> None:
    files = {".harness/plugins/r.md": plugin("rel", SHIP, GUARD)}
    ((ship, echoed),) = await turns(files, "anything")
    assert (ship.success, echoed.success) == (True, False)
    assert [one.name for one in hooks_of(files).hooks] == ["no-rm"]


async def test_a_condition_that_cannot_be_decided_is_a_no() -> None:
    files = {".harness/plugins/r.md": plugin("rel", SHIP, GUARD, head="when: text < 3\n")}
    ((ship, echoed),) = await turns(files, "anything")
    assert "cannot be evaluated" in (ship.error_message or "")
    assert echoed.error_type is ErrorType.PERMISSION_DENIED
    assert "no-rm" in (echoed.error_message or "")


async def test_what_a_model_is_shown_does_not_change_from_turn_to_turn() -> None:
    files = {".harness/plugins/r.md": plugin("rel", SHIP, head='when: text == "x"\n')}
    agent = Agent(
        Scripted([]),
        load_tools(files).make_tools(ScriptEnvironment()),
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    assert "ship" in [one.name for one in agent.visible_tools.specs()]


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            "when: txt == 1\n",
            ".harness/plugins/r.md:4:7: turn.start has no `txt`; did you mean `text`?",
        ),
        ("when: \"open('x')\"\n", ".harness/plugins/r.md:4:"),
        ('when: text == "a"\ncondition: text == "a"\n', "are one key"),
        ("when: [a]\n", "must be text"),
    ],
)
def test_a_condition_that_cannot_be_read_is_an_error_with_its_place(head: str, said: str) -> None:
    files = {".harness/plugins/r.md": plugin("rel", SHIP, head=head)}
    for loads in (load_tools, hooks_of):
        with pytest.raises(ConfigError) as caught:
            loads(files)
        assert said in caught.value.detail


# ---- what a bundle requires


@pytest.mark.parametrize("spelling", ["requires", "depends_on"])
async def test_a_bundle_takes_part_only_with_what_it_requires(spelling: str) -> None:
    files = {
        ".harness/plugins/r.md": plugin("rel", SHIP, head=f"{spelling}: [base]\n"),
        ".harness/builtins/b.md": plugin(
            "base", GUARD, head="when: \"'release' in text\"\nrequires: core\n"
        ),
        ".harness/overrides/c.md": plugin("core", head="when: length(text) < 20\n"),
    }
    found = await turns(files, "release", "other", "release, and a long message")
    assert [one.success for (one, _) in found] == [True, False, False]
    assert [one.success for (_, one) in found] == [False, True, True]


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ({"one": "[none]"}, "the bundle `one` requires `none`, which does not exist"),
        ({"one": "[one]"}, "the bundle `one` requires `one`, which requires it"),
        ({"one": "[two]", "two": "[one]"}, "which requires it"),
        ({"one": "{a: b}"}, "must be a list of texts"),
    ],
)
def test_a_requirement_that_cannot_be_met_is_an_error(requires: dict[str, str], said: str) -> None:
    files = {
        f".harness/plugins/{name}.md": plugin(name, head=f"requires: {names}\n")
        for name, names in requires.items()
    }
    for loads in (load_tools, hooks_of):
        with pytest.raises(ConfigError) as caught:
            loads(files)
        assert said in caught.value.detail


def test_a_required_name_that_two_bundles_have_is_an_error() -> None:
    files = {
        ".harness/plugins/a.md": plugin("same"),
        ".harness/plugins/b.md": plugin("same"),
        ".harness/plugins/c.md": plugin("other", head="requires: [same]\n"),
    }
    with pytest.raises(ConfigError, match=r"`same` is required, and .* has that name too"):
        load_tools(files)
    del files[".harness/plugins/c.md"]
    assert len(load_tools(files).bundles) == 2


def _bundle(name: str, requires: set[str], *, when: bool) -> Bundle:
    head = f"requires: [{', '.join(sorted(requires))}]\n" + (
        f'when: text != "{name}"\n' if when else ""
    )
    data = plugin(name, head=head)
    return parse_bundle("plugin", parse_document(data, f".harness/plugins/{name}.md"), data)[0]


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.tuples(st.sets(st.sampled_from("abcdef"), max_size=4), st.booleans()),
    )
)
def test_a_bundle_holds_where_all_that_it_reaches_hold_or_it_is_refused(
    graph: dict[str, tuple[set[str], bool]],
) -> None:
    found, wrong = collect_conditions(
        _bundle(name, names, when=when) for name, (names, when) in graph.items()
    )
    refused = 0
    for name in graph:
        reached, todo, broken = {name}, [name], False
        while todo:
            for following in graph[todo.pop()][0]:
                broken = broken or following not in graph or following == name
                if following in graph and following not in reached:
                    reached.add(following)
                    todo.append(following)
        refused += broken
        if broken:
            continue
        guarded = {one for one in reached if graph[one][1]}
        condition = found.get(f".harness/plugins/{name}.md")
        for text in "abcdef":
            assert (condition is None or condition.is_met(text)) is (text not in guarded)
    assert len(wrong) == refused


# ---- hooks in bundles and in main files


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (".harness/harness.md", "---\n", "---\n"),
        (".ferrule/harness.md", "---\n", "---\nText.\n"),
        ("harness.md", "---\n", "---\n"),
        (".ferrule/ferrule.yaml", "model: scripted\n", ""),
        ("ferrule.yaml", "", ""),
    ],
)
async def test_hooks_of_main_files_take_effect(name: str, before: str, after: str) -> None:
    files = {name: (before + GUARD + after).encode()}
    (found,) = hooks_of(files).hooks
    assert (found.name, found.events, found.source) == ("no-rm", ("tool.pre",), name)
    agent = Agent(
        Scripted([calls(("echo", {"text": "rm"})), says("ok")]),
        [echo],
        plugins=[Parts(hooks=[found])],
        storage=Storage(journal=":memory:"),
    )
    (result,) = (await agent.run("go")).results
    assert "the hook `no-rm`: no rm" in (result.error_message or "")


def test_a_main_file_in_markdown_may_have_the_known_shape_and_a_settings_file_its_section() -> None:
    shape = (
        "hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks: "
        "[{ type: command, command: 'exit 2' }]\n"
    )
    (found,) = hooks_of({".harness/harness.md": f"---\n{shape}---\n".encode()}).hooks
    assert found.events == ("tool.pre",)
    assert hooks_of({".ferrule/ferrule.yaml": b"hooks: { hosts: [a.test] }\n"}).hooks == ()


def test_all_mistakes_of_hooks_in_lists_are_said_with_their_places() -> None:
    bad = (
        "hooks:\n  - name: a\n    events: [tool.pr]\n    script: 'x'\n  - name: b\n    events: "
        "[tool.pre]\n  - 3\n"
    )
    with pytest.raises(ConfigError) as caught:
        hooks_of({".harness/plugins/p.md": plugin("p", bad), "harness.md": b"---\nhooks: 3\n---\n"})
    lines = [line for line in caught.value.detail.splitlines() if not line.startswith("hint: ")]
    assert [line.partition(": ")[0] for line in lines] == [
        ".harness/plugins/p.md:6:14",
        ".harness/plugins/p.md:8:5",
        ".harness/plugins/p.md:10:5",
        "harness.md:2:8",
    ]
    assert "did you mean `tool.pre`?" in caught.value.detail


def test_hooks_without_a_name_are_called_after_where_they_stand_and_none_takes_anothers_place() -> (
    None
):
    unnamed = GUARD.replace("  - name: no-rm\n    event", "  - event")
    files = {
        ".harness/plugins/p.md": plugin("p", unnamed),
        ".harness/overrides/q.md": plugin("q", GUARD),
        ".harness/builtins/r.md": plugin("r", GUARD.replace("name: no-rm", "handler: no-rm")),
        "harness.md": f"---\n{unnamed}---\n".encode(),
    }
    assert sorted(one.name for one in hooks_of(files).hooks) == [
        "harness.md hook 1",
        "no-rm",
        "no-rm of .harness/overrides/q.md",
        "p hook 1",
    ]


def test_hooks_of_bundles_and_main_files_do_nothing_before_they_are_trusted() -> None:
    files = {
        ".harness/plugins/p.md": plugin("p", GUARD),
        ".harness/plugins/q.md": plugin("q", SHIP),
        ".harness/plugins/broken.md": b"no front matter",
        "ferrule.yaml": b"hooks: { hosts: [a.test] }\n",
        "harness.md": f"---\n{GUARD}---\n".encode(),
    }
    found = hooks_of(files, "untrusted")
    assert (found.hooks, found.inert) == ((), (".harness/plugins/p.md", "harness.md"))


def test_a_bundle_that_is_a_link_is_an_error_where_hooks_are_read() -> None:
    seen = ConfigurationSnapshot(
        "/nowhere", "trusted", "", {}, {".harness/plugins/p.md": "../../x.md"}
    )
    with pytest.raises(ConfigError, match="is a link"):
        load_hooks(seen)


async def test_a_session_that_ends_is_forgotten(tmp_path: Path) -> None:
    world = ScriptEnvironment()
    files = {".harness/plugins/r.md": plugin("rel", SHIP, head='when: text == "x"\n')}
    agent = Agent(
        Scripted([says("a")]),
        load_tools(files).make_tools(world),
        plugins=[Parts(hooks=hooks_of(files, messages=world.messages).hooks)],
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    session = agent.session()
    await session.run("x")
    identity = session.driver.log.identity
    assert world.messages.message_of(identity) == "x"
    await session.close()
    assert world.messages.message_of(identity) == ""
