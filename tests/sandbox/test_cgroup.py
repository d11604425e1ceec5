"""Where a control group can be made, looked for in folders made up like the two versions."""

from __future__ import annotations

from pathlib import Path

from ferrule.sandbox.backends.cgroup import ControlGroups, find_groups
from ferrule.sandbox.policy import ResourceLimits

BOUNDS = ResourceLimits(memory=1000, processes=20)


def group(folder: Path, handed_on: str) -> None:
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    (folder / "cgroup.subtree_control").write_text(handed_on)


def test_version_2_makes_it_beside_ours_where_the_controllers_are_handed_on(tmp_path: Path) -> None:
    group(tmp_path / "user", "cpu")
    group(tmp_path / "user/app", "memory pids")
    group(tmp_path / "user/app/ours", "")
    found = find_groups(BOUNDS, "f1", own_groups="0::/user/app/ours\n", root=tmp_path)
    values = {"memory.max": "1000", "pids.max": "20"}
    assert found.groups == ((f"{tmp_path}/user/app/f1", values, f"{tmp_path}/user/app/ours"),)
    assert found.limited == {"memory", "processes"}


def test_a_bound_that_no_group_holds_is_not_claimed(tmp_path: Path) -> None:
    group(tmp_path / "user", "pids")
    group(tmp_path / "user/ours", "")
    found = find_groups(BOUNDS, "f1", own_groups="0::/user/ours\n", root=tmp_path)
    assert found.limited == {"processes"}
    assert find_groups(BOUNDS, "f1", own_groups="0::/\n", root=tmp_path) == ControlGroups()


def test_version_1_makes_one_below_ours_for_each(tmp_path: Path) -> None:
    group(tmp_path / "memory/a", "")
    group(tmp_path / "pids", "")
    found = find_groups(BOUNDS, "f1", own_groups="4:memory:/a\n8:pids:/\n0::/\n", root=tmp_path)
    assert found.groups == (
        (f"{tmp_path}/memory/a/f1", {"memory.limit_in_bytes": "1000"}, f"{tmp_path}/memory/a"),
        (f"{tmp_path}/pids/f1", {"pids.max": "20"}, f"{tmp_path}/pids"),
    )


def test_nothing_is_made_where_nothing_is_bounded_or_found(tmp_path: Path) -> None:
    assert (
        find_groups(
            ResourceLimits(memory=None, processes=None), "f1", own_groups="0::/a\n", root=tmp_path
        )
        == ControlGroups()
    )
    assert find_groups(BOUNDS, "f1", own_groups="", root=tmp_path) == ControlGroups()
