"""From what a model wrote to a name below the root: text only."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import quote_path, split_below_root

MAX_PATH_LENGTH = 4 * 1024

ROOTS = ("/srv/work",)

INSIDE = {
    "a/b.txt": "a/b.txt",
    "./a//b.txt": "a/b.txt",
    "a/../b": "b",
    "a/b/../../c/.": "c",
    "missing/../../work": None,
    "": "",
    ".": "",
    "./": "",
    "a/": "a",
    "/srv/work": "",
    "/srv/work/": "",
    "/srv/work/a": "a",
    "/srv/./work/x/../a": "a",
    "/srv/other/../work/a": "a",
    "a..b.txt": "a..b.txt",
    "...": "...",
    "..a/b": "..a/b",
    "~$draft.docx": "~$draft.docx",
    "a~": "a~",
    "a b/ü.txt": "a b/ü.txt",
    "a:b": "a:b",
    "C:x": "C:x",
    "$HOME/x": "$HOME/x",
    "%2e%2e/x": "%2e%2e/x",
}

OUTSIDE = [
    "..",
    "../x",
    "a/../../x",
    "./..",
    "a/b/../../../work/x",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "/srv",
    "/srv/work2/x",
    "/srv/workx",
    "/srv/wor",
    "/srv/work/../x",
    "/srv/work/../work2",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/a",
    "/SRV/WORK/a",
    "~",
    "~/x",
    "~root/x",
    "~/../x",
    "./~",
    "./~/x",
    "/srv/work/~/x",
    "./C:/x",
    "a/../c:",
    "C:/x",
    "C:\\x",
    "c:",
    "\\\\server\\share",
    "\\??\\C:\\x",
    "\\x",
]

NO_PATHS = [
    "a\0b",
    "\0",
    "a\nb",
    "a\x1b[2Jb",
    "a\x7f",
    "a\\b",
    "a\ud800",
    "x" * (MAX_PATH_LENGTH + 1),
]


@pytest.mark.proves("workspace.names")
@pytest.mark.parametrize(("path", "name"), [(p, n) for p, n in INSIDE.items() if n is not None])
def test_a_path_inside_becomes_its_name_below_the_root(path: str, name: str) -> None:
    assert "/".join(split_below_root(path, ROOTS)) == name


@pytest.mark.proves("workspace.escape")
@pytest.mark.parametrize("path", [*OUTSIDE, "missing/../../work"])
def test_a_path_that_leads_out_is_a_denial_that_says_so(path: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        split_below_root(path, ROOTS)
    assert failure.value.error_type is ErrorType.PERMISSION_DENIED
    assert quote_path(path) in failure.value.message
    assert failure.value.message.endswith("; use a path relative to the workspace")


@pytest.mark.parametrize("path", NO_PATHS)
def test_what_is_no_path_is_refused_as_an_argument(path: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        split_below_root(path, ROOTS)
    assert failure.value.error_type is ErrorType.VALIDATION_FAILED
    assert failure.value.message.isprintable()
    assert len(failure.value.message) < 400


def test_a_message_shows_at_most_200_characters_of_a_path() -> None:
    for length, whole in ((197, True), (198, False)):
        path = "C:/" + "a" * length
        with pytest.raises(ToolFailed) as failure:
            split_below_root(path, ROOTS)
        shown = failure.value.message.split("`")[1]
        assert len(shown) == 200
        assert (shown == path) == whole


_PATHS = st.lists(
    st.sampled_from(["..", ".", "", "a", "b", "srv", "work", "work2", "~", "..."]), max_size=8
).map("/".join)


@pytest.mark.proves("workspace.escape")
@given(st.one_of(_PATHS, _PATHS.map(lambda p: "/" + p), st.text(max_size=30)))
def test_a_path_that_passes_normalises_to_something_below_the_root(path: str) -> None:
    try:
        name = split_below_root(path, ROOTS)
    except ToolFailed:
        return
    assert not {"", ".", ".."} & set(name)
    assert "/".join(split_below_root("/".join(name), ROOTS)) == "/".join(name)
    meant = os.path.normpath(os.path.join("/srv/work", path))
    assert meant.replace("//", "/") == os.path.normpath("/srv/work/" + "/".join(name))
