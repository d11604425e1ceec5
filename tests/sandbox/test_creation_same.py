"""The mediator is not noticed: file operations give the same results and the same files with it and
without it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux")

HERE = Path(__file__).resolve().parent
RUNS = itertools.count(10_000)


class Twin:
    """A worker in a sandbox: `ask` has it perform operations in a fresh folder."""

    def __init__(self, root: Path, mediate: bool) -> None:
        # Deep, so that `..` and links do not lead to what the twins share.
        self.root = root = root / "1" / "2" / "3" / "4" / "5"
        root.mkdir(parents=True)
        record = json.dumps({"roots": [str(root)], "mediate": mediate})
        worker = [sys.executable, "-I", "-S", str(HERE / "file_worker.py")]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                str(HERE / "mediated.py"),
                str(root) + ".report",
                record,
                *worker,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )

    def ask(self, operations: list[list[object]]) -> dict[str, object]:
        assert self.process.stdin is not None and self.process.stdout is not None
        folder = f"{self.root}/{next(RUNS)}"
        self.process.stdin.write(json.dumps({"folder": folder, "operations": operations}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the worker ended"
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def twins() -> Iterator[tuple[Twin, Twin]]:
    # In memory where there is such a place: hundreds of small folders are made and removed.
    memory = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    # The names are equally long, so that a path that is too long is so for both.
    pair = Twin(base / "free", mediate=False), Twin(base / "held", mediate=True)
    yield pair
    for twin in pair:
        twin.close()
    shutil.rmtree(base)


NAMES = ["a", "b", "c", "d"]
COMPONENTS = st.sampled_from([*NAMES, *NAMES, *NAMES, *NAMES, "..", ".", "", "n" * 255, "n" * 256])
# Without a slash at its start: `/a` would be made on the machine itself, by one twin for the other.
RELATIVE = (
    st.lists(COMPONENTS, min_size=1, max_size=3).map("/".join).map(lambda path: path.lstrip("/"))
)
ODD = [
    "",
    "/",
    "..",
    ".",
    "a/",
    "b//",
    "a/.",
    "b/..",
    "/proc/self/cwd/a",
    "/dev/null",
    "/dev/null/a",
    "/proc/self/cwd/b/c",
    "x/" * 2040 + "abcdefghijklmno",
    "x" * 5000,
    "./" * 2046 + "a",
    "/../../..",
    "/proc/thread-self/cwd/a",
    "/proc/nothing",
    "/proc/self/cwd" + "/." * 1500 + "/a",
]
PATHS = st.one_of(
    st.sampled_from(NAMES),
    RELATIVE,
    RELATIVE.map(lambda path: "@/" + path),
    RELATIVE.map(lambda path: path + "/"),
    st.sampled_from(ODD),
)
# No link to `/` or another folder of the machine: through one, too, names would be made there.
TARGETS = PATHS.filter(lambda path: os.path.normpath(path) != "/")
# What is unlinked or moved stays below the folder: two workers share the rest of the machine.
INSIDE = st.one_of(
    st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
)
BASES = st.one_of(st.none(), st.none(), INSIDE)
MODES = st.sampled_from([0o666, 0o777, 0o600, 0o444, 0o4755, 0o2770, 0o1777, 0, 0o200])
FLAGS = st.lists(
    st.sampled_from(
        [
            os.O_EXCL,
            os.O_TRUNC,
            os.O_APPEND,
            os.O_NOFOLLOW,
            os.O_CLOEXEC,
            os.O_NONBLOCK,
            os.O_DIRECTORY,
            os.O_PATH,
            os.O_SYNC,
            os.O_NOCTTY,
            os.O_DIRECT,
            0o20000000,
        ]
    ),
    max_size=3,
).map(lambda flags: sum(set(flags)))
ACCESS = st.sampled_from([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY, 3])
OPENS = st.tuples(
    st.just("open"),
    BASES,
    PATHS,
    st.tuples(FLAGS, ACCESS, st.sampled_from([os.O_CREAT, os.O_CREAT, os.O_CREAT, 0])).map(sum),
    MODES,
    st.sampled_from(["", "one", "second"]),
)
KINDS = st.sampled_from([0o10000, 0o100000, 0o140000, 0, 0o40000, 0o120000])
OPERATIONS = st.one_of(
    OPENS,
    OPENS,
    st.tuples(st.just("mkdir"), BASES, PATHS, MODES),
    st.tuples(st.just("mkdir"), st.none(), INSIDE, st.just(0o755)),
    st.tuples(st.just("mknod"), BASES, PATHS, st.tuples(KINDS, MODES).map(sum)),
    st.tuples(st.just("device"), PATHS, st.sampled_from([0o20000, 0o60000])),
    st.tuples(st.just("symlink"), TARGETS, BASES, PATHS),
    st.tuples(st.just("symlink"), INSIDE, st.none(), INSIDE),
    st.tuples(st.just("symlink"), st.just("/dev/null"), st.none(), INSIDE),
    st.tuples(st.just("link"), BASES, INSIDE, PATHS, st.sampled_from([0, 0, 0x400, 0x1000, 0x1])),
    st.tuples(st.just("rename"), PATHS, st.none(), PATHS, st.sampled_from([0, 0, 0, 1, 2, 3, 8])),
    st.tuples(st.just("rename"), INSIDE, BASES, INSIDE, st.sampled_from([0, 0, 0, 1, 2])),
    st.tuples(
        st.just("temporary"), st.sampled_from([".", "a", "b", "@"]), MODES, PATHS, st.booleans()
    ),
    st.tuples(st.just("creat"), PATHS, MODES),
    st.tuples(st.just("unlink"), INSIDE),
    st.tuples(st.just("rmdir"), INSIDE),
    st.tuples(
        st.just("chmod"), INSIDE, st.sampled_from([0o755, 0o000, 0o500, 0o300, 0o644, 0o1755])
    ),
    st.tuples(st.just("chdir"), st.one_of(INSIDE, st.just("@"))),
    st.tuples(st.just("umask"), st.sampled_from([0, 0o022, 0o077, 0o777])),
    st.tuples(st.just("bad_pointer"), st.sampled_from([0, 1, 0x7FFF_FFFF_F000, -1])),
    st.tuples(st.just("bad_descriptor"), st.sampled_from([-1, 77, 0, -3, 100_000])),
)


@settings(
    max_examples=int(os.environ.get("SAME_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(OPERATIONS.map(list), min_size=1, max_size=25))
@example([["symlink", "/dev/null", None, "a"], ["mkdir", "a", "c", 0o755]])
@example([["symlink", "/dev/null", None, "a"], ["rename", "b", "a", "c", 0]])
@example([["mkdir", None, "a", 0], ["rename", "a", None, "a", 0]])
@example([["symlink", "/dev/null", None, "a"], ["open", "a", "c", os.O_CREAT, 0o644, ""]])
def test_operations_give_the_same_results_and_files_with_a_mediator_and_without(
    twins: tuple[Twin, Twin], operations: list[list[object]]
) -> None:
    free, held = (twin.ask(operations) for twin in twins)
    for operation, expected, found in zip(
        operations, free["results"], held["results"], strict=True
    ):
        assert found == expected, operation
    assert held["tree"] == free["tree"]
