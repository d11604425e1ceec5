"""Ordinary work is the same inside the sandbox as outside: what it prints, how it ends, which files
it leaves.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from benign_rows import WORK, Work
from confined import Confined

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.skipif(
    not probe().user_namespaces, reason="no user namespaces: another rung holds here"
)

PACKAGES = sysconfig.get_path("purelib")
PYTHON = os.path.realpath(sys.executable)
ME = {
    "GIT_AUTHOR_NAME": "x",
    "GIT_AUTHOR_EMAIL": "x@example.org",
    "GIT_COMMITTER_NAME": "x",
    "GIT_COMMITTER_EMAIL": "x@example.org",
}


def _project(at: Path) -> None:
    at.mkdir(parents=True)
    files = {
        "README.md": "# Project\n",
        "hello.c": '#include <stdio.h>\nint main(void) { puts("hello from C"); return 0; }\n',
        "Makefile": (
            "hello: hello.c\n\tgcc -O1 -o $@ $<\nmany: $(foreach n,1 2 3 4 5 6 7 8 9 10 11 "
            "12,part$(n).o)\npart%.o: hello.c\n\tgcc -O1 -c -o $@ $<\n"
        ),
        "test_sums.py": (
            "def test_one():\n    assert 1 + 1 == 2\n\ndef test_two(tmp_path):\n    (tmp_path / "
            "'x').write_text('y')\n    assert (tmp_path / 'x').read_text() == 'y'\n"
        ),
        "test_unit.py": (
            "import unittest\n\nclass T(unittest.TestCase):\n    def test(self):\n        "
            "self.assertTrue(True)\n"
        ),
        "lib.js": "exports.double = (x) => x * 2;\n",
        "lib.test.js": (
            "require('node:test')('doubles', () => "
            "{ if (require('./lib.js').double(2) !== 4) throw 1; });\n"
        ),
        "package.json": '{"name": "project", "version": "1.0.0", "scripts": {"double": "node -p \\"require(\'./lib.js\').double(21)\\""}}\n',
        "local/package.json": '{"name": "local-package", "version": "1.0.0", "main": "index.js"}\n',
        "local/index.js": "module.exports = 'local';\n",
        ".gitignore": "wheels\n",
        ".env.example": "TOKEN=\n",
    }
    for name, text in files.items():
        (at / name).parent.mkdir(exist_ok=True)
        (at / name).write_text(text)
    _certificates(at)
    _wheel(at / "wheels")
    # Older than the index: git believes times only then.
    for path in at.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=at, env={**os.environ, **ME}, check=True)


def _certificates(at: Path) -> None:
    """A public certificate under a name that keys have, as package managers ship them."""
    (at / "certs").mkdir()
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ed25519",
        "-nodes",
        "-subj",
        "/CN=x",
        "-days",
        "9",
        "-keyout",
        os.devnull,
    ]
    subprocess.run([*made, "-out", str(at / "certs/cacert.pem")], check=True, capture_output=True)
    shutil.copy(at / "certs/cacert.pem", at / "public.crt")


def _wheel(folder: Path) -> None:
    """A wheel with one module, as `pip` installs it without a network."""
    folder.mkdir()
    name = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", 'word = "a tiny word"\n')
        wheel.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{name}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(
            f"{name}/RECORD", f"tiny.py,,\n{name}/METADATA,,\n{name}/WHEEL,,\n{name}/RECORD,,\n"
        )


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    # Not below /tmp: that is a folder of its own inside the sandbox.
    made = Path(tempfile.mkdtemp(prefix="ferrule-work-", dir=Path.home())).resolve()
    _project(made / "kept")
    (made / "temporary").mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def confined(base: Path) -> Iterator[Confined]:
    (base / "project").mkdir()
    settings = base / "settings/git/config"
    settings.parent.mkdir(parents=True)
    settings.write_text("[user]\n\tname = Person Example\n\temail = person@example.org\n")
    with pytest.MonkeyPatch.context() as patch:
        # Inside it is not there; the session's home says the same. A `.gitconfig` in the home wins
        # in both.
        patch.setenv("XDG_CONFIG_HOME", str(base / "settings"))
        built = Confined(SandboxPolicy(base / "project", readable=(PACKAGES,)))
        yield built
        built.close()


def _fill(at: Path, kept: Path) -> None:
    """The folder itself stays: the sandbox works in it."""
    for entry in at.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.copytree(kept, at, symlinks=True, dirs_exist_ok=True)


def _there(at: Path) -> dict[str, int]:
    """Names and types of what is there, without what differs from run to run (objects, caches)."""
    found: dict[str, int] = {}
    for folder, folders, files in os.walk(at):
        for name in (*folders, *files):
            relative = os.path.relpath(os.path.join(folder, name), at)
            if (
                not relative.startswith((".git/objects", ".git/logs"))
                and "__pycache__" not in relative
            ):
                found[relative] = os.lstat(os.path.join(folder, name)).st_mode
    return found


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.id)
def test_ordinary_work_is_the_same_inside(base: Path, confined: Confined, work: Work) -> None:
    if work.id.startswith(("npm", "node")) and shutil.which("npm") is None:
        pytest.skip("node is not installed")
    script = work.script.replace("<python>", shlex.quote(PYTHON)).replace(
        "<packages>", shlex.quote(PACKAGES)
    )
    project = base / "project"
    _fill(project, base / "kept")
    plain = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script],
        check=False,
        cwd=project,
        # A pytest that ends removes old folders of all others, which can take minutes.
        env={**os.environ, **ME, "TMPDIR": str(base / "temporary")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    left = _there(project)
    assert plain.returncode == 0 and work.says in plain.stdout.decode(), plain.stdout.decode()
    _fill(project, base / "kept")
    ended, shown = confined.run(script, timeout=120, **ME)
    text = shown.decode(errors="replace")
    assert (ended.exit_code, ended.signal, ended.refused_names) == (0, "", ()), (ended, text)
    assert work.says in text
    if not work.differs:
        assert text == plain.stdout.decode()
    assert _there(project) == left
