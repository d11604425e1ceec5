"""Landlock: the bits of each version, and what the kernel refuses to a real shell that holds
them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.sandbox.inside.kernel import landlock, landlock_rules
from ferrule.sandbox.view import layout

HERE = Path(__file__).resolve().parent
ABI = landlock.kernel_abi() if sys.platform == "linux" else 0

on_landlock = pytest.mark.skipif(ABI < 1, reason="this kernel has no Landlock")


def since(version: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        version > ABI, reason=f"this kernel's Landlock is older than version {version}"
    )


SYSTEM = tuple(
    (path, landlock.READ_RIGHTS)
    for path in (
        "/proc",
        "/sys/devices/system/cpu",
        *(f"/{name}" for name in layout.SYSTEM),
        os.path.realpath(sys.base_prefix),
    )
)


def run(granted: object, *command: str, **settings: object) -> subprocess.CompletedProcess[str]:
    record = json.dumps(
        {"granted": [*SYSTEM, *landlock_rules.device_rules(), *granted], **settings}
    )
    words = [sys.executable, "-I", "-S", str(HERE / "landlocked.py"), record, *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def shell(granted: object, script: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return run(granted, "sh", "-c", script, **settings)


@pytest.mark.proves("sandbox.landlock.versions")
@pytest.mark.parametrize(
    ("version", "highest", "size"),
    [(1, 12, 8), (2, 13, 8), (3, 14, 8), (4, 14, 16), (5, 15, 16), (6, 15, 24), (7, 15, 24)],
)
def test_each_version_is_asked_only_for_what_it_knows(
    version: int, highest: int, size: int
) -> None:
    assert landlock.handled_rights(version) == (1 << highest + 1) - 1
    attributes = landlock.pack_ruleset(landlock.Ruleset(()), version)
    assert len(attributes) == size
    assert struct.unpack_from("=Q", attributes)[0] == landlock.handled_rights(version)
    if version >= 4:
        assert struct.unpack_from("=Q", attributes, 8)[0] == 3
    if version >= 6:
        assert struct.unpack_from("=Q", attributes, 16)[0] == 3


def test_words_mean_no_bits_that_a_version_or_a_file_does_not_know() -> None:
    for version in range(1, 8):
        everything = landlock.rights_mask(landlock.ALL_RIGHTS, version)
        assert everything & ~landlock.handled_rights(version) == 0
        assert everything & (landlock.MAKE_CHAR | landlock.MAKE_BLOCK) == 0
    assert landlock.rights_mask(("write",), 2) == landlock.WRITE_FILE
    assert landlock.rights_mask(("list", "create", "read"), 7, folder=False) == landlock.READ_FILE


def test_what_is_allowed_beside_files_is_left_out_of_what_is_handled() -> None:
    spec = landlock.Ruleset((), tcp=True, signals=True, abstract_sockets=True)
    assert struct.unpack("=QQQ", landlock.pack_ruleset(spec, 7))[1:] == (0, 0)


@on_landlock
@pytest.mark.proves("sandbox.landlock.files")
@pytest.mark.parametrize("version", range(1, 8))
def test_only_what_is_granted_is_read_and_written_in_every_version(
    tmp_path: Path, version: int
) -> None:
    if version > ABI:
        pytest.skip("newer than this kernel")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_text("words of " + folder.name)
    script = f"""
cat '{inside}/file' '{outside}/file'; ls '{outside}'; echo x > '{outside}/new'; echo x > '{outside}/file'; rm '{outside}/file'
mkdir '{inside}/d' && echo x > '{inside}/d/f' && mv '{inside}/d/f' '{inside}/d/g' && echo made > '{inside}/new' && cat '{inside}/new'
ln -s '{outside}/file' '{inside}/l'; cat '{inside}/l'; mv '{inside}/new' '{outside}/moved'; ln '{outside}/file' '{inside}/hard'
"""
    done = shell([(str(inside), landlock.ALL_RIGHTS)], script, abi=version)
    assert f"version {version}" in done.stderr
    assert "words of inside" in done.stdout
    assert "made" in done.stdout
    assert "words of outside" not in done.stdout
    assert os.listdir(outside) == ["file"]
    assert (outside / "file").read_text() == "words of outside"
    assert not (inside / "hard").exists()


@since(3)
@pytest.mark.proves("sandbox.landlock.files")
def test_truncating_is_writing_where_the_version_knows_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("words")
    cut = [sys.executable, "-I", "-S", "-c", f"import os; os.truncate({str(file)!r}, 0)"]
    assert run([], *cut).returncode != 0
    assert file.read_text() == "words"
    assert run([], *cut, abi=2).returncode == 0
    assert file.read_text() == ""


@since(4)
def test_tcp_reaches_nothing_unless_it_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import socket; socket.create_connection(('127.0.0.1', {port}))",
        ]
        assert "PermissionError" in run([], *connect).stderr
        assert run([], *connect, tcp=True).returncode == 0
        assert run([], *connect, abi=3).returncode == 0


@since(6)
def test_signals_and_abstract_sockets_stay_inside() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0ferrule-landlock-{os.getpid()}")
        server.listen()
        script = f"""
import os, socket, subprocess
for attempt in (lambda: os.kill({os.getpid()}, 0),
                lambda: socket.socket(socket.AF_UNIX).connect("\\0ferrule-landlock-{os.getpid()}")):
    try:
        attempt()
        print("reached")
    except PermissionError:
        print("refused")
child = subprocess.Popen(["sleep", "30"])
child.terminate()
print(child.wait())
"""
        words = [sys.executable, "-I", "-S", "-c", script]
        assert run([], *words).stdout == "refused\nrefused\n-15\n"
        assert (
            run([], *words, signals=True, abstract_sockets=True).stdout == "reached\nreached\n-15\n"
        )
        assert run([], *words, abi=5).stdout == "reached\nreached\n-15\n"


@since(7)
def test_it_can_be_quiet() -> None:
    assert run([], "true", quiet=True).returncode == 0


@on_landlock
def test_a_link_among_the_granted_grants_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("words")
    (tmp_path / "link").symlink_to("secret")
    done = shell(
        [
            (str(tmp_path / "link"), landlock.ALL_RIGHTS),
            (str(tmp_path / "missing"), landlock.ALL_RIGHTS),
        ],
        f"cat '{tmp_path}/link'",
    )
    assert done.stdout == ""
    assert done.returncode != 0


@on_landlock
def test_a_process_outside_cannot_be_looked_into() -> None:
    assert shell([], f"cat /proc/{os.getpid()}/environ").stdout == ""


def test_where_there_is_no_landlock_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(landlock.LandlockUnavailable, match="no Landlock"):
        landlock.restrict(landlock.Ruleset((), abi=0))


TREE = {
    "/w": {
        ".env": "file",
        ".git": "folder",
        "src": "folder",
        "sub": "folder",
        "a.py": "file",
        "link": "other",
        "ci.yml": "file",
    },
    "/w/sub": {"k.pem": "file", "b.py": "file", "deep": "folder"},
    "/w/.git": {"config": "file", "HEAD": "file", "objects": "folder"},
}
MASKED = ("/w/.env", "/w/sub/k.pem", "/w/.git/config")


@pytest.mark.proves("sandbox.landlock.masked-names")
def test_a_folder_with_a_masked_name_below_grants_its_other_entries_one_by_one() -> None:
    found = landlock_rules.folder_rules("/w", MASKED, TREE.__getitem__, read_only=["/w/ci.yml"])
    on_file = ("read", "write", "execute", "device")
    assert dict(found) == {
        "/w": ("list",),
        "/w/.git": ("list",),
        "/w/.git/HEAD": on_file,
        "/w/.git/objects": landlock.ALL_RIGHTS,
        "/w/src": landlock.ALL_RIGHTS,
        "/w/sub": ("list",),
        "/w/sub/b.py": on_file,
        "/w/sub/deep": landlock.ALL_RIGHTS,
        "/w/a.py": on_file,
        "/w/ci.yml": ("read", "execute"),
    }


def test_a_workspace_without_masked_names_is_one_grant() -> None:
    assert landlock_rules.folder_rules("/w", (), TREE.__getitem__) == (("/w", landlock.ALL_RIGHTS),)


def test_what_is_readable_is_granted_around_its_masked_names_too() -> None:
    etc = {"/etc": {"passwd": "file", "shadow": "file", "ssl": "folder"}}
    found = landlock_rules.folder_rules(
        "/w", ["/etc/shadow"], {**TREE, **etc}.__getitem__, readable=["/etc"]
    )
    assert found == (
        ("/etc", ("list",)),
        ("/etc/passwd", ("read", "execute")),
        ("/etc/ssl", landlock.READ_RIGHTS),
        ("/w", landlock.ALL_RIGHTS),
    )


@on_landlock
@pytest.mark.proves("sandbox.landlock.masked-names")
def test_masked_names_are_neither_read_nor_changed_and_the_rest_is(tmp_path: Path) -> None:
    root = tmp_path / "w"
    for name in (".env", "sub/k.pem", ".git/config", "sub/b.py", "src/c.py", ".git/HEAD"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"<{name}>")
    masked = [str(root / name) for name in (".env", "sub/k.pem", ".git/config")]
    granted = landlock_rules.folder_rules(str(root), masked, landlock_rules.list_folder)
    script = f"""
cd '{root}'; cat .env sub/k.pem .git/config sub/b.py src/c.py .git/HEAD
echo x > .env; rm sub/k.pem; mv .git/config src/; ln .env src/hard; ln -s ../.env src/soft; cat src/hard src/soft
mv sub src/; echo y > src/new; echo z >> sub/b.py
"""
    done = shell(granted, script)
    assert re.findall("<.*?>", done.stdout) == ["<sub/b.py>", "<src/c.py>", "<.git/HEAD>"]
    assert [Path(name).read_text() for name in masked] == ["<.env>", "<sub/k.pem>", "<.git/config>"]
    assert (root / "src" / "new").read_text() == "y\n"
    assert (root / "sub" / "b.py").read_text().endswith("z\n")
