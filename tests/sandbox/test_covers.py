"""What is withheld without a mount: by path, by file, and never what lies beside it."""

from __future__ import annotations

import os
from errno import EACCES, EROFS
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.sandbox.inside.mediator.caller_process import CallRefused
from ferrule.sandbox.inside.mediator.withheld_files import WithheldFiles

PARTS = st.text("abc.", min_size=1, max_size=3).filter(lambda part: part not in (".", ".."))
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/w/" + "/".join(parts))


def refused(covers: WithheldFiles, path: str, *, change: bool = True) -> int:
    folder, _, name = os.fsencode(path).rpartition(b"/")
    try:
        covers.check_name(folder or b"/", name, change=change)
    except CallRefused as refusal:
        return refusal.error
    return 0


def below(path: str, tops: list[str]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in tops)


@pytest.mark.proves("sandbox.backend.landlock")
@given(
    hidden=st.lists(PATHS, max_size=3),
    held=st.lists(PATHS, max_size=3),
    asked=st.lists(PATHS, max_size=8),
)
def test_what_is_hidden_is_refused_with_all_below_it_and_nothing_else(
    hidden: list[str], held: list[str], asked: list[str]
) -> None:
    steps = [("cover", path, "/.held/closed") for path in hidden] + [
        ("hold", path, "") for path in held
    ]
    covers = WithheldFiles(steps)
    for path in (*asked, *hidden, *held):
        expected = EACCES if below(path, hidden) else EROFS if below(path, held) else 0
        assert refused(covers, path) == expected
        assert refused(covers, path, change=False) == (EACCES if below(path, hidden) else 0)


@pytest.mark.proves("sandbox.backend.landlock")
def test_a_hidden_file_is_refused_by_every_name_it_has(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    os.link(tmp_path / ".env", tmp_path / "other")
    covers = WithheldFiles([("cover", str(tmp_path / ".env"), "/.held/closed")])
    with pytest.raises(CallRefused):
        covers.check_file((tmp_path / "other").stat())
    (tmp_path / "free").touch()
    covers.check_file((tmp_path / "free").stat())


@pytest.mark.proves("sandbox.backend.landlock")
def test_what_stands_in_for_a_file_is_opened_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held/text").write_text("safe")
    (tmp_path / "config").write_text("secret")
    covers = WithheldFiles(
        [("cover", str(tmp_path / "config"), "/.held/text")], ("/.held", str(tmp_path / "held"))
    )
    status = (tmp_path / "config").stat()
    found = covers.open_replacement(os.fsencode(tmp_path), b"config", status, os.O_RDONLY)
    assert found is not None and Path(f"/proc/self/fd/{found}").read_text() == "safe"
    os.close(found)


def test_only_roots_may_be_written_and_only_shared_memory_is_elsewhere() -> None:
    covers = WithheldFiles((), roots=("/w", "/t/"), shared="/h/.shared")
    assert [
        covers.is_writable(path) for path in (b"/w", b"/w/a", b"/t/x", b"/wx", b"/", b"/etc/passwd")
    ] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert covers.redirect(b"/dev/shm/x") == b"/h/.shared/x"
    assert [covers.redirect(path) for path in (b"/dev/shm", b"x", b"/dev/shmx")] == [
        b"/dev/shm",
        b"x",
        b"/dev/shmx",
    ]
