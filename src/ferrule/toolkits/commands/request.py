"""A request to run a command: the checked arguments of a call, with the defaults of its toolset.

`command_policy` is asked about this value and may replace it, so there is one form to read and
write: the arguments of `run_command` in full.

Environment variables come from the model here. The gate sees them
(`permissions.command_variables`): a person is asked about those that can make a program run or load
something else, and rules for the bare command do not cover the rest. Those that no person could
judge are refused here as well, in case a call did not pass a gate.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, cast, get_args

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.command_variables import loads_code
from ferrule.permissions.filesystem.workspace import Workspace

from .plan import CommandPlan
from .policy import MAX_TIMEOUT, CommandOptions, CommandPolicy

CommandMode = Literal["argv", "shell", "auto"]
"""`auto`: a text goes to a shell if it needs one and may have one."""
EnvMode = Literal["inherit_clean", "replace", "patch"]
"""How the environment is made.

`inherit_clean`: the filtered environment, changed by `env` and `env_remove`. `patch` means the
same, since there is no wider environment to change. `replace`: `env` alone.
"""
_MAX_VARIABLES = 100
_VARIABLE_NAME = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*")


@frozen
class CommandRequest:
    """What to run, and how.

    Exactly one of `argv` and `text` is given; `cwd` is a path of the workspace. Times are in
    milliseconds, sizes in bytes. `background_after_ms` None: wait until the command ends; 0: do not
    wait.
    """

    mode: CommandMode = "argv"
    argv: tuple[str, ...] = ()
    text: str = ""
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_mode: EnvMode = "inherit_clean"
    env_remove: tuple[str, ...] = ()
    stdin: str = ""
    timeout_ms: int = 0
    max_inline_bytes: int = 0
    merge_stderr: bool = False
    keep_stdout: bool = True
    keep_stderr: bool = True
    background_after_ms: int | None = None
    progress_interval_ms: int = 5000
    progress_max_inline_bytes: int = 1600

    @property
    def command(self) -> str | tuple[str, ...]:
        """The command as `plan` reads it."""
        return self.text or self.argv

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments from which `parse_request` makes this request."""
        return {
            "command": self.text or list(self.argv),
            "mode": self.mode,
            "cwd": self.cwd,
            "env": dict(self.env),
            "env_mode": self.env_mode,
            "env_remove": list(self.env_remove),
            "stdin": self.stdin,
            "timeout_ms": self.timeout_ms,
            "capture": {
                "max_inline_bytes": self.max_inline_bytes,
                "merge_stderr": self.merge_stderr,
                "stdout": self.keep_stdout,
                "stderr": self.keep_stderr,
            },
            "background": self.background_after_ms is not None,
            "background_after_ms": self.background_after_ms,
            "progress_interval_ms": self.progress_interval_ms,
            "progress_max_inline_bytes": self.progress_max_inline_bytes,
        }

    def describe(self, plan: CommandPlan) -> dict[str, Any]:
        """Return what a policy function is shown.

        The arguments, with the words that would run as `argv`.
        """
        text = self.text or shlex.join(plan.argv)
        return {**self.to_arguments(), "command": text, "argv": list(plan.argv)}


ARGUMENTS = (
    "command",
    "argv",
    "mode",
    "cwd",
    "env",
    "env_mode",
    "env_remove",
    "stdin",
    "timeout_ms",
    "capture",
    "background",
    "background_after_ms",
    "progress_interval_ms",
    "progress_max_inline_bytes",
    "shell_id",
    "login",
    "interactive",
)


def parse_request(
    given: Mapping[str, Any], options: CommandOptions, policy: CommandPolicy
) -> CommandRequest:
    """Make a request from arguments, with the defaults and upper limits of the options.

    Args:
        given: Arguments of the full `run_command`, see `ARGUMENTS`.
        options: The defaults and upper limits.
        policy: Which variables and shells a command may have.

    Raises:
        RetryCall: An argument is unknown or out of range.
        ToolFailed: `permission_denied` for variables or a shell that cannot be had.
    """
    for key in given:
        if key not in ARGUMENTS:
            raise RetryCall(f"a request has no field `{key}`; it has {', '.join(ARGUMENTS)}")
    behavior = options.behavior
    argv, text = _split_command(given.get("command"), given.get("argv"))
    mode = given.get("mode") or "argv"
    if mode not in get_args(CommandMode):
        raise RetryCall(f"`mode` is `argv` or `shell`, found {mode!r}")
    env_mode = given.get("env_mode") or "inherit_clean"
    if env_mode not in get_args(EnvMode):
        raise RetryCall(f"`env_mode` is `inherit_clean`, `replace` or `patch`, found {env_mode!r}")
    _check_shell(given, mode)
    capture = _check_capture(given.get("capture"))
    wanted_inline = capture.get("max_inline_bytes")
    if wanted_inline is None:
        wanted_inline = options.max_inline_bytes
    timeout = given.get("timeout_ms") or behavior.timeout_ms or policy.timeout * 1000
    _check_range("timeout_ms", timeout, 1, MAX_TIMEOUT * 1000)
    progress = _take_number(
        given, "progress_interval_ms", behavior.progress_interval_ms, 10, 3_600_000
    )
    snippet = _take_number(
        given, "progress_max_inline_bytes", behavior.progress_max_inline_bytes, 0, 1 << 30
    )
    return CommandRequest(
        mode=mode,
        argv=argv,
        text=text,
        cwd=given.get("cwd") or options.cwd or options.root or ".",
        env=_check_variables(given.get("env") or {}, policy),
        env_mode=env_mode,
        env_remove=_check_names(given.get("env_remove") or ()),
        stdin=given.get("stdin") or "",
        timeout_ms=timeout,
        max_inline_bytes=min(wanted_inline, options.max_inline_bytes),
        merge_stderr=bool(capture.get("merge_stderr", False)),
        keep_stdout=bool(capture.get("stdout", True)),
        keep_stderr=bool(capture.get("stderr", True)),
        background_after_ms=_background_delay(given, behavior.background_after_ms),
        progress_interval_ms=progress,
        progress_max_inline_bytes=min(snippet, options.max_inline_bytes),
    )


def _split_command(command: object, argv: object) -> tuple[tuple[str, ...], str]:
    if (command is None) == (argv is None):
        raise RetryCall(
            "say what to run, once: as `command` (text or a list of words) or as `argv`"
        )
    given = argv if command is None else command
    if isinstance(given, str) and argv is None:
        return (), given
    if isinstance(given, (list, tuple)):
        words = cast("Sequence[object]", given)
        if words and all(isinstance(word, str) for word in words):
            return tuple(str(word) for word in words), ""
    raise RetryCall(
        'what to run is a list of words, like ["git", "status"], or text under `command`'
    )


def _check_capture(given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _capture_error()
    capture = cast("Mapping[str, Any]", given)
    for key, value in capture.items():
        if key not in _CAPTURE_TYPES or type(value) is not _CAPTURE_TYPES[key]:
            raise _capture_error()
        if key == "max_inline_bytes" and int(value) < 0:
            raise _capture_error()
    if capture.get("transport", "pipe") != "pipe":
        raise RetryCall(
            f"`capture.transport` = {capture['transport']!r}: outputs are pipes, and there "
            "is no terminal; leave it out"
        )
    keeps_both = capture.get("stdout", True) and capture.get("stderr", True)
    if capture.get("merge_stderr") and not keeps_both:
        raise RetryCall("`capture`: outputs that are merged are kept or discarded together")
    return capture


def _capture_error() -> RetryCall:
    return RetryCall(
        "`capture` is an object with `max_inline_bytes` (from 0), `merge_stderr`, "
        "`stdout` and `stderr` (true or false)"
    )


_CAPTURE_TYPES: Mapping[str, type] = {
    "max_inline_bytes": int,
    "merge_stderr": bool,
    "stdout": bool,
    "stderr": bool,
    "transport": str,
}


def _check_shell(given: Mapping[str, Any], mode: CommandMode) -> None:
    """Raise for a shell that is not available.

    The text is judged as a bash reads it that runs no start-up files and has no terminal. Another
    shell would read the same text differently.
    """
    wanted = given.get("shell_id") or ""
    if wanted and mode != "shell":
        raise RetryCall("`shell_id` says which shell reads a text: it goes with `mode: shell`")
    if wanted and wanted != "bash":
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`shell_id` = {str(wanted)[:100]!r}: texts are judged as bash reads them, so "
            "only `bash` runs them; leave it out",
        )
    if given.get("login"):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "`login`: a login shell runs start-up files that nobody judged; leave it out, "
            "and set variables with `env`",
        )
    if given.get("interactive"):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "`interactive`: there is no terminal to ask on; leave it out, and pass what it "
            "would ask for as `stdin` or as options of the program",
        )


def _background_delay(given: Mapping[str, Any], default: int | None) -> int | None:
    if given.get("background_after_ms") is not None:
        return _take_number(given, "background_after_ms", 0, 0, MAX_TIMEOUT * 1000)
    if given.get("background") is not None:
        return 0 if given["background"] else None
    return default


def _take_number(given: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name)
    if value is None:
        value = default
    _check_range(name, value, low, high)
    return value


def _check_range(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise RetryCall(f"`{name}` must be a whole number from {low} to {high}, found {value!r}")


def _check_variables(given: object, policy: CommandPolicy) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise RetryCall('`env` is an object of variables, like {"CI": "1"}')
    pairs = cast("Mapping[object, object]", given).items()
    variables = {str(name): str(value) for name, value in pairs}
    if len(variables) > _MAX_VARIABLES:
        raise RetryCall(f"`env` sets {len(variables)} variables; the most is {_MAX_VARIABLES}")
    if variables and policy.safe_mode.on:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, "safe mode is on: no variables can be set; leave `env` out"
        )
    for name in _check_names(variables):
        if loads_code(name):
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"`env` may not set `{name}`: it makes programs load something else; leave it out",
            )
        if "\0" in variables[name]:
            raise RetryCall(f"the value of `{name}` holds the character NUL; leave it out")
    return variables


def _check_names(given: object) -> tuple[str, ...]:
    names = tuple(str(name) for name in cast("Sequence[object]", given))
    for name in names:
        if isinstance(given, str) or not _VARIABLE_NAME.fullmatch(name):
            raise RetryCall(
                f"`{name[:100]}` is not the name of a variable: letters, digits and `_`"
            )
    return names


def resolve_start_folder(
    request: CommandRequest, options: CommandOptions, workspace: Workspace
) -> str:
    """Return the folder where the command starts, relative to the workspace. No I/O.

    Raises:
        ToolFailed: `permission_denied` if it may not start there.
    """
    folder = workspace.check_name(request.cwd, write=False)
    root = workspace.name(options.root) if options.root else ""
    if root and folder != root and not folder.startswith(root + "/"):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"commands start in `{root}` or below; `{request.cwd}` lies outside of it",
        )
    return folder
