#!/usr/bin/env python3
"""Makes one virtual environment per adapter (and one for the stub) with uv, from each adapter's
REQUIRES.

    python3 envs.py [ADAPTER ...] [--fresh]

They go to $FERRULE_BENCH_ENVS, or <tmp>/ferrule-bench-envs. A requirement may hold $VARIABLES (a
path to a checkout); an adapter whose variable is unset is skipped. uv itself is taken from PATH or
installed there.
"""

import argparse
import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ENVS = pathlib.Path(
    os.environ.get("FERRULE_BENCH_ENVS")
    or pathlib.Path(tempfile.gettempdir(), "ferrule-bench-envs")
)


def constants(path):
    """The adapter's top-level literal constants, read without importing it."""
    out = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                out[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                pass
    return out


def adapters():
    return {
        p.stem: {"REQUIRES": [], "path": p, **constants(p)}
        for p in sorted((HERE / "adapters").glob("*.py"))
    }


def python(name):
    return ENVS / name / "bin" / "python"


def uv():
    if shutil.which("uv"):
        return "uv"
    exe = ENVS / ".uv" / "bin" / "uv"
    if not exe.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVS / ".uv"], check=True)
        subprocess.run([exe.with_name("pip"), "install", "-q", "uv"], check=True)
    return str(exe)


def make(name, requires, fresh):
    os.environ.setdefault("FERRULE_SRC", str(HERE.parents[1]))
    want = [os.path.expandvars(r) for r in requires]
    if any("$" in r for r in want):
        return f"skipped: {' '.join(want)} names an unset variable"
    if fresh or not python(name).exists():
        subprocess.run(
            [uv(), "venv", "-q", "--clear", "--python", sys.executable, ENVS / name], check=True
        )
    if want:  # compiled now, so that no import measured later pays for it
        subprocess.run(
            [uv(), "pip", "install", "-q", "--compile-bytecode", "--python", python(name), *want],
            check=True,
        )
    return "ok"


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fresh", action="store_true", help="make them anew")
    a = ap.parse_args()
    ENVS.mkdir(parents=True, exist_ok=True)
    todo = {"stub": ["uvloop", "httptools"], **{n: d["REQUIRES"] for n, d in adapters().items()}}
    for name in a.names or todo:
        print(f"{name:16}", make(name, todo[name], a.fresh), flush=True)


if __name__ == "__main__":
    main()
