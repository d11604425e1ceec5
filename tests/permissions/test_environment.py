"""What child processes get of the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.permissions.child_environment import PASSED_ON, filter_environment, is_secret_variable

PARENT = {
    "PATH": "/bin",
    "HOME": "/home/person",
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "TERM": "xterm",
    "NO_COLOR": "1",
    "OPENAI_API_KEY": "sk-1",
    "GITHUB_TOKEN": "gh-1",
    "DB_PASSWORD": "p",
    "AWS_SECRET_ACCESS_KEY": "a",
    "MY_CREDENTIALS": "c",
    "HARVEY_ANYTHING": "h",
    "LD_PRELOAD": "/x.so",
    "CARGO_HOME": "/cargo",
    "EDITOR": "vi",
}


@pytest.mark.proves("environment.filter")
def test_a_child_sees_the_small_list_only() -> None:
    child = filter_environment(PARENT)
    assert child.values == {
        name: PARENT[name] for name in ("PATH", "HOME", "LANG", "LC_TIME", "TERM", "NO_COLOR")
    }
    assert "OPENAI_API_KEY" in child.withheld and "HARVEY_ANYTHING" in child.withheld


@pytest.mark.proves("environment.filter")
def test_names_are_added_one_by_one_or_by_prefix() -> None:
    assert filter_environment(PARENT, add=["EDITOR"]).values["EDITOR"] == "vi"
    assert filter_environment(PARENT, add=["CARGO_*"]).values["CARGO_HOME"] == "/cargo"


def test_a_secret_passes_only_by_its_full_name() -> None:
    assert "GITHUB_TOKEN" not in filter_environment(PARENT, add=["GITHUB_*"]).values
    assert filter_environment(PARENT, add=["GITHUB_TOKEN"]).values["GITHUB_TOKEN"] == "gh-1"


def test_variables_that_load_code_never_pass() -> None:
    assert "LD_PRELOAD" not in filter_environment(PARENT, add=["LD_PRELOAD", "LD_*"]).values


def test_path_is_always_there_and_overrides_are_kept() -> None:
    child = filter_environment({}, overrides={"CI": "1"})
    assert child.values["PATH"] and child.values["CI"] == "1"


@pytest.mark.proves("environment.withheld-is-named")
def test_a_failing_childs_output_names_what_was_withheld() -> None:
    child = filter_environment(PARENT)
    assert child.find_mentioned("error: GITHUB_TOKEN is not set, MY_GITHUB_TOKEN_2 neither") == (
        "GITHUB_TOKEN",
    )
    assert child.find_mentioned("ok") == ()


@pytest.mark.parametrize("name", ["*", "A=B", "", "A B", "1X"])
def test_wrong_additions_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        filter_environment(PARENT, add=[name])


@given(
    st.dictionaries(
        st.text("ABC_KEYTOKENSECRETPASSWORD", min_size=1, max_size=12), st.text(max_size=3)
    )
)
def test_nothing_that_looks_secret_passes_by_itself(parent: dict[str, str]) -> None:
    child = filter_environment(parent)
    assert not [name for name in child.values if is_secret_variable(name)]
    assert set(child.values) <= PASSED_ON | {name for name in parent if name.startswith("LC_")}
    assert not set(child.values) & set(child.withheld)
