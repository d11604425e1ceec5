#!/usr/bin/env python3
"""Counts the instructions of a turn, of one of many runs at once and of a cold start, by valgrind.

    python3 instructions.py                        this tree beside raw sockets
    python3 instructions.py --before OTHER/src     and beside another tree's sources

Instructions do not depend on what else the machine does, so two trees can be compared where times
cannot. They are not time: the kernel's are not counted, and code that runs once waits for memory.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from run import HERE, KEEP, OFFLINE, Stub

ROOT = HERE.parents[1]
TURNS = {"metric": "turns", "turns": 50, "catalog": 0}
RUNS = {"metric": "conc", "turns": 5, "lat": 50}
METRICS = {  # what is counted, what is taken off (a start and an end), and by what it is divided
    "a turn, 50-turn run": ({**TURNS, "repeat": 3}, {**TURNS, "repeat": 1}, 2 * 51),
    "one of many runs at once": ({**RUNS, "n": 140}, {**RUNS, "n": 20}, 120),
    "cold start to the first finished run": ({"metric": "cold"}, None, 1),
}


def count(stub, source, adapter, args):
    """Instructions of one process, in millions."""
    kept = {name: os.environ[name] for name in KEEP if name in os.environ}
    path = f"{HERE / 'given'}{os.pathsep}{source}"
    env = {**kept, **OFFLINE, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    task = {**args, "label": "counted", "url": stub.url, "prefix": f"{time.time_ns()}-"}
    ended = subprocess.run(
        [
            *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
            *(sys.executable, "-P", HERE / "worker.py", HERE / "adapters" / f"{adapter}.py"),
            json.dumps([task]),
        ],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "@@" in ended.stdout, ended.stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", ended.stderr)
    return int(found[1].replace(",", "")) / 1e6


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--before", type=pathlib.Path, help="the sources of another tree")
    before = ap.parse_args().before
    columns = {"sockets": ("sockets", ROOT / "src"), "ferrule": ("ferrule", ROOT / "src")}
    if before is not None:
        columns["before"] = ("ferrule", before.resolve())
    for _, source in columns.values():
        subprocess.run([sys.executable, "-m", "compileall", "-q", source], check=True)
    print(f"{'millions of instructions':40}", *(f"{name:>9}" for name in columns))
    with Stub() as stub:
        for name, (whole, part, per) in METRICS.items():
            cells = []
            for adapter, source in columns.values():
                more = count(stub, source, adapter, whole)
                less = 0 if part is None else count(stub, source, adapter, part)
                cells.append((more - less) / per)
            print(f"{name:40}", *(f"{cell:9.3f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
