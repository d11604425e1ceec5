"""Which flags of a project's own files reach the compiler that checks an edit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferrule.extensions.diagnostics.compile_flags import find_flags

ROOT = Path("/w")


def find(file: str, files: dict[str, str]) -> list[str] | None:
    return find_flags(file, ROOT, files.get)


def database(**entry: object) -> dict[str, str]:
    fields = {"directory": "/w/build", "file": "../src/a.c", **entry}
    return {"build/compile_commands.json": json.dumps([1, {"file": "b.c"}, fields])}


@pytest.mark.parametrize(
    ("flags", "passed"),
    [
        ("-I ../include -Isub -I/usr/x", ["-I", "/w/build/../include", "-I", "/w/build/sub", "-I", "/usr/x"]),
        ("-isystem lib -include config.h", ["-isystem", "/w/build/lib", "-include", "/w/build/config.h"]),
        ("-DA=1 -D B -UC '-DT=\"a b\"'", ["-DA=1", "-DB", "-UC", '-DT="a b"']),
        ("-std=c++20 -Wall -Wno-error=x -w", ["-std=c++20", "-Wall", "-Wno-error=x", "-w"]),
        ("-O2 -c -o a.o -MD -MF a.d ../src/a.c", []),
        ("-fplugin=x.so -wrapper x -B/x -Xclang -load -specs=x @more", []),
        ("-Wp,-MD,a.d -Wl,-x -Wa,-x -save-temps -include-pch -I -fplugin=x.so", []),
        ("-I", []),
    ],
)  # fmt: skip
def test_only_folders_macros_standard_and_warnings_are_passed_on(
    flags: str, passed: list[str]
) -> None:
    assert find("src/a.c", database(command=f"/evil/compiler {flags}")) == passed


def test_a_file_has_its_own_flags(tmp_path: Path) -> None:
    files = database(arguments=["cc", "-DA", 3, "-c", "../src/a.c"])
    assert find("src/a.c", files) == ["-DA"]
    assert find("src/other.c", files) is None
    # A database comes before the flags for all files.
    assert find("src/other.c", {**files, "compile_flags.txt": "-DB"}) is None
    flags = {"compile_flags.txt": "-DB\n-I\ninclude\n-fplugin=x.so\n"}
    assert find("src/other.c", flags) == ["-DB", "-I", "/w/include"]


@pytest.mark.parametrize("text", ["", "{", "{}", "[[]]", "[" * 100_000])
def test_a_database_that_is_none_says_nothing(text: str) -> None:
    assert find("src/a.c", {"compile_commands.json": text}) is None
    assert find("src/a.c", database(command="unclosed 'quote")) == []
