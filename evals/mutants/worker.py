"""Runs tests over a broken copy of the package, in namespaces of its own: nothing else on the
machine can be harmed.

A breakage of code that confines commands or deletes files can do anything. So a worker is the first
process of its own PID namespace (what it starts ends with it, and sees and signals nothing else)
and of its own mount namespace, in which the disk is read-only, `/tmp` is private, and copies of
`src` and `tests` lie over those of the working tree. The working tree is never written, and every
process sees the breakage, whatever its environment: commands, servers, confined workers.

Tests run in a fork of the worker, which has loaded what they need except Ferrule itself. Needs the
right to make namespaces (root, or a kernel that gives it to everyone) and `unshare` and `mount` of
util-linux. The network is not separated.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PRELOADED = (
    "pytest",
    "_pytest.pytester",
    "hypothesis",
    "hypothesis.extra.pytestplugin",
    "pytest_asyncio.plugin",
    "pydantic",
    "jsonschema_rs",
    "yaml",
    "click",
    "coverage",
    "asyncio",
    "sqlite3",
    "ssl",
)
PYTEST = (
    *("-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
LINES = Path("/tmp/ferrule-lines")
"""Where processes that tests start leave the lines they executed. The folder is private to the
worker.
"""

COVER_CHILDREN = """
def _cover() -> None:
    try:
        import atexit, coverage, json, os
        if coverage.Coverage.current() is not None:
            return
        cover = coverage.Coverage(data_file=None, include=[{include!r}], config_file=False)
        cover.start()
        def save() -> None:
            cover.stop()
            data = cover.get_data()
            lines = {{name: data.lines(name) for name in data.measured_files()}}
            with open(f"{folder}/{{os.getpid()}}.json", "w") as file:
                json.dump(lines, file)
        atexit.register(save)
    except Exception:
        pass
_cover()
del _cover
"""
"""Added to the end of the package's `__init__` while lines are collected. A confined process that
cannot write its lines, or that ends without its exit handlers, is not seen.
"""


class Worker:
    """The other end: starts a worker process and puts one task at a time to it."""

    def __init__(self, root: Path, package: str = "src/ferrule") -> None:
        if Path(__file__).resolve().is_relative_to("/tmp"):
            raise RuntimeError(
                "this checkout lies in /tmp, which a worker does not see: clone it elsewhere"
            )
        self._folder = tempfile.TemporaryDirectory(
            prefix="ferrule-mutants-", ignore_cleanup_errors=True
        )
        namespaces = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if os.geteuid() != 0:
            namespaces += ["--user", "--map-root-user"]
        program = [sys.executable, "-m", "mutants.worker", str(root), package, self._folder.name]
        places = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            ["unshare", *namespaces, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        )

    def put(self, **task: Any) -> dict[str, Any]:
        """Run a task and return what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a worker ended: see its messages above")
        return json.loads(line)

    def close(self) -> None:
        """End the worker and all it started."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def main(root: Path, package: str, folder: Path) -> None:
    """Answer tasks from standard input, a line each, until it ends."""
    # What a test leaves behind is ended by a signal to every process this one can see.
    if os.getpid() != 1:
        raise SystemExit(
            "this program runs in a PID namespace of its own: start it by `make lab NAME=mutants`"
        )
    tasks = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    seclude(root, package.partition("/")[0], folder)
    os.chdir(root)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = "/tmp/hypothesis"
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    sys.dont_write_bytecode = False
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    room = Room(root, root / package)
    for line in tasks:
        answers.write(json.dumps(room.run(json.loads(line))) + "\n")
        answers.flush()


def seclude(root: Path, source: str, folder: Path) -> None:
    """Lay copies over the sources and the tests, make `/tmp` private and the rest of the disk
    read-only.
    """
    opened = os.open(root, os.O_PATH)
    for name in (source, "tests"):
        shutil.copytree(root / name, folder / name, symlinks=True)
    for name in ("tmp", "var"):
        (folder / name).mkdir()
    copies = {name: os.open(folder / name, os.O_PATH) for name in (source, "tests", "tmp", "var")}
    mount("--make-rprivate", "/")
    mount("-o", "remount,bind,ro", "/")
    bind(copies["tmp"], "/tmp")
    bind(copies["var"], "/var/tmp")
    if root.is_relative_to("/tmp"):
        root.mkdir(parents=True)
        bind(opened, root)
    for name in (source, "tests"):
        bind(copies[name], root / name)


def bind(descriptor: int, place: str | Path) -> None:
    """Mount what a descriptor holds over a folder."""
    # Not by the name that the descriptor once had: `/tmp` is another one by now.
    mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{descriptor}", str(place))
    mount("-o", "remount,bind,rw", str(place))


def mount(*arguments: str) -> None:
    """Call `mount`, which says what is wrong."""
    subprocess.run(["mount", *arguments], check=True)


class Room:
    """The secluded tree: breaks a file of it, runs tests, makes it whole again."""

    def __init__(self, root: Path, package: Path) -> None:
        self._root = root
        self._package = package
        self._broken = 0

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Run one task: the tests that prove `promise` in `files`, within `seconds`.

        `names` are tests that are run instead, in that order. `module` and `source` name a file and
        what it holds meanwhile. `lines` asks for all tests to be run and their lines recorded, "own"
        only those of this process.
        """
        changes: dict[Path, str] = {}
        if "module" in task:
            changes[self._root / task["module"]] = task["source"]
        if task.get("lines") == "all":
            entry = self._package / "__init__.py"
            added = COVER_CHILDREN.format(include=f"{self._package}/*", folder=LINES)
            changes[entry] = entry.read_text(encoding="utf-8") + added
        with self._changed(changes):
            began = time.monotonic()
            answer = self._run_child(task)
            answer["seconds"] = round(time.monotonic() - began, 2)
        self._clear()
        return answer

    @contextlib.contextmanager
    def _changed(self, changes: dict[Path, str]) -> Iterator[None]:
        saved = {path: (path.read_bytes(), path.stat()) for path in changes}
        for path, text in changes.items():
            path.write_text(text, encoding="utf-8")
            # Python knows compiled files by whole seconds and size: each change has a time of its
            # own.
            self._broken += 1
            os.utime(path, (self._broken, self._broken))
        try:
            yield
        finally:
            for path, (data, status) in saved.items():
                path.write_bytes(data)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _run_child(self, task: dict[str, Any]) -> dict[str, Any]:
        said = os.memfd_create("answer")
        child = os.fork()
        if child == 0:
            run_tests(task, self._package, said)
        ended = _wait(child, task["seconds"])
        _end_all()
        os.lseek(said, 0, os.SEEK_SET)
        with os.fdopen(said) as file:
            text = file.read()
        if not ended:
            return {"outcome": "timeout"}
        # A process that ended without a word was ended by the breakage: its tests did not pass.
        return (
            json.loads(text) if text else {"outcome": "failed", "failed": ["the test process died"]}
        )

    def _clear(self) -> None:
        for place in ("/tmp", "/var/tmp"):
            for path in Path(place).iterdir():
                if self._root.is_relative_to(path):
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def run_tests(task: dict[str, Any], package: Path, said: int) -> None:
    """Run the tests in this process, write what came of it to the descriptor `said`, and end."""
    answer: dict[str, Any] = {"outcome": "failed", "failed": ["the test process broke"]}
    try:
        os.setsid()
        LINES.mkdir(exist_ok=True)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        log = os.open("/tmp/output.txt", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        answer = _run_pytest(task, package)
        if answer["outcome"] != "passed" and task.get("verbose"):
            answer["output"] = Path("/tmp/output.txt").read_text(errors="replace")[-6000:]
    except BaseException:  # noqa: BLE001  whatever a breakage raises, this process ends here and its tests did not pass
        answer["failed"] = [traceback.format_exc(limit=3)]
    finally:
        os.write(said, json.dumps(answer).encode())
        os._exit(0)


def _run_pytest(task: dict[str, Any], package: Path) -> dict[str, Any]:
    import pytest

    from .promises import OnlyProofs
    from .recording import Recorder

    only = OnlyProofs(task["promise"], task.get("names", ()))
    options = [*PYTEST, "--hypothesis-seed=0"]
    if task.get("verbose"):
        options.append("--tb=short")
    if task.get("lines"):
        recorder = Recorder(package, LINES)
        pytest.main([*options, "--maxfail=0", *task["files"]], plugins=[only, recorder])
        return {"outcome": "recorded", "tests": recorder.finish()}
    status = pytest.main([*options, *task["files"]], plugins=[only])
    outcome = "failed"
    if status == pytest.ExitCode.OK and only.passed:
        outcome = "passed"
    elif status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        outcome = "skipped"
    return {"outcome": outcome, "passed": only.passed, "failed": only.failed}


def _wait(child: int, seconds: float) -> bool:
    """Wait for a process. Return whether it ended in its time. Orphans that end meanwhile are
    collected too.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, _ = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return True
        if ended == 0:
            time.sleep(0.01)
    return False


def _end_all() -> None:
    """End every process of this namespace but this one, and collect them."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
