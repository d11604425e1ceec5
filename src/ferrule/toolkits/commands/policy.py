"""What commands may do: the person's settings, the options of one set of tools, and the function
that may decide.

Two values, because two people write them. `CommandPolicy` is what the run's settings say; it is a
resource of the context and nothing lifts it. `CommandOptions` is what the author of an agent wants
of this set of tools: it only narrows (prefixes, a policy function) and sets defaults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal

from ferrule.core.errors import ConfigError
from ferrule.core.limits import OUTPUT_CAP
from ferrule.permissions.commands.syntax import Analysis
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.backends.missing_protection import Mode
from ferrule.sandbox.policy import Policy
from ferrule.tools.context import Context

OutputFormat = Literal["json", "value", "display"]
PolicyFunction = Callable[[dict[str, Any], Mapping[str, Any]], object | Awaitable[object]]
"""`command_policy(request, args)`: what is about to run, and the arguments as the model gave them.
"""

LONGEST_TIMEOUT = 3600
"""Seconds."""


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """What the run's settings say about commands. A resource of the context; without it, these
    defaults.

    `allow_env` are variables that children get besides the usual ones. `timeout` in seconds, where
    the call says none. `keep` bytes of output are held from the beginning, and as many from the
    end. `output_bytes` is what the files of one command may hold together, `result_bytes` what one
    result may have, `most_running` how many commands of a session may run at once. `confine` is
    what the session's sandbox must hold; None: what a sandbox holds by default, for the run's own
    workspace. `on_gap` is what happens where the machine does not offer that; `off`: commands run
    with all the rights of this process.
    """

    shell_allowed: bool = False
    safe_mode: SafeMode = SafeMode(on=False)
    allow_env: tuple[str, ...] = ()
    timeout: int = 300
    keep: int = 1024 * 1024
    output_bytes: int = 64 * 1024 * 1024
    result_bytes: int = OUTPUT_CAP
    most_running: int = 128
    confine: Policy | None = None
    on_gap: Mode = "required"

    @staticmethod
    def of(context: Context) -> CommandPolicy:
        """The policy of this run."""
        found = context.resources.get(CommandPolicy)
        return found if isinstance(found, CommandPolicy) else CommandPolicy()


@dataclass(frozen=True, slots=True)
class Behavior:
    """Defaults of requests that do not say it themselves, in milliseconds and bytes.

    `background_after_ms` None: a command is waited for; 0: it goes on in the background at once;
    else it is waited for that long.
    """

    background_after_ms: int | None = None
    progress_interval_ms: int = 5000
    progress_max_inline_bytes: int = 1600
    timeout_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("background_after_ms", "progress_max_inline_bytes"):
            _at_least(name, getattr(self, name), 0)
        _at_least("progress_interval_ms", self.progress_interval_ms, 10)
        _at_least("timeout_ms", self.timeout_ms, 1)

    @staticmethod
    def of(given: Mapping[str, Any]) -> Behavior:
        """From a mapping, as `command_behavior` is written. Raises ConfigError naming the key."""
        known = [f.name for f in fields(Behavior)]
        for key in given:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
                raise ConfigError(f"command_behavior: unknown key `{key}`", hint=hint)
        return Behavior(**given)


def _at_least(name: str, value: object, low: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < low):
        raise ConfigError(f"{name} = {value!r}: must be a whole number, at least {low}")


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Options of one set of command tools.

    `root`: commands start there or below; `cwd`: where they start if the call says nothing. Both
    are paths of the workspace. `max_inline_bytes` is the most of each output that a result shows.
    `allow_argv_prefixes`: a text is a program, a list the first words; None restricts nothing, an
    empty list allows nothing. `command_policy` is described in `verdict.py`. `output_format`:
    `json` (text), `value` (the record itself) or `display` (readable text). `names` and `namespace`
    are what the tools are called in the catalog, so that results name readers that exist.
    `lifecycle` adds poll, wait and kill.
    """

    root: str = ""
    cwd: str = ""
    max_inline_bytes: int = 16_384
    behavior: Behavior = Behavior()
    allow_argv_prefixes: Sequence[str | Sequence[str]] | None = None
    command_policy: PolicyFunction | None = None
    output_format: OutputFormat = "json"
    preserve_filtered_output: bool = True
    lifecycle: bool = False
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    namespace: str = ""

    def __post_init__(self) -> None:
        _at_least("max_inline_bytes", self.max_inline_bytes, 0)
        if self.output_format not in ("json", "value", "display"):
            raise ConfigError(
                f"output_format = {self.output_format!r}", hint="use `json`, `value` or `display`"
            )
        for prefix in self.prefixes or ():
            if not prefix or not all(prefix):
                raise ConfigError(
                    "allow_argv_prefixes: an empty prefix would allow every command",
                    hint='write a program, "git", or its first words, ["git", "status"]',
                )

    @property
    def prefixes(self) -> tuple[tuple[str, ...], ...] | None:
        """The allowed first words, each as a tuple."""
        if self.allow_argv_prefixes is None:
            return None
        return tuple((p,) if isinstance(p, str) else tuple(p) for p in self.allow_argv_prefixes)

    def called(self, tool: str) -> str:
        """What a tool of this set is called in the catalog."""
        name = self.names.get(tool, tool)
        return f"{self.namespace}::{name}" if self.namespace else name


def beyond_prefixes(
    argv: Sequence[str], analysis: Analysis, prefixes: tuple[tuple[str, ...], ...], *, shell: bool
) -> str:
    """Why a command does not begin as one of the prefixes says; empty if it does.

    In a shell every part must: behind pipes, in substitutions, in the text of `sh -c`. What a list
    of words could not do either is refused as well: writing a file by a redirect, setting a
    variable.
    """
    if not shell and not _begins(tuple(argv), prefixes):
        return f"`{argv[0]}` with these words is not among the allowed commands"
    if analysis.problem or analysis.over_limit:
        return f"the command cannot be judged: {analysis.problem or analysis.over_limit}"
    if shell and not analysis.parts:
        return "the command names no program"
    for part in analysis.parts:
        if part.words and not _begins(part.argv, prefixes):
            return f"`{part.raw[:200]}` is not among the allowed commands"
        if part.assignments:
            return f"`{part.assignments[0][:200]}` sets a variable"
        for redirect in part.redirects:
            if redirect.write and redirect.target.text != "/dev/null":
                return f"`{part.raw[:200]}` writes a file by a redirect"
    return ""


def _begins(words: Sequence[str | None], prefixes: tuple[tuple[str, ...], ...]) -> bool:
    return any(tuple(words[: len(prefix)]) == prefix for prefix in prefixes)
