"""`run_command` with all that requirement 001 asks for, and its set of tools (`command_tools`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.engine.usable_tools import UsableTools
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import COMMAND, READS, VARIABLES, Tool
from ferrule.tools.result_facts import store_facts

from .confinement import find_confinement
from .lifecycle import make_lifecycle_tools
from .policy import MAX_TIMEOUT, CommandOptions, CommandPolicy
from .readers import make_reader_tools
from .record import format_output, make_record, make_result_facts, render_record
from .request import parse_request
from .runner import (
    ReadyCommand,
    make_display_limits,
    plan_request,
    prepare,
    preview_command,
    run_ready_command,
)


def command_tools(options: CommandOptions | None = None) -> tuple[Tool, ...]:
    """Return the full `run_command`, `read_command_output` and `read_command_output_tail`.

    With `options.lifecycle` also `poll_command`, `wait_command` and `kill_command`. These are plain
    tools: they can be renamed and wrapped, and `options.names` then holds their new names.
    """
    chosen = options or CommandOptions()
    more = make_lifecycle_tools(chosen) if chosen.lifecycle else ()
    return (make_run_command_tool(chosen), *make_reader_tools(chosen), *more)


def make_run_command_tool(options: CommandOptions) -> Tool:
    """Return the full `run_command` for one set of options."""

    async def preview(values: Mapping[str, Any], context: Any) -> str:
        """Show the exact command line, where and how it would run."""
        request, planned, folder = plan_request(_drop_missing(values), context, options)
        return preview_command(replace(request, cwd=folder), planned)

    def impossible(values: Mapping[str, Any]) -> list[str]:
        """List what is wrong with a request as such, whatever the settings make of it."""
        try:
            parse_request(_drop_missing(values), options, CommandPolicy())
        except RetryCall as problem:
            return [str(problem)]
        except ToolFailed:
            # A refusal is not a mistake: it is raised, and recorded, by the call itself.
            return []
        return []

    @tool(
        side_effect="execute",
        risk="high",
        timeout=MAX_TIMEOUT + 60,
        parallel=False,
        preview=preview,
        impossible=impossible,
        inline=True,
        confined_by=find_confinement,
    )
    async def run_command(  # noqa: PLR0913  the parameters that a model may give
        context: Context,
        command: Annotated[
            str | list[str] | None,
            COMMAND,
            'The program and its arguments: ["pytest", "-q"], or as text.',
        ] = None,
        argv: Annotated[
            list[str] | None, COMMAND, "The same as a list only; give one of the two."
        ] = None,
        mode: Annotated[
            Literal["argv", "shell"], "`shell` runs the text with a shell, where that is allowed."
        ] = "argv",
        cwd: Annotated[str, READS, "The folder of the workspace to start in."] = "",
        env: Annotated[
            dict[str, str] | None, VARIABLES, "Variables to add to its environment."
        ] = None,
        env_mode: Annotated[
            Literal["inherit_clean", "replace", "patch"] | None,
            "`replace`: it gets no other variables.",
        ] = None,
        env_remove: Annotated[
            list[str] | None, "Variables to leave out of its environment."
        ] = None,
        stdin: Annotated[str, "Text for its standard input."] = "",
        timeout_ms: Annotated[
            int | None, "Milliseconds after which it is ended, at most 3600000."
        ] = None,
        capture: Annotated[
            dict[str, Any] | None,
            "`max_inline_bytes` of output to show; `merge_stderr`: one output for both; "
            "`stdout`, `stderr`: false throws it "
            "away.",
        ] = None,
        background: Annotated[bool | None, "Do not wait for its end."] = None,
        background_after_ms: Annotated[
            int | None, "Wait this long, then let it go on in the background; 0: at once."
        ] = None,
        progress_interval_ms: Annotated[
            int | None, "How often a command in the background reports."
        ] = None,
        progress_max_inline_bytes: Annotated[
            int | None, "Bytes of output in such a report."
        ] = None,
        shell_id: Annotated[str | None, "The shell of `mode: shell`: bash."] = None,
        login: Annotated[bool | None, "Not available: start-up files are not read."] = None,
        interactive: Annotated[bool | None, "Not available: there is no terminal."] = None,
    ) -> Any:
        """Run a program in the workspace. Returns a record: its status, exit code, output, and
        where all of it is.

        Without a shell there are no pipes, redirects, variables or wildcards. All that it starts
        ends with it. A command in the background reports here until it ends.
        """
        values = {
            "command": command,
            "argv": argv,
            "mode": mode,
            "cwd": cwd,
            "env": env,
            "env_mode": env_mode,
            "env_remove": env_remove,
            "stdin": stdin,
            "timeout_ms": timeout_ms,
            "capture": capture,
            "background": background,
            "background_after_ms": background_after_ms,
            "progress_interval_ms": progress_interval_ms,
            "progress_max_inline_bytes": progress_max_inline_bytes,
            "shell_id": shell_id,
            "login": login,
            "interactive": interactive,
        }
        return await _run(_drop_missing(values), context, options, made)

    made: Tool = run_command
    return made


def _drop_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were given."""
    return {name: value for name, value in values.items() if value is not None}


def _is_readable(context: Context, options: CommandOptions) -> bool:
    """Return whether a tool of the session, or the calling script, can read a copy."""
    usable = context.resources.get(UsableTools)
    if not isinstance(usable, UsableTools):
        return True
    return usable.has(options.catalog_name("read_command_output"))


async def _run(
    given: Mapping[str, Any], context: Context, options: CommandOptions, made: Tool
) -> Any:
    ready = await prepare(given, context, options, made)
    if not isinstance(ready, ReadyCommand):
        return ready.value if ready.finished else render_record(ready.value, options)
    request = ready.request
    keep = max(request.max_inline_bytes, request.progress_max_inline_bytes)
    copy = options.preserve_filtered_output and _is_readable(context, options)
    handle = await run_ready_command(ready, context, keep=keep, copy=copy)
    showing = make_display_limits(context, options, request.max_inline_bytes)
    text = handle.outputs.combined.text(request.max_inline_bytes)
    store_facts(context, {**make_result_facts(handle, text), "form": options.output_format})
    return render_record(make_record(handle, showing), options, lambda: format_output(handle, text))
