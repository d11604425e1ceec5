"""`search_files` as packs offer it: the arguments of requirement 001 over the same search.

The rows are values: path, line, column, text and the lines around. The excluded globs of a call are
added to those of the pack and never replace them. `toolkits.search.search_files` decides what is
searched, and by which expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from ferrule.core.errors import ConfigError
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.commands.start import find_command_writable
from ferrule.toolkits.examples import examples_for
from ferrule.toolkits.files.edits import invalid_arguments
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool
from ferrule.tools.number_ranges import require_ranges

from .pattern import read_pattern
from .ripgrep import find_ripgrep
from .rows import Row, SearchResult
from .scope import Scope
from .search_files import MAX_CONTEXT, MAX_RESULTS, MAX_SECONDS, search


def make_search_tool(*, max_matches: int = 50, exclude_globs: Iterable[str] = ()) -> Tool:
    """Return `search_files` with the settings of a pack.

    Args:
        max_matches: Most matches if a call does not say.
        exclude_globs: Files that are never searched.

    Raises:
        ConfigError: `max_matches` is out of range.
    """
    if not 1 <= max_matches <= MAX_RESULTS:
        raise ConfigError(f"search_max_matches = {max_matches}", hint=f"from 1 to {MAX_RESULTS}")
    excluded = tuple(exclude_globs)
    default_matches = max_matches

    @tool(
        name="search_files",
        side_effect="read",
        risk="low",
        examples=examples_for("search_files"),
        impossible=require_ranges(
            max_matches=(1, MAX_RESULTS),
            context_before=(0, MAX_CONTEXT),
            context_after=(0, MAX_CONTEXT),
        ),
    )
    async def search_files(  # noqa: PLR0913  the parameters that a model may give
        pattern: Annotated[str, "What to look for within one line: a regular expression."],
        context: Context,
        path: Annotated[str, READS, "The file or folder to search; everything if left out."] = ".",
        glob: Annotated[str | list[str] | None, "Only files that match: `*.py`, `src/**`."] = None,
        exclude_globs: Annotated[str | list[str] | None, "Leave out files that match, too."] = None,
        case_insensitive: Annotated[bool, "Take upper and lower case as the same."] = False,
        fixed_strings: Annotated[bool, "Take the pattern as plain text."] = False,
        include_hidden: Annotated[
            bool, "Search folders whose names begin with a dot, too."
        ] = False,
        context_before: Annotated[int, "Lines to show before each match, 0 to 20."] = 0,
        context_after: Annotated[int, "Lines to show after each match, 0 to 20."] = 0,
        max_matches: Annotated[int, "Stop after this many matches, 1 to 1000."] = default_matches,
    ) -> dict[str, Any]:
        """Search files for text. Returns rows with path, line, column, text and the lines around,
        and whether there is more.

        Binary files, files over 10 MB, version control folders and files that may hold secrets are
        never searched.
        """
        _check_range("max_matches", max_matches, 1, MAX_RESULTS)
        _check_range("context_before", context_before, 0, MAX_CONTEXT)
        _check_range("context_after", context_after, 0, MAX_CONTEXT)
        workspace = context.resource(Workspace)
        kind = "literal" if fixed_strings else "regex"
        found = await search(
            workspace,
            read_pattern(pattern, kind, ignore_case=case_insensitive),
            Scope(path, _as_tuple(glob), (*excluded, *_as_tuple(exclude_globs)), include_hidden),
            max_results=max_matches,
            context_lines=max(context_before, context_after),
            ripgrep=find_ripgrep(find_command_writable(context)),
            # A little less time than the call has: a partial answer says more than none.
            seconds=min(MAX_SECONDS, 0.9 * (context.deadline or MAX_SECONDS)),
        )
        return make_result_value(found, context_before, context_after)

    return search_files


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise invalid_arguments(f"`{name}` must be from {least} to {most}, found {value}")


def _as_tuple(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(value)


def make_result_value(found: SearchResult, before: int, after: int) -> dict[str, Any]:
    """Return the result of a search as a value.

    It has `matches`, `truncated` and `files_searched`, and `notes` if there is something to say.
    """
    lines: dict[str, dict[int, Row]] = {}
    for row in found.rows:
        lines.setdefault(row.path, {})[row.number] = row
    matches = [_match_value(row, lines[row.path], before, after) for row in found.rows if row.match]
    answer: dict[str, Any] = {
        "matches": matches,
        "truncated": bool(found.warnings),
        "files_searched": found.searched,
    }
    notes = [*found.warnings, *_describe_left_out(found)]
    if notes:
        answer["notes"] = notes
    return answer


def _match_value(row: Row, lines: dict[int, Row], before: int, after: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "path": row.path,
        "line": row.number,
        "column": row.column,
        "text": row.text,
    }
    if before:
        shown["context_before"] = _texts(lines, range(row.number - before, row.number))
    if after:
        shown["context_after"] = _texts(lines, range(row.number + 1, row.number + after + 1))
    return shown


def _texts(lines: dict[int, Row], numbers: Sequence[int]) -> list[str]:
    return [lines[number].text for number in numbers if number in lines]


def _describe_left_out(found: SearchResult) -> list[str]:
    counts = (
        (found.large, "larger than 10 MB, not searched"),
        (len(found.withheld), "not searched, since tools may not read it or what is in it"),
        (found.unreadable, "skipped, since it cannot be opened"),
    )
    return [f"{count} {what}" for count, what in counts if count]
