"""Breaks code that promises rest on and prints which breakages their tests did not notice.

    make mutants                                                  # 400 breakages (about half an hour on two cores)
    make mutants ARGS="--count 40 --seed 7"
    make mutants ARGS="--promise search.regex-default --count 20" # one promise, many breakages

How the sample is drawn: promises in an order that the seed gives, with no regard to how long their
tests take; of each, its tests run once with their lines collected, and a line is drawn, the fewer
promises execute it the likelier (`sample`). A promise is passed over if its tests do not pass here,
need more than `--patience` seconds, or execute nothing of the package that is theirs; each of these
is counted and named. A breakage that runs out of time (20 seconds, or three times what the tests
take) counts as noticed and is counted apart.

A survivor is tried once more against the proofs of other promises: the measured ones that execute
its line, then all in the test files nearest to the module. A breakage they notice is covered, but
by another promise, and is listed so. `equivalent.yaml` names changes that change no behaviour, each
with its reason.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import queue
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import click
import yaml

from .promises import read_proofs
from .sample import Sample, Trial
from .worker import Worker

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/ferrule"
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
NEIGHBOURS = 8
NEIGHBOUR_SECONDS = 60.0
NEIGHBOURS_SECONDS = 90.0
"""Test files near the module whose proofs a survivor is put to in the end, the time of each and of
all.
"""
OTHERS = 6
"""How many other promises a survivor is put to: those with the quickest tests."""


class Workers:
    """A number of workers, each given one task at a time."""

    def __init__(self, count: int) -> None:
        self._all = [Worker(ROOT, PACKAGE) for _ in range(count)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._all:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def map(self, run: Callable[[Worker, Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Run a function for each item, with a worker. Results keep the order of the items."""

        def run_one(item: Any) -> Any:
            worker = self._free.get()
            try:
                return run(worker, item)
            finally:
                self._free.put(worker)

        return self._threads.map(run_one, items)

    def close(self) -> None:
        """End them all."""
        for worker in self._all:
            worker.close()
        self._threads.shutdown()


class Campaign:
    """One sample: measured, drawn, tried, reported."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._proofs = read_proofs(ROOT / "tests")
        self._workers = Workers(options.workers)
        self._known = read_lines(options.lines)
        self._saving = threading.Lock()
        self._equivalent = read_equivalent()
        self._done = read_results(options.out) if options.again else {}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        if not options.again:
            options.out.unlink(missing_ok=True)

    def run(self) -> int:
        """Print the figures. Return 0 if enough breakages were noticed."""
        try:
            measured = self._measure()
            trials = self._draw(measured)
            results = list(self._workers.map(self._try, trials))
        finally:
            self._workers.close()
        return self._report(results)

    def _order(self) -> list[str]:
        if self._options.promise:
            return list(self._options.promise)

        # By digest and not by shuffling: another promise more leaves the order of the rest.
        def place(name: str) -> bytes:
            return hashlib.sha256(f"{self._options.seed}:{name}".encode()).digest()

        return sorted(self._proofs, key=place)

    def _measure(self) -> dict[str, dict[str, Any]]:
        """Run tests with their lines collected, until there are enough promises to draw from."""
        wanted = -(-self._options.count // self._options.per_promise)
        order = self._order()
        usable: dict[str, dict[str, Any]] = {}
        # A few more than wanted: some will have no line of their own.
        wanted += wanted // 20
        while order and len(usable) < wanted:
            batch = order[: wanted - len(usable)]
            order = order[len(batch) :]
            for name, found in zip(batch, self._workers.map(self._measure_one, batch), strict=True):
                if found["outcome"] == "passed":
                    usable[name] = found
                else:
                    click.echo(
                        f"passed over: {name}: {found['outcome']} {found.get('failed') or ''}"
                    )
        return usable

    def _measure_one(self, worker: Worker, promise: str) -> dict[str, Any]:
        files = self._proofs[promise]
        key = f"{promise} {digest(ROOT, files)}"
        found = self._known.get(key)
        if found is None or found["code"] != digest(ROOT / PACKAGE, found["lines"]):
            limits = {"promise": promise, "files": files, "seconds": self._options.patience}
            found = worker.put(lines="all", **limits)
            if found["outcome"] == "failed":
                # Lines of processes that tests start are collected by an addition to the package,
                # which a test may notice.
                found = worker.put(lines="own", **limits)
            prefix = f"{ROOT / PACKAGE}/"
            found["lines"] = {
                name.removeprefix(prefix): lines for name, lines in found.get("lines", {}).items()
            }
            found["code"] = digest(ROOT / PACKAGE, found["lines"])
            with self._saving:
                self._known[key] = found
                self._options.lines.parent.mkdir(parents=True, exist_ok=True)
                with self._options.lines.open("a") as file:
                    file.write(json.dumps([key, found]) + "\n")
                click.echo(
                    f"{len(self._known)} measured: {promise} {found['outcome']} {found['seconds']}"
                )
        return found

    def _draw(self, measured: dict[str, dict[str, Any]]) -> list[Trial]:
        self._measured = measured
        lines = {name: found["lines"] for name, found in measured.items()}
        self._sample = Sample(ROOT / PACKAGE, lines, self._options.seed)
        per_promise = self._options.per_promise
        if self._options.promise:
            per_promise = self._options.count
        trials: list[Trial] = []
        for name in measured:
            drawn = self._sample.draw(name, per_promise)
            if not drawn:
                click.echo(f"passed over: {name}: executes no lines of its own")
            trials += drawn
        return trials[: self._options.count]

    def _try(self, worker: Worker, trial: Trial) -> dict[str, Any]:
        """Run the tests of a promise against a breakage. Return what came of it."""
        reason = self._equivalent.get(equivalent_key(trial))
        result: dict[str, Any] = {"promise": trial.promise, "shown": trial.shown}
        known = self._done.get((trial.promise, trial.shown))
        if reason is not None:
            return result | {"outcome": "equivalent", "reason": reason}
        if known is not None and known["outcome"] in ("killed", "timeout"):
            return known
        result |= self._judge(worker, trial)
        with self._saving, self._options.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        click.echo(f"{result['outcome']}: {trial.promise}: {trial.shown}")
        return result

    def _judge(self, worker: Worker, trial: Trial) -> dict[str, Any]:
        answer = self._put(worker, trial, trial.promise)
        result = {"outcome": "killed", "failed": answer.get("failed"), "seconds": answer["seconds"]}
        if answer["outcome"] == "timeout":
            result["outcome"] = "timeout"
        elif answer["outcome"] in ("passed", "skipped"):
            result["outcome"] = "survived"
            others = self._sample.find_others(trial)
            others.sort(key=lambda name: self._measured[name]["seconds"])
            for other in others[:OTHERS]:
                if self._put(worker, trial, other)["outcome"] in ("failed", "timeout"):
                    return result | {"outcome": "another", "by": other}
            by = self._ask_neighbours(worker, trial)
            if by:
                return result | {"outcome": "another", "by": by}
        return result

    def _ask_neighbours(self, worker: Worker, trial: Trial) -> str:
        """Run the proofs of all promises in the test files nearest to the module. Return the test
        that noticed, or "".
        """
        files = find_neighbours(
            trial.module, {file for found in self._proofs.values() for file in found}
        )
        left = NEIGHBOURS_SECONDS
        for file in files:
            if left <= 0:
                break
            answer = self._put(worker, trial, "", [file], NEIGHBOUR_SECONDS)
            left -= answer["seconds"]
            if answer["outcome"] != "failed" or not answer["failed"]:
                continue
            failed = answer["failed"][0]
            # These tests were not run before: what fails here without any breakage has noticed
            # nothing.
            whole = worker.put(promise="", files=[failed], seconds=NEIGHBOUR_SECONDS)
            if whole["outcome"] == "passed":
                return failed
        return ""

    def _put(
        self,
        worker: Worker,
        trial: Trial,
        promise: str,
        files: Sequence[str] = (),
        seconds: float = 0,
    ) -> dict[str, Any]:
        return worker.put(
            promise=promise,
            files=files or self._proofs[promise],
            seconds=seconds or max(20.0, 3 * self._measured[promise]["seconds"]),
            module=f"{PACKAGE}/{trial.module}",
            source=self._sample.apply(trial).decode(),
        )

    def _report(self, results: list[dict[str, Any]]) -> int:
        counts = Counter(result["outcome"] for result in results)
        tried = len(results) - counts["equivalent"]
        own = counts["killed"] + counts["timeout"]
        noticed = own + counts["another"]
        promises = len({result["promise"] for result in results})
        click.echo(
            f"\nseed {self._options.seed}: {tried} breakages of code that {promises} "
            "promises rest on"
        )
        click.echo(f"noticed   {noticed} ({noticed / max(tried, 1):.1%})")
        click.echo(
            f"  by the proofs of the promise    {own}, {counts['timeout']} of them by "
            "running out of time"
        )
        click.echo(f"  by the proofs of another one    {counts['another']}")
        click.echo(f"survived  {counts['survived']}")
        click.echo(f"changes no behaviour (`equivalent.yaml`, not counted)  {counts['equivalent']}")
        for result in results:
            if result["outcome"] in ("survived", "another"):
                by = f" (noticed by {result['by']})" if "by" in result else ""
                click.echo(f"  {result['promise']}: {result['shown']}{by}")
        return 0 if noticed >= 0.9 * tried else 1


def find_neighbours(module: str, files: Iterable[str]) -> list[str]:
    """Return the test files nearest to a module: those that import it or what imports it, and are
    called like it.
    """
    name = dotted(module)
    package = ROOT / PACKAGE
    stem = name.rpartition(".")[2].encode()
    users = {
        dotted(path.relative_to(package).as_posix())
        for path in package.rglob("*.py")
        if stem in path.read_bytes() and name in read_imports(path)
    }
    words = {word for word in re.split(r"\W|_", name) if len(word) > 2} - {"ferrule"}
    found: list[tuple[int, int, str]] = []
    for file in files:
        imported = read_imports(ROOT / file)
        near = (
            8 * (name in imported)
            + 4 * bool(users & imported)
            + 3 * sum(word in file for word in words)
        )
        if near:
            found.append((near, (ROOT / file).stat().st_size, file))
    return [file for _, _, file in sorted(found, reverse=True)[:NEIGHBOURS]]


def dotted(module: str) -> str:
    """Return the name under which a file of the package is imported."""
    return "ferrule." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def read_imports(path: Path) -> frozenset[str]:
    """Return the modules of the package that a file imports, wherever in it; also names that may be
    modules.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            found |= _read_from(path, node)
    return frozenset(name for name in found if name.startswith("ferrule."))


def _read_from(path: Path, node: ast.ImportFrom) -> set[str]:
    base = node.module or ""
    if node.level:
        package = ROOT / PACKAGE
        if not path.is_relative_to(package):
            return set()
        above = (
            path.parents[node.level - 1].relative_to(package.parent).as_posix().replace("/", ".")
        )
        base = f"{above}.{base}".rstrip(".")
    return {base} | {f"{base}.{one.name}" for one in node.names}


def equivalent_key(trial: Trial) -> tuple[str, str, str]:
    """Name a breakage by what it changes and not by its line, which moves."""
    return trial.module, trial.breakage.operator, trial.breakage.shown


def read_equivalent(path: Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """Return the changes that change no behaviour, with the reason of each.

    Raises:
        ClickException: An entry names a module that is not there.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    for one in entries:
        if not (ROOT / PACKAGE / one["module"]).is_file():
            raise click.ClickException(f"{path.name}: there is no module `{one['module']}`")
    return {(one["module"], one["operator"], one["change"]): one["reason"] for one in entries}


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return what earlier runs measured, by promise and the contents of the package and of the
    tests.
    """
    return dict(map(json.loads, path.open())) if path.is_file() else {}


def read_results(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the results of an earlier run, the latest of each breakage."""
    results = map(json.loads, path.open()) if path.is_file() else ()
    return {(result["promise"], result["shown"]): result for result in results}


def digest(folder: Path, files: Iterable[str]) -> str:
    """Name what files hold, so that what was measured of them is measured again when they
    change.
    """
    parts = "".join(f"{name} {_digest_one(folder / name)}\n" for name in sorted(files))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


@cache
def _digest_one(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        prog="mutants", description="breaks code that promises rest on"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=400, help="breakages that are tried")
    parser.add_argument("--per-promise", type=int, default=1, help="breakages for each promise")
    parser.add_argument("--promise", action="append", help="only this promise (again for more)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--patience", type=float, default=100.0, help="seconds for the tests of a promise"
    )
    build = ROOT / "build" / "mutants"
    parser.add_argument(
        "--lines", type=Path, default=build / "lines.json", help="executed lines, kept"
    )
    parser.add_argument("--out", type=Path, default=build / "results.jsonl", help="the results")
    parser.add_argument(
        "--again",
        action="store_true",
        help="try only what was not noticed, or not tried, last time",
    )
    return Campaign(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
