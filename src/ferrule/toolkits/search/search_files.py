"""`search_files`: searches for text in the files of the workspace.

    walk (scope)  ->  prefilter (ripgrep)  ->  read by the workspace  ->  match (line_matching)

Each step can only make the list of files shorter, so what the workspace may not read is never
shown, and the answer is the same with and without ripgrep. Everything ends with the call: the walk
and the matching check a flag, and ripgrep is ended with its children. A piece of a text that is
being matched then is matched to its end, in its thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Annotated, ClassVar

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup
from ferrule.engine.running_calls import cancel_all
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import READ_LIMIT, Workspace
from ferrule.permissions.provenance import TrustedProgram
from ferrule.toolkits.commands.start import find_command_writable
from ferrule.toolkits.examples import with_examples
from ferrule.toolkits.session_folder import find_place, find_session_confinement
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool
from ferrule.tools.line_matching import Hit, OutOfTime, find_hits
from ferrule.tools.number_ranges import require_ranges

from .pattern import Pattern, PatternKind, read_pattern
from .ripgrep import find_candidates, find_ripgrep
from .rows import Row, SearchResult, cut_around, format_report, make_printable
from .scope import Scope, find_files

MAX_RESULTS = 1000
MAX_CONTEXT = 20
MAX_SECONDS = 60.0
"""Time for one search; a shorter deadline of the call wins."""

_FIRST_NAMES = 1000
_BATCH_NAMES = 8000
"""The first batch is small, so that a search for what is everywhere ends early; each batch after it
has twice as many names, up to this, since ripgrep starts anew for each."""

_PREFILTERS = 2
"""How many ripgreps are at work at once. Each starts, reads and ends while the other is reading,
which is faster than one with as many threads."""

_BATCH_TEXT = 800_000
_BATCH_BYTES = 8 * 1024 * 1024
_BINARY_AFTER = 8192


@dataclass(slots=True)
class _Search:
    """One search in progress."""

    workspace: Workspace
    pattern: Pattern
    scope: Scope
    wanted: int
    around: int
    ripgrep: TrustedProgram | None
    directory: int
    deadline: float
    found: SearchResult = field(default_factory=SearchResult)
    stopped: threading.Event = field(default_factory=threading.Event)
    reading: str = ""
    """The file that is being read and matched."""

    def get_seconds_left(self) -> float:
        return max(0.05, self.deadline - time.monotonic())

    def is_over(self) -> bool:
        return self.stopped.is_set() or time.monotonic() > self.deadline

    async def run(self) -> SearchResult:
        names: list[str] = []
        async with aclosing(self._prefilter()) as batches:
            async for batch, some in batches:
                batch.add_counts(self.found)
                self.found.searched += len(batch.names)
                names += batch.names
                if await self._match_files(some):
                    break
        if self.pattern.plain:
            await self._match_names(names)
        return self.found

    async def _prefilter(self) -> AsyncGenerator[tuple[_Batch, list[str]], None]:
        """Yield the batches in their order, each with the files in which there may be a match."""
        begun: deque[tuple[_Batch, asyncio.Task[list[str]]]] = deque()
        try:
            async with aclosing(self._batches()) as batches:
                async for batch in batches:
                    begun.append((batch, asyncio.create_task(self._find_candidates(batch.names))))
                    if len(begun) == _PREFILTERS:
                        first, candidates = begun.popleft()
                        yield first, await candidates
            while begun:
                first, candidates = begun.popleft()
                yield first, await candidates
        finally:
            await cancel_all({task for _, task in begun})

    async def _batches(self) -> AsyncGenerator[_Batch, None]:
        """Yield names of files to search, as many at a time as fit on one command line.

        The walk goes on while a batch is searched, one batch ahead.
        """
        walked = SearchResult()
        ended = threading.Event()
        names = find_files(self.workspace, self.scope, walked, ended.is_set)
        most = min(_FIRST_NAMES, _BATCH_NAMES)
        following = run_blocking(partial(_next_batch, names, walked, most))
        try:
            while (batch := await following).names:
                most = min(2 * most, _BATCH_NAMES)
                following = run_blocking(partial(_next_batch, names, walked, most))
                yield batch
            yield batch  # has what was left out after the last file
        finally:
            ended.set()
            # The walk uses the workspace from its thread: it ends before the search does.
            await asyncio.wait([following])
            if not following.cancelled():
                following.exception()

    async def _find_candidates(self, names: list[str]) -> list[str]:
        if self.ripgrep is None or not names:
            return names
        return await find_candidates(
            self.ripgrep,
            self.pattern.wider,
            names,
            directory=self.directory,
            timeout=self.get_seconds_left(),
        )

    async def _match_files(self, names: list[str]) -> bool:
        """Keep the rows of these files. Return whether the search is finished."""
        matched = self._match(names)
        while not self.stopped.is_set():
            following = run_blocking(partial(_next_group, matched))
            await asyncio.wait([following], timeout=self.get_seconds_left())
            if not following.done():
                break
            group = following.result()
            for file in group:
                if self._add(*file):
                    return True
            if not group and not self.stopped.is_set():
                return False
        self.stopped.set()
        self._report_time()
        return True

    def _match(self, names: list[str]) -> Iterator[_Matched]:
        """Read and match files, in a thread. Without time for all, `stopped` is set."""
        # One more than wanted tells "exactly as many" from "there may be more".
        wanted = self.wanted - self.found.matches + 1
        for name in names:
            if wanted <= 0 or self.stopped.is_set():
                return
            self.reading = name
            try:
                content = self.workspace.read(name, limit=READ_LIMIT)
            except ToolFailed:
                continue  # gone, grown, or become a link since the walk
            if b"\0" in content[:_BINARY_AFTER]:
                continue
            try:
                hits = find_hits(
                    self.pattern.compiled, content, wanted=wanted, is_over=self.is_over
                )
            except OutOfTime:
                self.stopped.set()
                return
            wanted -= len(hits)
            yield name, content, hits

    def _add(self, name: str, content: bytes, hits: list[Hit]) -> bool:
        """Keep the rows of one file. Return whether that was the last that is wanted."""
        room = self.wanted - self.found.matches
        full = len(hits) > room
        self.found.matches += min(len(hits), room)
        self.found.rows += _rows(name, content, hits[:room], self.around)
        if full:
            self.found.warnings.append(
                f"stopped at {self.wanted} matches: there are more; narrow `path`, "
                "`file_filter` or the pattern, or raise `max_results` "
                f"(at most {MAX_RESULTS})"
            )
        return full

    def _report_time(self) -> None:
        what = (
            f"the search took longer than its time, at `{make_printable(self.reading)}`; files "
            "after it were not searched"
        )
        step = "simplify the pattern (smaller counts) or narrow `path`"
        if not self.found.rows:
            raise ToolFailed(ErrorType.TIMEOUT, f"{what}; {step}")
        self.found.warnings.append(f"{what}: the result is incomplete; {step}")

    async def _match_names(self, names: list[str]) -> None:
        base_names = "\n".join(name.rpartition("/")[2] for name in names)
        content = base_names.encode("utf-8", "surrogateescape")
        hits = await run_blocking(
            lambda: find_hits(self.pattern.compiled, content, wanted=len(names))
        )
        self.found.names = [names[hit.number - 1] for hit in hits]


_Matched = tuple[str, bytes, list[Hit]]
"""Name and content of a file, and the lines that match."""


@frozen
class _Batch:
    """Names of files, and what was left out on the way to the last of them."""

    names: list[str]
    large: int
    unreadable: int
    withheld: tuple[str, ...]

    def add_counts(self, found: SearchResult) -> None:
        """Say what was left out up to here. The walk is further ahead, by chance how far."""
        found.large = self.large
        found.unreadable = self.unreadable
        found.withheld[:] = self.withheld


def _next_batch(names: Iterator[str], walked: SearchResult, most: int) -> _Batch:
    """Return the next names, at most `most` and as many as fit on one command line."""
    batch: list[str] = []
    size = 0
    for name in islice(names, most):
        batch.append(name)
        size += len(name if name.isascii() else os.fsencode(name)) + 16
        if size > _BATCH_TEXT:
            break
    return _Batch(batch, walked.large, walked.unreadable, tuple(walked.withheld))


def _next_group(files: Iterator[_Matched]) -> list[_Matched]:
    """Return the next files with matches: of as much text as one batch may have."""
    group: list[_Matched] = []
    size = 0
    for file in files:
        if file[2]:
            group.append(file)
        size += len(file[1])
        if group and size > _BATCH_BYTES:
            break
    return group


def split_lines(content: bytes) -> list[str]:
    """Return the lines of a text without their ends."""
    pieces = content.decode("utf-8", "surrogateescape").split("\n")
    if not pieces[-1]:
        pieces.pop()
    return [piece.removesuffix("\r") for piece in pieces]


def _rows(name: str, content: bytes, hits: list[Hit], around: int) -> list[Row]:
    if not hits:
        return []
    text = split_lines(content)
    starts = {hit.number: hit.start for hit in hits}
    shown: set[int] = set()
    for number in starts:
        first = max(1, number - around)
        last = min(len(text), number + around)
        shown.update(range(first, last + 1))
    rows: list[Row] = []
    for number in sorted(shown):
        start = starts.get(number, 0)
        column = start + 1 if number in starts else 0
        rows.append(
            Row(name, number, cut_around(text[number - 1], start), number in starts, column)
        )
    return rows


async def search(
    workspace: Workspace,
    pattern: Pattern,
    scope: Scope,
    *,
    max_results: int = 200,
    context_lines: int = 0,
    ripgrep: TrustedProgram | None = None,
    seconds: float = MAX_SECONDS,
) -> SearchResult:
    """Search the workspace; this is what `search_files` does, for programs.

    When cancelled, ends what it started.

    Args:
        workspace: The workspace.
        pattern: What to look for.
        scope: Which files to look into.
        max_results: Most lines that match.
        context_lines: Lines to show before and after each.
        ripgrep: The program to use; None does without.
        seconds: Time for the whole search.

    Raises:
        ToolFailed: The path is refused, or the search took too long before it found anything.
    """
    with closing(_Folder(workspace)) as folder:
        one = _Search(
            workspace,
            pattern,
            scope,
            max_results,
            context_lines,
            ripgrep,
            folder.descriptor,
            time.monotonic() + seconds,
        )
        try:
            return await one.run()
        finally:
            one.stopped.set()


class _Folder:
    """The root of the workspace as a descriptor, until closed."""

    def __init__(self, workspace: Workspace) -> None:
        self.descriptor = workspace.open_descriptor("")

    def close(self) -> None:
        os.close(self.descriptor)


def _as_tuple(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(value)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise RetryCall(f"`{name}` must be from {least} to {most}, found {value}")


async def _answer(
    context: Context,
    pattern: str,
    kind: PatternKind,
    scope: Scope,
    *,
    ignore_case: bool,
    context_lines: int,
    max_results: int,
) -> str:
    _check_range("max_results", max_results, 1, MAX_RESULTS)
    _check_range("context_lines", context_lines, 0, MAX_CONTEXT)
    place = find_place(context, scope.path)
    workspace = place.workspace
    scope = replace(scope, path=place.path)
    found = await search(
        workspace,
        read_pattern(pattern, kind, ignore_case=ignore_case),
        scope,
        max_results=max_results,
        context_lines=context_lines,
        ripgrep=find_ripgrep(find_command_writable(context)),
        # A little less time than the call has: a partial answer says more than none.
        seconds=min(MAX_SECONDS, 0.9 * (context.deadline or MAX_SECONDS)),
    )
    flags = ""
    if scope.hidden:
        flags += " [+hidden]"
    if scope.ignored:
        flags += " [+gitignored]"
    start = make_printable(place.name() or ".")
    return format_report(
        found, f"searched for `{make_printable(pattern)}` ({kind}) in `{start}`{flags}"
    )


@tool(
    side_effect="read",
    risk="low",
    impossible=require_ranges(context_lines=(0, MAX_CONTEXT), max_results=(1, MAX_RESULTS)),
    confined_by=find_session_confinement,
)
async def search_files(  # noqa: PLR0913  the parameters that a model may give
    pattern: Annotated[str, "What to look for within one line."],
    context: Context,
    path: Annotated[
        str, READS, "The file or folder to search; the whole workspace if left out."
    ] = ".",
    kind: Annotated[
        PatternKind,
        "How to read the pattern: `regex` (RE2 syntax), `literal` (as it stands), or `wildcard` "
        "(`*` is any text within a line; case does not matter).",
    ] = "regex",
    file_filter: Annotated[
        str | list[str] | None,
        "Only files that match this glob, or one of these: `*.py`, `src/**`.",
    ] = None,
    exclude: Annotated[
        str | list[str] | None, "Leave out files that match this glob, or one of these."
    ] = None,
    case_insensitive: Annotated[bool, "Take upper and lower case as the same."] = False,
    context_lines: Annotated[int, "Lines to show before and after each match, 0 to 20."] = 0,
    max_results: Annotated[int, "Stop after this many matches, 1 to 1000."] = 200,
    include_hidden: Annotated[bool, "Search folders whose names begin with a dot, too."] = False,
    ignore_gitignore: Annotated[bool, "Search files that .gitignore leaves out, too."] = False,
) -> str:
    """Search the files of the workspace for text. Returns rows `file:line:text`, grouped by file,
    and counts.

    Binary files, files over 10 MB, version control folders and files that may hold secrets are
    never searched.
    """
    scope = Scope(
        path, _as_tuple(file_filter), _as_tuple(exclude), include_hidden, ignore_gitignore
    )
    return await _answer(
        context,
        pattern,
        kind,
        scope,
        ignore_case=case_insensitive,
        context_lines=context_lines,
        max_results=max_results,
    )


@tool(side_effect="read", risk="low", impossible=require_ranges(max_results=(1, MAX_RESULTS)))
async def grep_search(
    pattern: Annotated[
        str, "Text to look for; `*` stands for any text within a line, as in `fn*init`."
    ],
    context: Context,
    file_filter: Annotated[
        str | None, "Only files that match this glob: `*.zig`, `**/*.md`."
    ] = None,
    max_results: Annotated[int, "Stop after this many matches, 1 to 1000."] = 200,
    include_hidden: Annotated[bool, "Search hidden folders such as .config, too."] = False,
    ignore_gitignore: Annotated[bool, "Search files that .gitignore leaves out, too."] = False,
    path: Annotated[str, READS, "The folder to search; the whole workspace if left out."] = ".",
) -> str:
    """Search the files of the workspace for text, whatever its case.

    The same search as `search_files` with `kind: wildcard`, under the name and with the parameters
    of requirement 002, for agents that were written for it.
    """
    scope = Scope(path, _as_tuple(file_filter), (), include_hidden, ignore_gitignore)
    return await _answer(
        context,
        pattern,
        "wildcard",
        scope,
        ignore_case=True,
        context_lines=0,
        max_results=max_results,
    )


TOOLS: tuple[Tool, ...] = with_examples(search_files)
"""`grep_search` is not among them: two names for one tool cost a model more than they give."""


@frozen
class Search:
    """The tool that searches for text in the files of the workspace."""

    name: ClassVar[str] = "search"

    def setup(self, setup: Setup) -> Parts:
        """Return the tool."""
        return Parts(tools=TOOLS)
