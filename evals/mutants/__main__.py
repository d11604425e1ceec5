"""Breaks code that promises rest on and prints which breakages their tests did not notice.

    make lab NAME=mutants                                                  # 400 breakages
    make lab NAME=mutants ARGS="--count 40 --seed 7"
    make lab NAME=mutants ARGS="--promise search.regex-default --count 20" # one promise, many breakages
    make lab NAME=mutants ARGS="--package packages/ferrule-local/src/ferrule_local --tests tests/small_models"

How the sample is drawn: promises in an order that the seed gives, with no regard to how long their
tests take; of each, lines that its tests execute, the fewer promises execute one the likelier
(`sample`). A promise is passed over if its tests do not pass here, need more than `--patience`
seconds, or execute nothing of the package that is theirs; each of these is named. A breakage that
runs out of time (20 seconds, or three times what the tests take) counts as noticed and is counted
apart; where the same tests are as slow without it, as on a busy machine, it is not counted at all.

A survivor is put to the other tests that execute its line, the most specific first, within
`--search` seconds. A breakage they notice is covered, but by the proofs of another promise or by a
test that proves none, and is listed so.

What tests execute is recorded by running each test file once (`executed`). That takes longer than
the tests themselves, is kept in `build/mutants`, and is done again for test files that have
changed. With `--promise`, only the files that prove it are recorded, and survivors are put to what
was recorded already.

A package without promises is broken with `--tests`: a test file takes the place of a promise.

`equivalent.yaml` names changes that change no behaviour, each with its reason. `--again` goes on
with the sample of the last run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import yaml

from .executed import Executed, Test
from .promises import read_proofs
from .sample import Module, Place, Sample, Trial
from .worker import Worker

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/ferrule"
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
TOGETHER = 60_000
"""Bytes of test files that are measured in one process: to start one takes seconds."""
MEASURE_SECONDS = 400.0
NOTICED = ("killed", "timeout", "another", "unmarked")


class Workers:
    """A number of workers, each given one task at a time."""

    def __init__(self, count: int, package: str) -> None:
        self._all = [Worker(ROOT, package) for _ in range(count)]
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


class Measuring:
    """Runs the test files that were not recorded yet."""

    def __init__(self, workers: Workers, executed: Executed) -> None:
        self._workers = workers
        self._executed = executed
        self._saving = threading.Lock()

    def run(self, files: Iterable[str]) -> None:
        """Record what the tests in files execute."""
        missing = [
            file
            for file in sorted(files)
            if self._executed.files.get(file, ("",))[0] != digest(ROOT / file)
        ]
        done = 0
        for measured in self._workers.map(self._measure, join_files(missing)):
            done += measured
            click.echo(f"{done} of {len(missing)} test files measured")

    def _measure(self, worker: Worker, files: Sequence[str]) -> int:
        digests = {file: digest(ROOT / file) for file in files}
        answer = worker.put(promise="", files=files, lines="all", seconds=MEASURE_SECONDS)
        if answer["outcome"] != "recorded" and len(files) > 1:
            return sum(self._measure(worker, [file]) for file in files)
        tests = {test["name"]: test for test in answer.get("tests", ())}
        failed = [name for name, test in tests.items() if test["outcome"] == "failed"]
        if failed:
            # Lines of processes that tests start are collected by an addition to the package,
            # which a test may notice.
            limits = {"promise": "", "files": files, "seconds": MEASURE_SECONDS}
            again = worker.put(lines="own", names=failed, **limits)
            tests |= {test["name"]: test for test in again.get("tests", ())}
        with self._saving:
            for file, named in digests.items():
                own = [test for name, test in tests.items() if name.startswith(f"{file}::")]
                if not own:
                    click.echo(f"not measured: {file}: {answer['outcome']}")
                self._executed.add(file, named, own)
        return len(files)


class Campaign:
    """One sample: measured, drawn, tried, reported."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._files = read_proofs(ROOT / "tests")
        self._package: str = options.package.rstrip("/")
        self._workers = Workers(options.workers, self._package)
        options.lines.parent.mkdir(parents=True, exist_ok=True)
        self._executed = Executed.read(ROOT / self._package, options.lines)
        self._measuring = Measuring(self._workers, self._executed)
        self._saving = threading.Lock()
        self._equivalent = read_equivalent(package=self._package)
        self._done = read_results(options.out) if options.again else {}
        if not options.again:
            options.out.unlink(missing_ok=True)

    def run(self) -> int:
        """Print the figures. Return 0 if enough breakages were noticed."""
        try:
            self._measuring.run(self._find_test_files())
            self._proofs = self._find_proofs()
            trials = self._find_drawn() if self._done else self._draw()
            results = list(self._workers.map(self._try, trials))
        finally:
            self._workers.close()
        return self._report(results)

    def _find_proofs(self) -> dict[str, list[Test]]:
        if not self._options.tests:
            return self._executed.by_promise()
        wanted = self._find_test_files()
        return {
            file: self._executed.files[file][1] for file in wanted & self._executed.files.keys()
        }

    def _find_test_files(self) -> set[str]:
        if self._options.promise:
            return {file for name in self._options.promise for file in self._files.get(name, ())}
        places = [ROOT / place for place in self._options.tests or ("tests",)]
        found = [path for place in places for path in (*place.rglob("test_*.py"), place)]
        return {path.relative_to(ROOT).as_posix() for path in found if path.suffix == ".py"}

    def _order(self) -> list[str]:
        if self._options.promise:
            return list(self._options.promise)
        if self._options.tests:
            return sorted(self._proofs)

        # By digest and not by shuffling: another promise more leaves the order of the rest.
        def place(name: str) -> bytes:
            return hashlib.sha256(f"{self._options.seed}:{name}".encode()).digest()

        return sorted(self._files, key=place)

    def _find_fault(self, promise: str) -> str:
        """Return why a promise is passed over, or ""."""
        proofs = self._proofs.get(promise, [])
        failed = [proof.name for proof in proofs if proof.outcome == "failed"]
        if failed:
            return f"failed here without any breakage: {failed[0]}"
        if not any(proof.outcome == "passed" for proof in proofs):
            return "no test of it ran here"
        if self._count_seconds(proofs) > self._options.patience:
            return f"its tests take {self._count_seconds(proofs):.0f} seconds"
        return ""

    def _count_seconds(self, proofs: Iterable[Test]) -> float:
        return sum(proof.seconds for proof in proofs)

    def _draw(self) -> list[Trial]:
        """Draw from the first promises in the order of the seed, as many as are needed."""
        wanted = -(-self._options.count // self._options.per_promise)
        # A few more than wanted: some will have no line of their own.
        wanted += wanted // 20
        lines: dict[str, dict[str, list[int]]] = {}
        for name in self._order():
            if len(lines) == wanted:
                break
            fault = self._find_fault(name)
            if fault:
                click.echo(f"passed over: {name}: {fault}")
            else:
                lines[name] = self._executed.find_lines(self._proofs[name])
        self._sample = Sample(ROOT / self._package, lines, self._options.seed)
        per_promise = self._options.per_promise
        if self._options.promise:
            per_promise = self._options.count
        elif self._options.tests:
            per_promise = -(-self._options.count // max(1, len(lines)))
        trials: list[Trial] = []
        for name in lines:
            drawn = self._sample.draw(name, per_promise)
            if not drawn:
                click.echo(f"passed over: {name}: executes no lines of its own")
            trials += drawn
        trials = trials[: self._options.count]
        for trial in trials:
            self._keep(trial, {"outcome": "drawn"})
        return trials

    def _find_drawn(self) -> list[Trial]:
        """Return the sample of the last run, as far as its code is still there."""
        self._sample = Sample(ROOT / self._package, {}, self._options.seed)
        trials: list[Trial] = []
        for promise, place in self._done:
            trial = self._sample.find(promise, place)
            if trial is None or promise not in self._proofs:
                click.echo(f"gone: {promise}: {place.module} {place.function} {place.change}")
            else:
                trials.append(trial)
        return trials

    def _try(self, worker: Worker, trial: Trial) -> dict[str, Any]:
        """Run the tests of a promise against a breakage. Return what came of it."""
        named = {"promise": trial.promise, "shown": trial.shown}
        place = trial.place
        reason = self._equivalent.get((place.module, place.function, place.operator, place.change))
        if reason is not None:
            return named | {"outcome": "equivalent", "reason": reason}
        result = self._done.get((trial.promise, trial.place), {})
        if result.get("outcome") in NOTICED:
            return named | result
        seconds = self._count_seconds(self._proofs[trial.promise])
        answer = self._put(worker, trial, seconds, promise=trial.promise)
        if answer["outcome"] == "failed":
            result = {"outcome": "killed", "by": (answer["failed"] or [""])[0]}
        elif answer["outcome"] == "timeout":
            whole = self._put(worker, None, seconds, promise=trial.promise)
            result = {"outcome": "timeout" if whole["outcome"] == "passed" else "untried"}
        else:
            result = self._search(worker, trial)
        self._keep(trial, result)
        by = f" ({result['by']})" if "by" in result else ""
        click.echo(f"{result['outcome']}: {trial.promise}: {trial.shown}{by}")
        return named | result

    def _search(self, worker: Worker, trial: Trial) -> dict[str, Any]:
        """Put a survivor to other tests. Return what came of it."""
        noticed = self._ask_others(worker, trial, self._find_others(trial))
        if noticed is None:
            return {"outcome": "survived"}
        return {"outcome": "another" if noticed.promises else "unmarked", "by": noticed.name}

    def _keep(self, trial: Trial, result: dict[str, Any]) -> None:
        entry = {"promise": trial.promise, "place": asdict(trial.place), **result}
        with self._saving, self._options.out.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _ask_others(self, worker: Worker, trial: Trial, others: Sequence[Test]) -> Test | None:
        """Run other tests. Return the one that noticed.

        A test that fails alone as well, and passes when nothing is broken, has noticed.
        """
        if not others:
            return None
        seconds = self._count_seconds(others)
        tests = {test.name: test for test in others}
        answer = self._put(worker, trial, seconds, names=list(tests))
        if answer["outcome"] == "timeout":
            whole = self._put(worker, None, seconds, names=list(tests))
            return others[0] if whole["outcome"] == "passed" else None
        failed = [name for name in answer.get("failed", ()) if name in tests]
        if not failed:
            return None
        test = tests[failed[0]]
        alone = self._put(worker, trial, test.seconds, names=[test.name])
        whole = self._put(worker, None, test.seconds, names=[test.name])
        unnoticed = alone["outcome"] not in ("failed", "timeout") or whole["outcome"] != "passed"
        return None if unnoticed else test

    def _find_others(self, trial: Trial) -> list[Test]:
        """Return other tests that execute the line, as many as there is time for."""
        found: list[Test] = []
        left = self._options.search
        for test in self._executed.find_tests(trial.place.module, self._sample.find_lines(trial)):
            if trial.promise in (*test.promises, test.file):
                continue
            if test.seconds <= left:
                left -= test.seconds
                found.append(test)
        return found

    def _put(
        self,
        worker: Worker,
        trial: Trial | None,
        seconds: float,
        *,
        promise: str = "",
        names: Sequence[str] = (),
    ) -> dict[str, Any]:
        tests = self._proofs[promise] if promise else ()
        files = {name.partition("::")[0] for name in [*names, *(test.name for test in tests)]}
        broken = {}
        if trial is not None:
            broken["module"] = f"{self._package}/{trial.place.module}"
            broken["source"] = self._sample.apply(trial).decode()
        return worker.put(
            promise="" if self._options.tests else promise,
            names=names,
            files=sorted(files),
            seconds=max(20.0, 3 * seconds),
            **broken,
        )

    def _report(self, results: list[dict[str, Any]]) -> int:
        counts = Counter(result["outcome"] for result in results)
        tried = len(results) - counts["equivalent"] - counts["untried"]
        own = counts["killed"] + counts["timeout"]
        noticed = own + counts["another"] + counts["unmarked"]
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
        click.echo(f"  by tests that prove no promise  {counts['unmarked']}")
        click.echo(f"survived  {counts['survived']}")
        click.echo(f"changes no behaviour (`equivalent.yaml`, not counted)  {counts['equivalent']}")
        click.echo(f"as slow without a breakage (not counted)  {counts['untried']}")
        for result in results:
            if result["outcome"] in ("survived", "another", "unmarked"):
                by = f" (noticed by {result['by']})" if "by" in result else ""
                click.echo(f"  {result['promise']}: {result['shown']}{by}")
        return 0 if noticed >= 0.9 * tried else 1


def join_files(files: Iterable[str]) -> Iterator[list[str]]:
    """Return the test files in groups that are measured together, of files that lie together."""
    group: list[str] = []
    size = 0
    for file in files:
        size += (ROOT / file).stat().st_size
        if group and size > TOGETHER:
            yield group
            group = []
            size = (ROOT / file).stat().st_size
        group.append(file)
    if group:
        yield group


def read_equivalent(
    path: Path = EQUIVALENT, package: str = PACKAGE
) -> dict[tuple[str, str, str, str], str]:
    """Return the changes of a package that change no behaviour, with the reason of each.

    Raises:
        ClickException: An entry names a change that the code does not have.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    modules: dict[str, set[tuple[str, str, str, str]]] = {}
    found: dict[tuple[str, str, str, str], str] = {}
    for one in entries:
        if one.get("package", PACKAGE) != package:
            continue
        name = one["module"]
        if name not in modules:
            places = Module.read(ROOT / package, name).places
            modules[name] = {(name, at.function, at.operator, at.change) for at in places}
        change = (name, one["function"], one["operator"], one["change"])
        if change not in modules[name]:
            raise click.ClickException(f"{path.name}: there is no such change: {' '.join(change)}")
        found[change] = one["reason"]
    return found


def read_results(path: Path) -> dict[tuple[str, Place], dict[str, Any]]:
    """Return the sample of the last run and what came of it, the latest of each breakage."""
    found: dict[tuple[str, Place], dict[str, Any]] = {}
    text = path.read_text() if path.is_file() else ""
    for result in map(json.loads, text.splitlines()):
        found[result.pop("promise"), Place(**result.pop("place"))] = result
    return found


def digest(path: Path) -> str:
    """Name what a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        prog="mutants", description="breaks code that promises rest on"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=400, help="breakages that are tried")
    parser.add_argument("--per-promise", type=int, default=1, help="breakages for each promise")
    parser.add_argument("--promise", action="append", help="only this promise (again for more)")
    parser.add_argument(
        "--tests", action="append", help="tests of this file or folder, in place of promises"
    )
    parser.add_argument("--package", default=PACKAGE, help="the package that is broken")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--patience", type=float, default=100.0, help="seconds for the tests of a promise"
    )
    build = ROOT / "build" / "mutants"
    parser.add_argument(
        "--lines", type=Path, help="executed lines, kept (default: one file for each package)"
    )
    parser.add_argument(
        "--search", type=float, default=60.0, help="seconds of other proofs for a survivor"
    )
    parser.add_argument("--out", type=Path, default=build / "results.jsonl", help="the results")
    parser.add_argument(
        "--again",
        action="store_true",
        help="try what was not noticed, or not tried, in the last run",
    )
    options = parser.parse_args()
    name = Path(options.package).name
    options.lines = options.lines or build / f"executed-{name}.jsonl"
    return Campaign(options).run()


if __name__ == "__main__":
    sys.exit(main())
