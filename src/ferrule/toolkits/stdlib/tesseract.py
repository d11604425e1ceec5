"""Runs tesseract on an image that it gets on its standard input, in a sandbox of its own.

The sandbox's workspace is an empty temporary folder, there is no network, and memory, processes and
time are bounded: an image made to attack a decoder finds nothing there. If this machine cannot
enforce that, the session's setting for missing protection decides
(`CommandPolicy.on_missing_protection`), as for any command. Output is tesseract's TSV: one row for
each page, block, paragraph, line and word (level 5).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.threads import run_blocking
from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.command import Capture, Command, CommandResult, OutputSink
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands.policy import CommandPolicy
from ferrule.toolkits.commands.session_sandbox import SessionSandbox
from ferrule.toolkits.process import find_program
from ferrule.tools.context import Context

from .recognizer import MAX_SECONDS, Recognized, Recognizer, Word

MAX_OUTPUT = 8 * 1024 * 1024
"""Most bytes of TSV."""
BOUNDS = ResourceLimits(memory=2 * 1024**3, processes=64, file_size=64 * 1024**2)
INSTALL_HINT = "`apt install tesseract-ocr` or `brew install tesseract`"
_WORD_LEVEL = "5"
_COLUMNS = 12


class Tesseract(Recognizer):
    """The program `tesseract` of the PATH, 4 or later."""

    async def recognize(self, image: bytes, language: str, context: Context) -> Recognized:
        program = _find_tesseract(context)
        folder = await run_blocking(lambda: tempfile.mkdtemp(prefix="ferrule-ocr-"))
        confined = SessionSandbox()
        try:
            policy = SandboxPolicy(Path(folder), limits=BOUNDS)
            sandbox = await confined.get(
                policy, CommandPolicy.from_context(context).on_missing_protection, context
            )
            version = await _read_version(sandbox, program, folder, context)
            words = await _read_words(sandbox, program, folder, context, image, language)
            return Recognized(words, "tesseract", version, sandbox.protections().backend)
        finally:
            await confined.close()
            await run_blocking(lambda: shutil.rmtree(folder, ignore_errors=True))


def _find_tesseract(context: Context) -> str:
    workspace = context.resource(Workspace)
    found = find_program(
        "tesseract", os.environ.get("PATH", os.defpath), outside=str(workspace.root)
    )
    if found is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "no text was read: the program `tesseract` is not installed; ask the person to "
            f"install it ({INSTALL_HINT})",
        )
    return found


async def _read_version(sandbox: Sandbox, program: str, folder: str, context: Context) -> str:
    output = Capture(4096, 0)
    await _run(sandbox, program, ("--version",), folder, context, output, output)
    words = output.text().split() or ["", "unknown"]
    return words[1]


async def _read_words(
    sandbox: Sandbox, program: str, folder: str, context: Context, image: bytes, language: str
) -> tuple[Word, ...]:
    output = bytearray()
    errors = Capture(2048, 2048)

    def keep(data: bytes) -> bool:
        output.extend(data)
        return len(output) <= MAX_OUTPUT

    arguments = ("stdin", "stdout", "-l", language, "tsv")
    ended = await _run(sandbox, program, arguments, folder, context, keep, errors, image)
    if ended.timed_out:
        raise ToolFailed(
            ErrorType.TIMEOUT,
            f"no text was read within {MAX_SECONDS:g} seconds; try a smaller image",
        )
    if ended.stopped_by_sink:
        raise ToolFailed(
            ErrorType.LIMIT, f"the text is more than {MAX_OUTPUT} bytes; read parts of the image"
        )
    if ended.exit_code != 0:
        raise _error(errors.text(), ended, language)
    return tuple(parse_words(output.decode("utf-8", "replace")))


async def _run(
    sandbox: Sandbox,
    program: str,
    arguments: tuple[str, ...],
    folder: str,
    context: Context,
    output: OutputSink,
    errors: Capture,
    stdin: bytes = b"",
) -> CommandResult:
    # One thread: the result must not depend on the number of processors, nor may it take all.
    environment = filter_environment(
        os.environ, overrides={"OMP_THREAD_LIMIT": "1", "LC_ALL": "C"}
    ).values
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await sandbox.run(
            Command(
                ("tesseract", *arguments),
                program=program,
                directory=directory,
                environment=environment,
                output=output,
                errors=errors,
                stdin=stdin,
                timeout=min(MAX_SECONDS, 0.9 * (context.deadline or MAX_SECONDS)),
                identity=context.identity,
            )
        )
    finally:
        os.close(directory)


def _error(complaint: str, ended: CommandResult, language: str) -> ToolFailed:
    if "Failed loading language" in complaint or "Error opening data file" in complaint:
        return ToolFailed(
            ErrorType.NOT_FOUND,
            f"tesseract has no data for the language `{language}` here; ask the person to "
            f"install it (`apt install tesseract-ocr-{language.partition('+')[0]}`), or use `eng`",
        )
    how = f"signal {ended.signal}" if ended.exit_code is None else f"exit status {ended.exit_code}"
    last = complaint.strip().splitlines()[-1:] or ["it said nothing"]
    return ToolFailed(
        ErrorType.IO_ERROR,
        f"tesseract could not read the image ({how}: {last[0][:200]}); try another format",
    )


def parse_words(table: str) -> list[Word]:
    """Return the words of tesseract's TSV.

    Rows of other levels, empty words and malformed rows are left out. Columns: level, page, block,
    paragraph, line, word, left, top, width, height, confidence, text.
    """
    words: list[Word] = []
    for row in table.splitlines():
        cells = row.split("\t")
        if len(cells) != _COLUMNS or cells[0] != _WORD_LEVEL or not cells[11].strip():
            continue
        page, block, paragraph, line, _, left, top, width, height = (
            int(cell) for cell in cells[1:10]
        )
        place = (page, block, paragraph, line)
        box = (left, top, width, height)
        words.append(Word(cells[11].strip(), box, round(float(cells[10]), 2), place[:2], place))
    return words
