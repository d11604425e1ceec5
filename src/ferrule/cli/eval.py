"""`ferrule eval`: run cases by models, or compare two reports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ferrule.cli.import_path import allow_named_modules
from ferrule.cli.new_files import write_named_file
from ferrule.cli.terminal import encode_json, escape_invisible
from ferrule.core.calls import parse_json
from ferrule.runtime.lazy_imports import lazy_imports

with lazy_imports():
    from ferrule.evaluation import case_files, evaluation, output_checks, report_formats
    from ferrule.evaluation import comparison as comparisons
    from ferrule.evaluation import report as reports
    from ferrule.evaluation import trials as trial_runs
    from ferrule.runtime import trial_agents


_PATH = click.Path(dir_okay=False, path_type=Path)
_SUFFIXES = {".json": "json", ".xml": "junit", ".md": "markdown"}


@click.command("eval")
@click.argument("file", type=_PATH, required=False)
@click.option(
    "-m", "--model", "models", multiple=True, metavar="PROVIDER:MODEL", help="Model. Repeatable."
)
@click.option(
    "--tool-mode",
    "tool_modes",
    multiple=True,
    type=click.Choice(["auto", "native", "constrained", "text", "commands", "none"]),
    help="Tool mode in which each model is asked. Repeatable.",
)
@click.option(
    "-n", "--trials", type=click.IntRange(1, 1000), help="How often each case is run (default 1)."
)
@click.option("--offline", is_flag=True, help="Run cases from their recordings; no model is asked.")
@click.option("--case", "only", multiple=True, metavar="PATTERN", help="Only these. Repeatable.")
@click.option(
    "--at-least",
    metavar="SHARE",
    help="Share of all trials that must pass, such as 90% (default: each case decides).",
)
@click.option("--judge", metavar="PROVIDER:MODEL", help="Model that judges by rubrics.")
@click.option(
    "--functions",
    multiple=True,
    metavar="MODULE|FILE",
    help="Your code whose functions cases may call. Repeatable.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, help="Trials at once (default 1).")
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for a recording of each trial.",
)
@click.option(
    "--compare",
    nargs=2,
    type=_PATH,
    metavar="OLD NEW",
    help="Compare two reports (.json): what became better and worse.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--junit", "as_junit", is_flag=True, help="Print it as JUnit XML.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it as Markdown.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=_PATH,
    help="Also write it to a file: .json, .xml (JUnit) or .md. Repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress line.")
def evaluate(file: Path | None, compare: tuple[Path, Path] | None, **options: Any) -> int:
    """Run the cases of FILE, and report how often each passed.

    Every trial works in a throw-away folder, under your settings and rules. Calls that
    need approval are denied unless the case approves them. Exit codes: 0 everything
    expected holds, 1 something does not (with --compare: something became worse, and chance does
    not explain it), 2 the file or an option is wrong, 6 no model could be reached.
    """
    formats = [name for name in ("json", "junit", "markdown") if options.pop(f"as_{name}")]
    if len(formats) > 1:
        raise click.UsageError("--json, --junit and --markdown exclude each other; choose one")
    outputs = [(path, _format_of(path)) for path in options.pop("outputs")]
    if (file is None) == (compare is None):
        raise click.UsageError("give a file of cases, or --compare OLD NEW")
    if compare is not None:
        return _compare(compare, formats, outputs)
    assert file is not None
    return _run(file, options, formats, outputs)


def _format_of(path: Path) -> str:
    found = _SUFFIXES.get(path.suffix)
    if found is None:
        known = ", ".join(_SUFFIXES)
        raise click.UsageError(f"--output `{path}`: the suffix says the format; known: {known}")
    return found


def _run(
    file: Path, options: dict[str, Any], formats: list[str], outputs: list[tuple[Path, str]]
) -> int:
    cases = case_files.load_cases(file)
    import asyncio

    report = asyncio.run(_evaluate(cases, options))
    writers: dict[str, Callable[[reports.Report], str]] = {
        "table": report_formats.format_report,
        "json": lambda one: one.to_json() + "\n",
        "junit": report_formats.format_report_as_junit,
        "markdown": report_formats.format_report_as_markdown,
    }
    _write(report, writers, formats, outputs)
    if report.is_unanswered:
        return 6
    return 0 if report.holds else 1


def _compare(files: tuple[Path, Path], formats: list[str], outputs: list[tuple[Path, str]]) -> int:
    comparison = comparisons.compare_reports(
        reports.load_report(files[0]), reports.load_report(files[1])
    )

    def refuse_junit(_: comparisons.Comparison) -> str:
        raise click.UsageError("a comparison has no JUnit form; choose --json or --markdown")

    writers: dict[str, Callable[[comparisons.Comparison], str]] = {
        "table": report_formats.format_comparison,
        "json": lambda one: one.to_json() + "\n",
        "junit": refuse_junit,
        "markdown": report_formats.format_comparison_as_markdown,
    }
    _write(comparison, writers, formats, outputs)
    return 1 if comparison.has_regressed else 0


def _write(
    report: Any,
    writers: dict[str, Callable[[Any], str]],
    formats: list[str],
    outputs: list[tuple[Path, str]],
) -> None:
    for path, name in outputs:
        write_named_file(path, writers[name](report))
    chosen = formats[0] if formats else "table"
    text = writers[chosen](report)
    if chosen == "json":
        click.echo(encode_json(parse_json(text)))
    else:
        click.echo(escape_invisible(text), nl=False)


async def _evaluate(cases: case_files.CaseFile, options: dict[str, Any]) -> reports.Report:
    at_least = None
    if options["at_least"] is not None:
        at_least = case_files.parse_share(options["at_least"])
        if at_least is None:
            raise click.UsageError(f"--at-least {options['at_least']}: write 0.9 or 90%")
    if options["functions"]:
        allow_named_modules()
    progress = _ProgressLine(quiet=options["quiet"])
    judge = options["judge"] or cases.judge
    chosen = evaluation.EvaluationOptions(
        options["trials"],
        at_least,
        options["jobs"],
        output_checks.CheckFunctions(options["functions"]),
        trial_agents.make_judge(judge) if judge else "",
        options["only"],
        options["record"],
        progress.show,
    )
    try:
        return await _start(cases, chosen, options, progress.write)
    finally:
        progress.clear()


async def _start(
    cases: case_files.CaseFile,
    chosen: evaluation.EvaluationOptions,
    options: dict[str, Any],
    notice: Callable[[str], None],
) -> reports.Report:
    if options["offline"]:
        return await evaluation.evaluate(cases, (), None, chosen)
    models = options["models"] or cases.models or (trial_agents.name_default_model(notice),)
    modes = options["tool_modes"] or cases.tool_modes or ("auto",)
    targets = [trial_runs.Target(model, mode) for model in models for mode in modes]
    return await evaluation.evaluate(
        cases, targets, trial_agents.open_assembled_agents(notice), chosen
    )


class _ProgressLine:
    """One line on standard error, drawn again and again; a line now and then elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._tenth = 0

    def show(self, done: evaluation.TrialDone) -> None:
        if self._quiet:
            return
        line = f"{done.done}/{done.of} trials, {done.passed_so_far} passed  {done.target}"
        if self._is_terminal:
            mark = "+" if done.passed else "x"
            text = escape_invisible(f"{line}  {mark} {done.case}")[:100]
            click.echo(f"\r\033[K{text}", nl=False, err=True)
            return
        tenth = 10 * done.done // done.of
        if tenth > self._tenth:
            self._tenth = tenth
            click.echo(escape_invisible(line), err=True)

    def write(self, text: str) -> None:
        self.clear()
        click.echo(escape_invisible(f"! {text}"), err=True)

    def clear(self) -> None:
        if self._is_terminal and not self._quiet:
            click.echo("\r\033[K", nl=False, err=True)
