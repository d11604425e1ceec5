"""Functions given as options are checked where they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ferrule import ConfigError, Host, ToolSearch
from ferrule.core.callbacks import check_callback
from ferrule.toolkits import agent_command_tools, agent_read_tools


class Judge:
    def __call__(self, request: Any, args: Any) -> bool:
        return bool(request and args)


@pytest.mark.proves("options.callbacks")
@pytest.mark.parametrize(
    "given",
    [
        lambda request, args: True,
        lambda request, _args, more=0: True,
        lambda *everything: True,
        Judge(),
        partial(lambda extra, request, args: True, 1),
        max,
    ],
    ids=["plain", "default", "variadic", "object", "partial", "builtin"],
)
def test_a_function_that_can_be_called_so_is_taken(given: Callable[..., Any]) -> None:
    check_callback("command_policy", given, ("request", "args"))


@pytest.mark.proves("options.callbacks")
@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("command_policy", lambda: agent_command_tools(command_policy=lambda request: True)),
        ("command_policy", lambda: agent_command_tools(allow_command=lambda: True)),
        ("command_policy", lambda: agent_command_tools(command_policy="git")),  # type: ignore[arg-type]
        ("result_formatter", lambda: agent_read_tools(result_formatter=lambda value: value)),  # type: ignore[arg-type]
        ("result_formatter", lambda: agent_read_tools(formatters={"read_file": len})),  # type: ignore[dict-item]
        ("strategy", lambda: ToolSearch(strategy=lambda query: [])),
        ("strategy", lambda: ToolSearch(strategy={"handler": lambda query, tools: []})),
        ("make_deps", lambda: Host(make_deps=lambda: None)),  # type: ignore[misc,arg-type]
    ],
)
def test_a_function_of_another_form_is_an_error_where_it_is_given(
    option: str, make: Callable[[], Any]
) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert refused.value.detail.startswith(f"{option}: ")
    assert f"{option}(" in f"{refused.value.detail} {refused.value.hint}"
