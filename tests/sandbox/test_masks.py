"""What is laid over a workspace before a command runs: real folders, scanned."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.permissions.path_denials import OpenRefusals
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.sandbox.backends.namespaces import write_covers
from ferrule.sandbox.inside.mediator.file_identity import identify_path
from ferrule.sandbox.view import masks as masks_module
from ferrule.sandbox.view.layout import SessionPaths
from ferrule.sandbox.view.mask_rules import FileType, MaskRequirement, required_mask
from ferrule.sandbox.view.masks import Mask, MaskKind, MaskScanner, ScanResult
from ferrule.sandbox.view.ordinary_names import OrdinaryNames

Make = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def make(root: Path) -> Make:
    """`make("a/b.txt", "text")`: a file of the workspace with its folders."""

    def made(name: str, content: str | bytes = "x") -> Path:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return made


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders count as quiet at once, so that the next scan believes what is known of them."""
    monkeypatch.setattr(masks_module, "QUIET_NANOSECONDS", -(10**18))


def scanned(
    root: Path, names: ProtectedNames = DEFAULT_NAMES, **options: object
) -> dict[str, MaskKind]:
    """Kinds by path relative to the root."""
    return kinds(root, MaskScanner(root, names, home=str(root.parent / "home")).scan(**options))  # type: ignore[arg-type]


def kinds(root: Path, found: ScanResult) -> dict[str, MaskKind]:
    return {os.path.relpath(mask.path, root): mask.kind for mask in found.masks}


# ---- which names


@pytest.mark.proves("sandbox.mask.names")
def test_reserved_and_secret_names_are_covered_at_any_depth(root: Path, make: Make) -> None:
    for name in (
        ".env",
        "a/b/server.key",
        "a/.ssh/config",
        ".ferrule/ferrule.yaml",
        "agents/x.py",
        "src/agents/y.py",
    ):
        make(name)
    make("src/environment.py")
    assert scanned(root) == {
        ".env": MaskKind.UNREADABLE,
        "a/b/server.key": MaskKind.UNREADABLE,
        "a/.ssh": MaskKind.EMPTY_FOLDER,
        ".ferrule": MaskKind.EMPTY_FOLDER,
        "agents": MaskKind.EMPTY_FOLDER,
    }


@pytest.mark.proves("sandbox.mask.names")
def test_the_persons_own_names_and_deny_rules_are_covered_too(root: Path, make: Make) -> None:
    for name in ("notes/plan.txt", "deep/down/vault/x", "open.txt", "frozen.txt"):
        make(name)

    def refuse(path: str, write: bool) -> str:
        if path.startswith("notes/"):
            return "denied by Read(notes/**)"
        return "denied" if write and path == "frozen.txt" else ""

    names = ProtectedNames(reserved=("vault",), rules=(OpenRefusals(refuse),))
    assert scanned(root, names) == {
        "notes/plan.txt": MaskKind.UNREADABLE,
        "deep/down/vault": MaskKind.EMPTY_FOLDER,
        "frozen.txt": MaskKind.READ_ONLY,
    }


def test_protected_names_are_read_only_at_the_root_and_only_there(root: Path, make: Make) -> None:
    for name in (
        ".vscode/tasks.json",
        ".github/workflows/ci.yml",
        ".github/CODEOWNERS",
        "Jenkinsfile",
        ".bashrc",
        "tools/Jenkinsfile",
        "sub/.vscode/tasks.json",
        ".venv/lib/site-packages/a.pth",
        "site-packages/b.pth",
    ):
        make(name)
    assert scanned(root) == {
        ".vscode": MaskKind.READ_ONLY,
        ".github/workflows": MaskKind.READ_ONLY,
        "Jenkinsfile": MaskKind.READ_ONLY,
        ".bashrc": MaskKind.READ_ONLY,
        "site-packages/b.pth": MaskKind.READ_ONLY,
    }


def test_a_secret_inside_a_read_only_folder_is_covered_after_it(root: Path, make: Make) -> None:
    make(".vscode/.env")
    found = MaskScanner(root, DEFAULT_NAMES).scan()
    assert [mask.kind for mask in found.masks] == [MaskKind.READ_ONLY, MaskKind.UNREADABLE]


def test_git_works_on_a_configuration_without_secrets(root: Path, make: Make) -> None:
    config = """
[core]
	repositoryformatversion = 1
	bare = false
	fsmonitor = /tmp/evil
	sshCommand = evil
[extensions]
	objectformat = sha256
[remote "origin"]
	url = https://person:token@example.org/x.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
	remote = origin
	merge = refs/heads/main
[user]
	name = Ann "A" Person
	email = "ann@example.org"
[http "https://example.org"]
	extraHeader = Authorization: Bearer hidden
[credential]
	helper = store
[include]
	path = ../elsewhere
"""
    make(".git/config", config)
    make(".git/modules/lib/config", config)
    make(".git/hooks/pre-commit")
    make(".git/HEAD", "ref: refs/heads/main\n")
    make(".git/refs/heads/config", "0" * 40)
    make(".git/logs/refs/heads/hooks/one")
    make("vendor/lib/.git/config", config)
    found = MaskScanner(root, DEFAULT_NAMES).scan()
    assert kinds(root, found) == {
        ".git/config": MaskKind.TEXT,
        ".git/hooks": MaskKind.EMPTY_FOLDER,
        ".git/modules/lib/config": MaskKind.TEXT,
        "vendor/lib/.git/config": MaskKind.TEXT,
    }
    assert found.masks[0].text == (
        "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat "
        "= sha256\n"
        '[remote "origin"]\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\temail = '
        '"ann@example.org"\n'
        "[core]\n\tcheckStat = minimal\n\ttrustctime = false\n"
    )


@pytest.mark.parametrize("config", ["", "\n", "junk", "[core]\n", "[remote\n\turl = hidden"])
def test_a_configuration_with_nothing_to_show_is_covered_by_one_that_git_reads(
    root: Path, make: Make, config: str
) -> None:
    make(".git/config", config)
    (mask,) = MaskScanner(root, DEFAULT_NAMES).scan().masks
    assert mask.text == "[core]\n\tcheckStat = minimal\n\ttrustctime = false\n"


def test_a_git_file_that_leads_elsewhere_cannot_be_changed(root: Path, make: Make) -> None:
    make("sub/.git", "gitdir: ../.git/modules/sub\n")
    make(".git/commondir", "..")
    assert scanned(root) == {"sub/.git": MaskKind.READ_ONLY, ".git/commondir": MaskKind.READ_ONLY}


@pytest.mark.proves("sandbox.mask.sockets")
def test_sockets_are_covered_and_links_of_reserved_names_too(root: Path, make: Make) -> None:
    make("real/ferrule.txt")
    os.symlink("real", root / ".ferrule")
    os.symlink("real/ferrule.txt", root / ".env")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "agent.sock"))
    assert scanned(root) == {".ferrule": MaskKind.UNREADABLE, "agent.sock": MaskKind.UNREADABLE}


@pytest.mark.proves("sandbox.mask.no-links")
def test_no_link_is_followed(root: Path, make: Make, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".env").write_text("x")
    os.symlink(outside, root / "way")
    assert scanned(root) == {}


# ---- excuses


def certificate() -> bytes:
    """DER with the form of a certificate: a sequence of two sequences and a string of bits."""
    inner = bytes([0x30, 3, 2, 1, 5]) + bytes([0x30, 0]) + bytes([3, 2, 0, 1])
    return bytes([0x30, len(inner)]) + inner


def pem(label: str, der: bytes) -> str:
    import base64

    return f"-----BEGIN {label}-----\n{base64.b64encode(der).decode()}\n-----END {label}-----\n"


PUBLIC = "# Issuer: CN=Example Root O=Example\n# Serial: 15752444095811006489\n" + pem(
    "CERTIFICATE", certificate()
)
PRIVATE_DER = bytes([0x30, 10, 2, 1, 0, 0x30, 0, 4, 3, 1, 2, 3])


@pytest.mark.parametrize(
    ("name", "content", "hidden"),
    [
        ("cacert.pem", PUBLIC * 3, False),
        ("binary.pem", certificate(), False),
        ("public.key", pem("PUBLIC KEY", bytes([0x30, 6, 0x30, 0, 3, 2, 0, 1])), False),
        ("both.pem", PUBLIC + pem("PRIVATE KEY", PRIVATE_DER), True),
        ("relabelled.pem", pem("CERTIFICATE", PRIVATE_DER), True),
        ("unknown.pem", pem("ANYTHING", certificate()), True),
        ("broken.pem", PUBLIC.replace("-----END", "----END"), True),
        ("trailing.pem", certificate() + b"x", True),
        ("password.pem", PUBLIC + "# password: hunter2\n", True),
        ("random.pem", PUBLIC + "# x\nsk-livexAbCdEfGhIjKlMnOpQrStUvWx\n", True),
        ("empty.pem", "", True),
        ("text.pem", "hello", True),
        ("large.pem", PUBLIC * 20_000, True),
        ("store.p12", certificate(), True),
        (".env.pem", PUBLIC, True),
        (
            "curl.pem",
            "## SHA256: 0f5b5a4c0f5b5a4c0f5b5a4c0f5b5a4c0f5b5a4c0f5b5a4c0f5b5a4c0f5b5a4c\n"
            + PUBLIC,
            False,
        ),
    ],
)
def test_only_what_is_surely_public_is_no_secret(
    root: Path, make: Make, name: str, content: str | bytes, hidden: bool
) -> None:
    make(f"lib/{name}", content)
    wanted = {f"lib/{name}": MaskKind.UNREADABLE} if hidden else {}
    assert scanned(root) == wanted


def test_the_bundle_of_this_virtual_environment_is_no_secret() -> None:
    import certifi

    from ferrule.sandbox.view.certificates import is_only_public

    assert is_only_public(Path(certifi.where()).read_bytes())


def test_a_name_that_the_person_added_is_hidden_whatever_is_in_it(root: Path, make: Make) -> None:
    make("certs/root.pem", PUBLIC)
    make("other.pem", PUBLIC)
    assert scanned(root, ProtectedNames(secret=("certs/*",))) == {
        "certs/root.pem": MaskKind.UNREADABLE
    }


def test_a_bundle_that_becomes_a_key_is_hidden_at_the_next_scan(
    root: Path, make: Make, quiet: None
) -> None:
    file = make("lib/root.pem", PUBLIC)
    scanner = MaskScanner(root, DEFAULT_NAMES)
    assert scanner.scan().masks == ()
    with file.open("a") as opened:  # the folder does not change
        opened.write(pem("PRIVATE KEY", PRIVATE_DER))
    found = scanner.scan()
    assert kinds(root, found) == {"lib/root.pem": MaskKind.UNREADABLE}
    assert found.added == (str(file),) and found.removed == ()


def test_what_commands_made_is_theirs_but_never_a_reserved_name(root: Path, make: Make) -> None:
    made, reserved, others = make("test.key"), make(".ferrule/x").parent, make("other.key")
    scanner = MaskScanner(root, DEFAULT_NAMES)
    found = scanner.scan({identify_path(made), identify_path(reserved), "1:2:0.0:00"})
    assert kinds(root, found) == {
        ".ferrule": MaskKind.EMPTY_FOLDER,
        "other.key": MaskKind.UNREADABLE,
    }
    assert found.own_seen == {identify_path(made)}
    others.unlink()
    assert scanner.scan().removed == (str(others),)


def test_an_environment_named_like_a_secret_that_commands_made_can_be_used(
    root: Path, make: Make
) -> None:
    make(".env/bin/python")
    make(".env/lib/.ferrule/x")
    make(".env/lib/token.key")
    own = {identify_path(root / ".env")}
    assert scanned(root) == {".env": MaskKind.EMPTY_FOLDER}
    assert scanned(root, own=own) == {
        ".env/lib/.ferrule": MaskKind.EMPTY_FOLDER,
        ".env/lib/token.key": MaskKind.UNREADABLE,
    }


# ---- hard links


@pytest.mark.proves("sandbox.mask.hard-links")
def test_a_file_with_a_name_elsewhere_is_covered_and_one_with_all_names_here_is_not(
    root: Path, make: Make, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("x")
    os.link(outside, root / "notes.txt")
    os.link(make("a/one.txt"), root / "two.txt")
    assert scanned(root) == {"notes.txt": MaskKind.UNREADABLE}
    outside.unlink()
    assert scanned(root) == {}


@pytest.mark.proves("sandbox.mask.hard-links")
def test_another_name_of_a_secret_is_covered_wherever_it_is(root: Path, make: Make) -> None:
    secret = make(".env")
    (root / "node_modules").mkdir()
    os.link(secret, root / "node_modules/index.js")
    os.link(make(".git/config", "[core]\n\tbare = false\n"), root / "config.txt")
    os.link(make("web/.ssh/id"), root / "node_modules/id.js")
    assert scanned(root) == {
        ".env": MaskKind.UNREADABLE,
        "node_modules/index.js": MaskKind.UNREADABLE,
        ".git/config": MaskKind.TEXT,
        "config.txt": MaskKind.UNREADABLE,
        "web/.ssh": MaskKind.EMPTY_FOLDER,
        "node_modules/id.js": MaskKind.UNREADABLE,
    }


@pytest.mark.proves("sandbox.mask.hard-links")
def test_packages_linked_from_a_cache_can_be_read_unless_it_is_a_known_secret(
    root: Path, tmp_path: Path, make: Make
) -> None:
    cache, key = tmp_path / "cache.js", tmp_path / "home/.ssh/id_work"
    key.parent.mkdir(parents=True)
    for file in (cache, key):
        file.write_text("x")
    packages = root / ".venv/lib/site-packages"
    packages.mkdir(parents=True)
    os.link(cache, packages / "lib.py")
    os.link(key, packages / "evil.py")
    make(".git/objects/ab/cdef")
    make("env/conda-meta/history")
    os.link(cache, root / "env/python")
    os.link(cache, root / ".git/objects/ab/linked")
    assert scanned(root) == {".venv/lib/site-packages/evil.py": MaskKind.UNREADABLE}


@pytest.mark.proves("sandbox.mask.hard-links")
def test_a_link_between_a_known_folder_and_a_new_one_is_understood(
    root: Path, make: Make, quiet: None, tmp_path: Path
) -> None:
    first = make("a/one.txt")
    (root / "b").mkdir()
    scanner = MaskScanner(root, DEFAULT_NAMES, home=str(tmp_path))
    scanner.scan()
    os.link(first, root / "b/two.txt")
    assert scanner.scan().masks == ()
    os.link(make("a/.env"), root / "b/three.txt")
    assert kinds(root, scanner.scan()) == {
        "a/.env": MaskKind.UNREADABLE,
        "b/three.txt": MaskKind.UNREADABLE,
    }


# ---- again, and bounded


def test_a_repeat_reads_only_the_folders_that_changed(
    root: Path, make: Make, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        make(f"part{number}/file.txt")
    scanner = MaskScanner(root, DEFAULT_NAMES)
    scanner.scan()
    reads: list[object] = []
    real = os.listdir

    def counted(folder: int) -> list[str]:
        reads.append(folder)
        return real(folder)

    monkeypatch.setattr(os, "listdir", counted)
    assert scanner.scan().masks == () and reads == []
    make("part7/.env")
    found = scanner.scan()
    assert kinds(root, found) == {"part7/.env": MaskKind.UNREADABLE} and len(reads) == 1
    (root / "part7").rename(root / "part8/moved")
    found = scanner.scan()
    assert kinds(root, found) == {"part8/moved/.env": MaskKind.UNREADABLE}
    assert [len(found.added), len(found.removed)] == [1, 1]


def test_scanners_that_begin_together_read_each_folder_once(
    root: Path, make: Make, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        make(f"part{number}/.env")
    reads: list[object] = []
    real = os.listdir
    all_wait = Barrier(4)

    def counted(folder: int) -> list[str]:
        reads.append(folder)
        return real(folder)

    def scan() -> dict[str, MaskKind]:
        scanner = MaskScanner(root, DEFAULT_NAMES)
        all_wait.wait(30)
        return kinds(root, scanner.scan())

    monkeypatch.setattr(os, "listdir", counted)
    with ThreadPoolExecutor(4) as threads:
        found = [one.result(60) for one in [threads.submit(scan) for _ in range(4)]]
    assert found == [{f"part{number}/.env": MaskKind.UNREADABLE for number in range(20)}] * 4
    assert len(reads) == 21


def test_a_folder_that_changed_just_now_is_not_believed(root: Path, make: Make) -> None:
    make("a/one.txt")
    scanner = MaskScanner(root, DEFAULT_NAMES)
    scanner.scan()
    before = (root / "a").stat()
    make("a/.env")
    os.utime(root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kinds(root, scanner.scan()) == {"a/.env": MaskKind.UNREADABLE}


def test_what_cannot_be_looked_at_is_covered_whole(root: Path, make: Make) -> None:
    for name in ("a/one.txt", "a/deep/two.txt", "b/three.txt"):
        make(name)
    found = MaskScanner(root, DEFAULT_NAMES).scan(limit=2)
    assert set(kinds(root, found).values()) == {MaskKind.EMPTY_FOLDER}
    assert found.unreadable == tuple(sorted(str(root / name) for name in ("a", "b")))
    with pytest.raises(ConfigError, match="No such file"):
        MaskScanner(root / "none", DEFAULT_NAMES).scan()


def test_more_masks_than_a_command_can_have_are_an_error(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks_module, "MAX_MASKS", 2)
    for name in ("a.key", "b.key", "c.key"):
        make(name)
    with pytest.raises(ConfigError, match="3 names must be hidden") as raised:
        MaskScanner(root, DEFAULT_NAMES).scan()
    assert raised.value.code == "sandbox_masks"


# ---- the rules against the lists

PARTS = st.sampled_from(
    (
        ".env",
        "x.pem",
        ".git",
        "config",
        "hooks",
        "agents",
        ".ferrule",
        "src",
        "a.py",
        ".docker",
        "config.json",
        ".config",
        "gcloud",
        "ID_RSA",
        ".Env~",
        "data.bak",
        ".ssh",
        "git~1",
        "site-packages",
        "x.pth",
        ".github",
        "workflows",
        "Jenkinsfile",
        ".cargo",
        "credentials.toml",
        "k.key::$DATA",
        "ｅｎｖ",
        "ordinary name",
        "part.",
        "aws",
        ".hg",
        "hgrc",
    )
)
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


@given(NAMES)
@settings(max_examples=400, deadline=None)
@pytest.mark.proves("sandbox.mask.names")
def test_every_name_that_no_tool_may_read_is_covered_and_no_other_is_hidden(name: str) -> None:
    refused = DEFAULT_NAMES.check(name, write=False)
    covered = required_mask(name, FileType.FILE, DEFAULT_NAMES)
    if refused is None:
        assert covered is None or covered.kind is MaskKind.READ_ONLY
    else:
        branch = ".git/refs/" in name or ".git/logs/" in name
        assert branch or (
            covered is not None and covered.kind in (MaskKind.UNREADABLE, MaskKind.TEXT)
        )


@given(NAMES)
@settings(max_examples=400, deadline=None)
@pytest.mark.proves("sandbox.mask.names")
def test_a_name_is_called_ordinary_only_if_nothing_is_to_be_laid_over_it(name: str) -> None:
    above = name.rpartition("/")[0]
    assume(not above or required_mask(above, FileType.FOLDER, DEFAULT_NAMES) is None)
    last = name.rpartition("/")[2]
    for others in ([], [f"plain{number}.txt" for number in range(20)]):
        ordinary = OrdinaryNames(DEFAULT_NAMES).select(above, [last, *others])
        if last in ordinary:
            for what in (FileType.FILE, FileType.FOLDER):
                assert required_mask(name, what, DEFAULT_NAMES) is None


@pytest.mark.parametrize(
    "name", ["a.py", "src/a.py", "src/a.py.txt", "src/ordinary name", ".icons/a.svg"]
)
def test_a_plain_name_is_ordinary_at_first_sight_and_later(name: str) -> None:
    ordinary = OrdinaryNames(DEFAULT_NAMES)
    above, _, last = name.rpartition("/")
    for _ in range(2):
        assert last in ordinary.select(above, [last])


MASKS = """
.env                file    unreadable unless_own
.env                folder  empty_folder unless_own
.env                socket  unreadable unless_own
.env                link    -
k.pem               file    unreadable unless_own unless_public
k.pem               folder  empty_folder unless_own
k.pem               other   unreadable unless_own
id_rsa              file    unreadable unless_own
.env.pem            file    unreadable unless_own
a.txt               file    -
a.sock              socket  unreadable unless_own
agents              folder  empty_folder
agents/x            file    unreadable
agents/x            link    unreadable
agents/x            socket  unreadable
.git                folder  -
.git                file    read_only
.git/HEAD           file    -
.git/config         file    text
.git/commondir      file    read_only
.git/hooks          folder  empty_folder
.git/refs/a.pem     file    -
.git/modules/a/config  file text
.gitmodules         file    read_only
.github/workflows   folder  read_only
a/.github/workflows folder  -
Makefile            file    read_only
Makefile            link    -
ops/token           file    unreadable unless_own
ops/k.pem           file    unreadable unless_own
"""


@pytest.mark.proves("sandbox.mask.names")
@pytest.mark.parametrize("row", MASKS.strip().splitlines())
def test_what_is_laid_over_a_name_depends_on_its_type(row: str) -> None:
    name, what, kind, *unless = row.split()
    names = ProtectedNames(secret=("ops/*",), protected=("Makefile",))
    found = required_mask(name, FileType[what.upper()], names)
    if kind == "-":
        assert found is None
    else:
        assert found == MaskRequirement(
            MaskKind[kind.upper()], "unless_own" in unless, "unless_public" in unless
        )


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [(".env/bin/x", False), (".env/agents", False), (".env/lib/k.pem", True), (".env/.env", True)],
)
def test_below_a_secret_folder_of_ones_own_only_names_of_their_own_are_secret(
    name: str, is_hidden: bool
) -> None:
    found = required_mask(name, FileType.FILE, DEFAULT_NAMES, below=".env")
    hidden = MaskRequirement(MaskKind.UNREADABLE, unless_own=True)
    assert found == (hidden if is_hidden else None)
    assert required_mask(name, FileType.FILE, DEFAULT_NAMES) is not None


def test_masks_are_ordered_from_the_top(root: Path, make: Make) -> None:
    for name in ("a/x.key", "a-b/x.key", ".vscode/.env"):
        make(name)
    items = MaskScanner(root, DEFAULT_NAMES).scan().masks
    assert items == tuple(sorted(items, key=lambda mask: mask.path.split("/")))
    assert items[0] == Mask(str(root / ".vscode"), MaskKind.READ_ONLY)
    assert stat.S_ISDIR(Path(items[0].path).stat().st_mode)


@pytest.mark.proves("sandbox.mask.names")
def test_names_that_are_no_text_or_hold_a_line_break_are_covered_too(root: Path) -> None:
    odd = [b"\xff\xfe.pem", b"two\nlines.key", "schlüssel.pem".encode(), b".env \t"]
    for name in odd:
        with open(os.path.join(os.fsencode(root), name), "wb") as file:
            file.write(b"x")
    found = MaskScanner(root, DEFAULT_NAMES).scan()
    assert {os.path.basename(os.fsencode(mask.path)) for mask in found.masks} == set(odd)


def test_a_file_that_nobody_may_open_is_covered_by_one_of_its_size_and_time(tmp_path: Path) -> None:
    secret = tmp_path / ".env"
    secret.write_text("KEY=1")
    os.utime(secret, (1_000, 1_000))
    folder = tmp_path / "secrets.d"
    folder.mkdir()
    covers = tmp_path / "held" / "covers"
    covers.mkdir(parents=True)
    masks = tuple(Mask(str(path), MaskKind.UNREADABLE) for path in (secret, folder))
    names = write_covers(masks, SessionPaths(str(tmp_path)))
    assert names.keys() == {str(secret)}
    status = (covers / names[str(secret)]).stat()
    assert (status.st_size, int(status.st_mtime)) == (5, 1_000)
