"""The guard around modules of tests names whatever they leave open."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from ferrule.command import command_run
from ferrule.extensions.starlark.pool import shared_pool
from ferrule.extensions.starlark.script import Script
from left_open import LeftOpen, kept_by_process, nothing_left_open


@contextmanager
def descriptor(folder: Path) -> Iterator[None]:
    number = os.open(folder / "kept.txt", os.O_CREAT | os.O_RDWR)
    yield
    os.close(number)


@contextmanager
def port(folder: Path) -> Iterator[None]:
    with closing(socket.create_server(("127.0.0.1", 0))):
        yield


@contextmanager
def thread(folder: Path) -> Iterator[None]:
    ended = threading.Event()
    # It lasts longer than the guard waits for threads that are about to end.
    left = threading.Thread(target=ended.wait, name="left-behind", daemon=True)
    left.start()
    yield
    ended.set()
    left.join()


@contextmanager
def process(folder: Path) -> Iterator[None]:
    waits = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # before that it may have no command line yet
        yield
        child.communicate(b"\n")


@contextmanager
def task(folder: Path) -> Iterator[None]:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    pending = loop.create_task(wait(), name="nobody-ends-it")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del pending, loop
    gc.collect()
    yield


@contextmanager
def temporary(folder: Path) -> Iterator[None]:
    made = tempfile.mkdtemp(prefix="ferrule-left-")
    yield
    os.rmdir(made)


@pytest.mark.parametrize(
    ("leave", "named"),
    [
        (descriptor, r"descriptor \d+: .*/kept\.txt"),
        (port, r"descriptor \d+: a socket, port \d+, of its peer 0"),
        (thread, r"thread `left-behind`"),
        (process, r"process \d+ `.*input\(\)`"),
        (temporary, r"temporary `.*/ferrule-left-\w+`"),
        (task, r"Task was destroyed but it is pending!"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_left_open_is_named(
    leave: Callable[[Path], AbstractContextManager[None]],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("left_open.END_SECONDS", 0.01)
    # The guard around this module must not hear of it.
    monkeypatch.setattr(logging.getLogger("asyncio"), "handlers", [])
    left = leave(tmp_path)
    with pytest.raises(AssertionError) as found, nothing_left_open():
        left.__enter__()
    left.__exit__(None, None, None)
    assert re.search(named, str(found.value)), found.value


def test_what_belongs_to_the_process_or_was_closed_is_not_named(tmp_path: Path) -> None:
    with nothing_left_open():
        with descriptor(tmp_path):
            pass
        with kept_by_process():
            kept = os.open(tmp_path, os.O_RDONLY)
    os.close(kept)


def test_what_the_process_shares_can_be_closed_and_is_started_again() -> None:
    script = Script("def run(args):\n    return 'hello'\n", "t.md")

    async def use_both() -> None:
        assert (await command_run(["echo", "a"]))["stdout"] == "a\n"
        assert await shared_pool().run(script, "run", [{}]) == "hello"

    for _ in range(2):
        with nothing_left_open():
            before = LeftOpen()
            asyncio.run(use_both())
            assert len(before.new_children()) >= 2


MODULES = {
    "descriptor": "def test_it() -> None:\n    os.open(__file__, os.O_RDONLY)\n",
    "thread": (
        "def test_it() -> None:\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    ),
    "process": (
        "KEPT = []\ndef test_it() -> None:\n    KEPT.append(subprocess.Popen(['sleep', '30']))\n"
    ),
    "task": (
        "def test_it() -> None:\n"
        "    loop = asyncio.new_event_loop()\n"
        "    task = loop.create_task(asyncio.sleep(30))\n"
        "    loop.run_until_complete(asyncio.sleep(0))\n"
        "    loop.close()\n"
    ),
    "exception_in_a_thread": (
        "def test_it() -> None:\n"
        "    thread = threading.Thread(target=int, args=('x',))\n"
        "    thread.start()\n"
        "    thread.join()\n"
    ),
    "unraisable": (
        "class Broken:\n"
        "    def __del__(self) -> None:\n"
        "        raise ValueError('in __del__')\n"
        "def test_it() -> None:\n"
        "    Broken()\n"
    ),
    "warning": "def test_it() -> None:\n    open(__file__)\n    gc.collect()\n",
    "nothing": "def test_it() -> None:\n    pass\n",
}


def test_a_module_that_leaves_something_fails_in_the_ordinary_run(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "conftest.py").write_text("import left_open\nleft_open.END_SECONDS = 0.05\n")
    imports = "import asyncio, gc, os, subprocess, threading\n"
    for name, text in MODULES.items():
        (tmp_path / f"test_{name}.py").write_text(imports + text)
    command = [sys.executable, "-m", "pytest", "-c", str(root / "pyproject.toml"), "-p", "conftest"]
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-rEf", f"--rootdir={tmp_path}"]
    ran = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=root / "tests",  # where `conftest` is found
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    failed = set(re.findall(r"^(?:ERROR|FAILED) \S*\btest_(\w+)\.py::", ran.stdout, re.MULTILINE))
    assert failed == set(MODULES) - {"nothing"}, ran.stdout + ran.stderr


def test_a_test_that_waits_for_ever_ends_with_its_stack(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    assert 0 < pytestconfig.getini("faulthandler_timeout") <= 900
    root = Path(__file__).parents[2]
    (tmp_path / "test_waits.py").write_text(
        "import threading\ndef test_it() -> None:\n    threading.Event().wait()\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", str(root / "pyproject.toml")]
    options = ["-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-o", "faulthandler_timeout=0.2"]
    ran = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode != 0
    assert 'test_waits.py", line 3 in test_it' in ran.stderr, ran.stdout + ran.stderr
