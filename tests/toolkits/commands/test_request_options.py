"""What else a request may say: which shell, what is kept of the output; and what cannot be had,
with the reason.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_world import World
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.toolkits.commands import CommandOptions, CommandPolicy
from ferrule.toolkits.commands.request import CommandRequest, parse_request


async def test_bash_is_the_shell_and_no_other_reads_a_text(world: World) -> None:
    assert (await world.run("echo $BASH_VERSION", shell_id="bash"))["stdout"].strip()
    for other in ("zsh", "sh", "/bin/bash", "fish"):
        with pytest.raises(ToolFailed, match="only `bash`") as raised:
            await world.run("echo hi", shell_id=other)
        assert raised.value.error_type is ErrorType.PERMISSION_DENIED
    with pytest.raises(RetryCall, match="`mode: shell`"):
        await world.run(["echo"], shell_id="bash")


@pytest.mark.parametrize(
    ("option", "way"), [({"login": True}, "`env`"), ({"interactive": True}, "`stdin`")]
)
async def test_a_login_or_interactive_shell_is_refused_with_another_way(
    world: World, option: dict[str, bool], way: str
) -> None:
    for command in ("echo hi", ["echo", "hi"]):
        with pytest.raises(ToolFailed, match=way) as raised:
            await world.run(command, **option)
        assert raised.value.error_type is ErrorType.PERMISSION_DENIED
    assert (await world.run("echo hi", login=False, interactive=False))["stdout"] == "hi\n"


async def test_no_start_up_file_is_read_by_the_shell(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / ".bashrc").write_text("echo from the start-up file\n")
    (world.folder / ".bash_profile").write_text("echo from the profile\n")
    monkeypatch.setenv("HOME", str(world.folder))
    monkeypatch.setenv("BASH_ENV", str(world.folder / ".bashrc"))
    assert (await world.run("echo hi"))["stdout"] == "hi\n"


async def test_an_output_can_be_thrown_away(world: World) -> None:
    record = await world.run("echo out; echo err >&2", capture={"stdout": False})
    assert (record["stdout"], record["stderr"], record["byte_count"]) == ("", "err\n", 4)
    record = await world.run("echo out; echo err >&2", capture={"stderr": False})
    assert (record["stdout"], record["stderr"]) == ("out\n", "")
    record = await world.run(
        "echo out; echo err >&2; exit 3", capture={"stdout": False, "stderr": False}
    )
    assert (record["stdout"], record["stderr"], record["exit_code"]) == ("", "", 3)
    shown = await world.tools["run_command"].preview(
        {"argv": ["x"], "capture": {"stdout": False}}, world.context()
    )
    assert "standard output is discarded" in shown


async def test_outputs_are_pipes_and_nothing_else(world: World) -> None:
    assert (await world.run(["echo", "hi"], capture={"transport": "pipe"}))["stdout"] == "hi\n"
    with pytest.raises(RetryCall, match="no terminal"):
        await world.run(["true"], capture={"transport": "pty"})
    for wrong in ({"transport": 1}, {"stdout": "no"}, {"merge_stderr": True, "stderr": False}):
        with pytest.raises(RetryCall):
            await world.run(["true"], capture=wrong)


async def test_a_request_that_a_policy_hands_back_keeps_what_it_said(world: World) -> None:
    """What a policy function is shown can be given back as it is, with these options too."""
    seen: list[dict[str, Any]] = []

    def policy(request: dict[str, Any], args: Any) -> dict[str, Any] | None:
        seen.append(request)
        return {"patch": {"argv": ["echo", "changed"]}} if len(seen) == 1 else None

    world.set(command_policy=policy)
    record = await world.run(
        ["true"], env={"A": "1"}, env_mode="replace", capture={"stderr": False}
    )
    assert record["stdout"] == "changed\n"
    assert seen[1]["env_mode"] == "replace" and seen[1]["env"] == {"A": "1"}
    assert seen[1]["capture"]["stderr"] is False


_REQUESTS = st.fixed_dictionaries(
    {"argv": st.lists(st.text("ab -", min_size=1), min_size=1, max_size=3)},
    optional={
        "env": st.dictionaries(st.sampled_from(["A", "PYTHONPATH", "CI"]), st.text("xy")),
        "env_mode": st.sampled_from(["inherit_clean", "replace", "patch"]),
        "env_remove": st.lists(st.sampled_from(["LANG", "TZ"]), unique=True),
        "capture": st.fixed_dictionaries(
            {}, optional={"stdout": st.booleans(), "max_inline_bytes": st.integers(0, 9)}
        ),
        "background_after_ms": st.integers(0, 9),
        "stdin": st.text("z"),
    },
)


@given(_REQUESTS)
def test_a_request_read_from_its_own_arguments_is_the_same(given: dict[str, Any]) -> None:
    request = parse_request(given, CommandOptions(), CommandPolicy())
    again = parse_request(
        json.loads(json.dumps(request.to_arguments())), CommandOptions(), CommandPolicy()
    )
    assert isinstance(request, CommandRequest) and again == request
