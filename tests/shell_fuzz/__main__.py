"""Asks bash what programs do and compares it with what was said of them: `make lab NAME=fuzz`.

    python -m shell_fuzz --programs 200000 --seed 1 --workers 2 --seconds 3600 --state
    build/fuzz.json

Each block of programs has its number as seed: a run that ends early goes on where it stopped, and a
finding names what draws it again. Ends with 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.util
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .compare import BLOCK, compare_block
from .oracle import Bash


def main() -> int:
    """Run blocks until there are enough, or the time is over."""
    parser = argparse.ArgumentParser(prog="shell_fuzz")
    parser.add_argument("--programs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--state", type=Path)
    parser.add_argument("--until", type=int, default=20, help="end after so many findings")
    options = parser.parse_args()
    state = _read_state(options.state, options.seed)
    counts: Counter[str] = Counter(state["counts"])
    findings: list[dict[str, object]] = list(state["findings"])
    done = set(state["done"])
    blocks = [block for block in range(-(-options.programs // BLOCK)) if block not in done]
    end = time.monotonic() + options.seconds
    with multiprocessing.Pool(options.workers, _start) as pool:
        for block, found, counted in pool.imap_unordered(
            _work, [(options.seed, block) for block in blocks]
        ):
            counts.update(counted)
            findings += found
            done.add(block)
            for finding in found:
                print(json.dumps(finding, ensure_ascii=True), flush=True)
            if options.state:
                _write_state(options.state, options.seed, counts, findings, done)
            if len(done) % 50 == 0:
                print(_shown(counts, findings), file=sys.stderr, flush=True)
            if time.monotonic() > end or len(findings) >= options.until:
                break
        pool.terminate()
    print(f"seed {options.seed}: {_shown(counts, findings)}")
    for rule, count in sorted(counts.items()):
        if rule.startswith("rule "):
            print(f"  {rule[5:]:24} {count}")
    missing = options.programs - counts["programs"]
    if missing > 0:
        print(f"not done: {missing} programs; the same command goes on where this one stopped")
    return 1 if findings else 0


def _shown(counts: Counter[str], findings: list[dict[str, object]]) -> str:
    total = counts["programs"] or 1

    def share(name: str) -> str:
        return f"{counts[name]} ({100 * counts[name] / total:.1f} %)"

    return (
        f"{counts['programs']} programs, {len(findings)} findings; bash did something in "
        f"{share('did')}, started a program"
        f" in {share('started')}, no error in {share('fine')}; the reading was clear in "
        f"{share('clear')}, doubtful in"
        f" {share('doubt')}, none in {share('problem')}, none of those that bash ran without "
        f"error in {share('fine problem')}"
    )


_BASH: list[Bash] = []


def _start() -> None:
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="shell-fuzz-", dir=place))
    shutil.rmtree(folder)
    _BASH.append(Bash(folder).__enter__())
    multiprocessing.util.Finalize(None, _BASH[0].__exit__, (None, None, None), exitpriority=1)


def _work(task: tuple[int, int]) -> tuple[int, list[dict[str, object]], Counter[str]]:
    seed, block = task
    found, counts = compare_block(_BASH[0], seed, block)
    return block, found, counts


def _read_state(path: Path | None, seed: int) -> dict[str, list[object]]:
    if path is not None and path.exists():
        state = json.loads(path.read_text())
        if state["seed"] == seed:
            return state
    return {"counts": [], "findings": [], "done": []}


def _write_state(
    path: Path, seed: int, counts: Counter[str], findings: list[dict[str, object]], done: set[int]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(
        json.dumps(
            {"seed": seed, "counts": dict(counts), "findings": findings, "done": sorted(done)}
        )
    )
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
