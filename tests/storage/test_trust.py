"""A repository's own configuration: inert until trusted, by content, and shown before it is."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.storage import trust as module
from ferrule.storage.trust import ConfigurationChange, TrustStore


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / ".ferrule" / "tools").mkdir(parents=True)
    (root / ".ferrule" / "ferrule.yaml").write_text("model: a:b\n")
    (root / ".ferrule" / "tools" / "x.md").write_text("one\ntwo\n")
    (root / "README.md").write_text("hello")
    return root


def test_a_folder_without_configuration_has_nothing_to_trust(tmp_path: Path) -> None:
    trust = TrustStore()
    assert trust.state(tmp_path) == "absent"
    with pytest.raises(ConfigError, match="no configuration"):
        trust.trust(tmp_path)
    (tmp_path / "AGENTS.md").write_text("obey")
    assert trust.state(tmp_path) == "absent" and trust.diff(tmp_path) == []


@pytest.mark.proves("trust.inert")
def test_trust_begins_with_a_person_and_ends_with_one(work: Path) -> None:
    trust = TrustStore(now=lambda: 0.005)
    assert trust.state(work) == "untrusted" and trust.trusted_folders() == {}
    assert trust.trust(work).state == "trusted"
    assert TrustStore().state(work) == "trusted" and trust.trusted_folders() == {str(work): 5}
    assert trust.revoke(work) and not trust.revoke(work)
    assert trust.state(work) == "untrusted"


def test_looking_writes_nothing(work: Path, own_folders: Path) -> None:
    TrustStore().diff(work)
    TrustStore().revoke(work)
    assert list(own_folders.iterdir()) == []


def added(root: Path) -> None:
    (root / ".harness").mkdir()
    (root / ".harness" / "hook.md").write_text("x")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a changed file": lambda root: (root / ".ferrule/ferrule.yaml").write_text("model: a:c\n"),
    "a new file": lambda root: (root / ".ferrule/tools/y.md").write_text(""),
    "a new folder": added,
    "servers": lambda root: (root / ".mcp.json").write_text("{}"),
    "a main file": lambda root: (root / "harness.md").write_text("---\ntools: []\n---\n"),
    "a settings file at the root": lambda root: (root / "ferrule.yaml").write_text("tools: []\n"),
    "the same with its other ending": lambda root: (root / "ferrule.yml").write_text("tools: []\n"),
    "a removed file": lambda root: (root / ".ferrule/tools/x.md").unlink(),
    "a renamed file": lambda root: (root / ".ferrule/tools/x.md").rename(
        root / ".ferrule/tools/z.md"
    ),
    "a file made a link": lambda root: (
        (root / ".ferrule/tools/x.md").unlink(),
        (root / ".ferrule/tools/x.md").symlink_to("../../README.md"),
    ),
    "a hidden file": lambda root: (root / ".ferrule/.x").write_text(""),
}


@pytest.mark.proves("trust.change-asks-again")
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_any_change_takes_the_trust_away(work: Path, change: Callable[[Path], object]) -> None:
    trust = TrustStore()
    before = trust.trust(work).digest
    change(work)
    assert trust.state(work) == "changed" and trust.read(work).digest != before
    assert len(trust.diff(work)) >= 1
    trust.trust(work)
    assert trust.state(work) == "trusted" and trust.diff(work) == []


def test_files_outside_the_configuration_do_not_matter(work: Path) -> None:
    trust = TrustStore()
    trust.trust(work)
    (work / "README.md").write_text("changed")
    (work / "AGENTS.md").write_text("new")
    assert trust.state(work) == "trusted"


def test_trust_holds_for_one_folder(work: Path, tmp_path: Path) -> None:
    TrustStore().trust(work)
    copy = tmp_path / "copy"
    (copy / ".ferrule" / "tools").mkdir(parents=True)
    for name in (".ferrule/ferrule.yaml", ".ferrule/tools/x.md"):
        (copy / name).write_bytes((work / name).read_bytes())
    assert TrustStore().read(copy).digest == TrustStore().read(work).digest
    assert TrustStore().state(copy) == "untrusted"
    link = tmp_path / "link"
    link.symlink_to(work)
    assert TrustStore().state(link) == "trusted"


def test_the_difference_is_shown_before_trust_is_given_again(work: Path) -> None:
    trust = TrustStore()
    assert [change.name for change in trust.diff(work)] == [
        ".ferrule/ferrule.yaml",
        ".ferrule/tools/x.md",
    ]
    assert trust.diff(work)[1].diff.splitlines()[-2:] == ["+one", "+two"]
    trust.trust(work)
    (work / ".ferrule/tools/x.md").write_text("one\nthree\n")
    (work / ".ferrule/ferrule.yaml").unlink()
    removed, changed = trust.diff(work)
    assert (removed.name, removed.what, removed.diff.splitlines()[-1]) == (
        ".ferrule/ferrule.yaml",
        "removed",
        "-model: a:b",
    )
    assert changed == ConfigurationChange(
        ".ferrule/tools/x.md",
        "changed",
        (
            "--- trusted/.ferrule/tools/x.md\n+++ .ferrule/tools/x.md\n@@ -1,2 +1,2 @@\n "
            "one\n-two\n+three"
        ),
    )


def test_a_difference_spells_control_characters_out(work: Path) -> None:
    (work / ".ferrule/tools/x.md").write_text("\x1b[2Kharmless \u202e gnp.exe\n")
    (work / ".ferrule/tools/\x1b[2Jy").write_text("")
    shown = "".join(change.name + change.diff for change in TrustStore().diff(work))
    assert "\x1b" not in shown and "\u202e" not in shown and "\\x1b[2Kharmless \\u202e" in shown


def test_a_large_or_binary_file_is_named_without_text(work: Path) -> None:
    (work / ".ferrule/big").write_text("x" * (module.MAX_SHOWN_TEXT + 1))
    (work / ".ferrule/binary").write_bytes(b"\xff\xfe")
    shown = {change.name: change.diff for change in TrustStore().diff(work)}
    assert shown[".ferrule/big"] == shown[".ferrule/binary"] == ""
    TrustStore().trust(work)
    (work / ".ferrule/big").write_text("y")
    assert TrustStore().diff(work) == [ConfigurationChange(".ferrule/big", "changed", "")]


def test_what_was_shown_is_what_is_trusted(work: Path) -> None:
    trust = TrustStore()
    shown = trust.read(work)
    (work / ".ferrule/ferrule.yaml").write_text("model: evil:x\n")
    with pytest.raises(ConfigError) as found:
        trust.trust(work, digest=shown.digest)
    assert found.value.code == "trust_changed" and trust.state(work) == "untrusted"
    assert (
        trust.trust(work, digest=trust.read(work).digest).files[".ferrule/ferrule.yaml"]
        == b"model: evil:x\n"
    )


def test_links_are_never_followed(work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.yaml").write_text("secret")
    (work / ".ferrule/tools/link").symlink_to(outside)
    (work / ".mcp.json").symlink_to(outside / "secret.yaml")
    (work / ".harness").symlink_to(outside)
    seen = TrustStore().read(work)
    assert sorted(seen.files) == [".ferrule/ferrule.yaml", ".ferrule/tools/x.md"]
    assert seen.links[".mcp.json"] == str(outside / "secret.yaml") and len(seen.links) == 3
    assert all(
        "secret" not in change.diff.replace(str(outside), "").replace("secret.yaml", "")
        for change in TrustStore().diff(work)
    )
    TrustStore().trust(work)
    (work / ".mcp.json").unlink()
    (work / ".mcp.json").symlink_to(outside / "other.yaml")
    assert TrustStore().state(work) == "changed"


def test_a_pipe_in_the_configuration_is_refused_and_not_waited_for(work: Path) -> None:
    os.mkfifo(work / ".ferrule" / "pipe")
    with pytest.raises(ConfigError, match="neither a file nor a folder"):
        TrustStore().read(work)


def deep(root: Path) -> None:
    (root / ".ferrule" / "/".join("d" * 20)).mkdir(parents=True)


def many(root: Path) -> None:
    for number in range(module.MAX_FILES + 1):
        (root / ".ferrule" / str(number)).write_text("")


def heavy(root: Path) -> None:
    with (root / ".ferrule" / "heavy").open("wb") as file:
        file.truncate(module.MAX_BYTES + 1)


@pytest.mark.parametrize("fill", [deep, many, heavy])
def test_a_configuration_out_of_bounds_is_an_error_and_not_half_read(
    work: Path, fill: Callable[[Path], None]
) -> None:
    fill(work)
    with pytest.raises(ConfigError) as found:
        TrustStore().read(work)
    assert found.value.code == "trust_bounds"


# ---- the trust file


def test_the_trust_file_is_private(work: Path, own_folders: Path) -> None:
    TrustStore().trust(work)
    files = [path for path in (own_folders / "state").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600} and len(files) == 3
    assert json.loads((own_folders / "state/trust.json").read_text())["version"] == 1


@pytest.mark.proves("trust.fail-closed")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 1, "workspaces": {"a": {}}}',
        '{"version": "x", "workspaces": {}}',
        '{"version": 2, "workspaces": {}}',
        '{"version": 1, "workspaces": []}',
    ],
)
def test_a_trust_file_that_cannot_be_understood_trusts_nothing(
    work: Path, own_folders: Path, text: str
) -> None:
    file = own_folders / "state" / "trust.json"
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    for act in (TrustStore().state, TrustStore().trust, TrustStore().diff):
        with pytest.raises(ConfigError) as found:
            act(work)
        assert found.value.code == "trust_file" and str(file) in found.value.detail
    assert file.read_text() == text


@pytest.mark.proves("trust.fail-closed")
def test_a_trust_file_that_others_can_write_trusts_nothing(work: Path, own_folders: Path) -> None:
    TrustStore().trust(work)
    (own_folders / "state" / "trust.json").chmod(0o666)
    with pytest.raises(ConfigError, match="others can write it"):
        TrustStore().state(work)


def test_two_writers_do_not_lose_each_others_trust(tmp_path: Path) -> None:
    roots = [tmp_path / f"w{number}" for number in range(12)]
    for root in roots:
        (root / ".ferrule").mkdir(parents=True)
        (root / ".ferrule" / "a").write_text("x")
    threads = [threading.Thread(target=TrustStore().trust, args=(root,)) for root in roots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert set(TrustStore().trusted_folders()) == {str(root) for root in roots}


names = st.dictionaries(st.text(min_size=1, max_size=5), st.binary(max_size=8), max_size=4)


@pytest.mark.proves("trust.change-asks-again")
@given(one=names, other=names)
def test_different_contents_have_different_digests(
    one: dict[str, bytes], other: dict[str, bytes]
) -> None:
    digest = module._digest  # pyright: ignore[reportPrivateUsage]
    assert (digest(one, {}) == digest(other, {})) == (one == other)


def test_looking_at_files_below_folders_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"hooks": {}}')
    before = os.listdir("/proc/self/fd")
    assert TrustStore().state(tmp_path) == "untrusted"
    assert os.listdir("/proc/self/fd") == before
