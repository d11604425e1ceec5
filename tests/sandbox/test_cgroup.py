"""Where a control group can be made, looked for in folders made up like the two versions."""

from __future__ import annotations

from pathlib import Path

from ferrule.sandbox.backends.cgroup import Groups, find
from ferrule.sandbox.policy import Bounds

BOUNDS = Bounds(memory=1000, processes=20)


def group(folder: Path, handed_on: str) -> None:
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    (folder / "cgroup.subtree_control").write_text(handed_on)


def test_version_2_makes_it_beside_ours_where_the_controllers_are_handed_on(tmp_path: Path) -> None:
    group(tmp_path / "user", "cpu")
    group(tmp_path / "user/app", "memory pids")
    group(tmp_path / "user/app/ours", "")
    found = find(BOUNDS, "f1", own="0::/user/app/ours\n", root=tmp_path)
    values = {"memory.max": "1000", "pids.max": "20"}
    assert found.made == ((f"{tmp_path}/user/app/f1", values, f"{tmp_path}/user/app/ours"),)
    assert found.bounds == {"memory", "processes"}


def test_a_bound_that_no_group_holds_is_not_claimed(tmp_path: Path) -> None:
    group(tmp_path / "user", "pids")
    group(tmp_path / "user/ours", "")
    found = find(BOUNDS, "f1", own="0::/user/ours\n", root=tmp_path)
    assert found.bounds == {"processes"}
    assert find(BOUNDS, "f1", own="0::/\n", root=tmp_path) == Groups()


def test_version_1_makes_one_below_ours_for_each(tmp_path: Path) -> None:
    group(tmp_path / "memory/a", "")
    group(tmp_path / "pids", "")
    found = find(BOUNDS, "f1", own="4:memory:/a\n8:pids:/\n0::/\n", root=tmp_path)
    assert found.made == (
        (f"{tmp_path}/memory/a/f1", {"memory.limit_in_bytes": "1000"}, f"{tmp_path}/memory/a"),
        (f"{tmp_path}/pids/f1", {"pids.max": "20"}, f"{tmp_path}/pids"),
    )


def test_nothing_is_made_where_nothing_is_bounded_or_found(tmp_path: Path) -> None:
    assert find(Bounds(memory=None, processes=None), "f1", own="0::/a\n", root=tmp_path) == Groups()
    assert find(BOUNDS, "f1", own="", root=tmp_path) == Groups()
