"""What commands may do: the run's settings, the options of a toolset, and the deciding function.

There are two values because two people write them. `CommandPolicy` holds the run's settings; it is
a resource of the context and nothing lifts it. `CommandOptions` is what the author of an agent
wants of this set of tools: it only narrows (prefixes, a policy function) and sets defaults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Literal

from ferrule.core.callbacks import check_callback
from ferrule.core.errors import ConfigError
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen, options
from ferrule.permissions.command_analysis.syntax import CommandAnalysis
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.backends.reduced_protection import SandboxMode
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.tools.context import Context

OutputFormat = Literal["json", "value", "display"]
PolicyFunction = Callable[[dict[str, Any], Mapping[str, Any]], object | Awaitable[object]]
"""`command_policy(request, args)`: what will run, and the arguments as the model gave them."""

MAX_TIMEOUT = 3600
"""In seconds."""


@options
class CommandPolicy:
    """What the run's settings say about commands: a resource of the context, or these defaults.

    Attributes:
        shell_allowed: Whether a shell may run; None: where a sandbox enforces all that is required
            of it (`start.decide_shell`).
        allow_env: Variables that children get besides the usual ones.
        timeout: Seconds, if the call names none.
        kept_bytes: Bytes of output held in memory from the beginning, and as many from the end.
        output_bytes: What the files of one command may hold together.
        result_bytes: What one result may have.
        max_running: How many commands of a session may run at once.
        confine: What the session's sandbox must enforce; None: what a sandbox enforces by default,
            for the run's own workspace.
        remember_opening: Writes what a person opened for good into their settings for this folder;
            None: that is not offered.
        closed_folders: Folders that no answer opens: those of Ferrule itself.
        on_missing_protection: What happens if the machine does not offer that; `off`: commands run
            with all the rights of this process.
    """

    shell_allowed: bool | None = None
    safe_mode: SafeMode = SafeMode(on=False)
    allow_env: tuple[str, ...] = ()
    timeout: int = 300
    kept_bytes: int = 1024 * 1024
    output_bytes: int = 64 * 1024 * 1024
    result_bytes: int = OUTPUT_CAP
    max_running: int = 128
    confine: SandboxPolicy | None = None
    on_missing_protection: SandboxMode = "required"
    remember_opening: Callable[[Opening], None] | None = None
    closed_folders: tuple[str, ...] = ()

    @staticmethod
    def from_context(context: Context) -> CommandPolicy:
        """Return the policy of this run."""
        return CommandPolicy.from_resources(context.resources)

    @staticmethod
    def from_resources(resources: Mapping[type, object]) -> CommandPolicy:
        """Return the policy of a run that was given these."""
        found = resources.get(CommandPolicy)
        return found if isinstance(found, CommandPolicy) else CommandPolicy()


@frozen
class Behavior:
    """Defaults for requests that do not set these fields, in milliseconds and bytes.

    `background_after_ms` None: wait until the command ends; 0: it goes on in the background at
    once; otherwise wait for that long.
    """

    background_after_ms: int | None = None
    progress_interval_ms: int = 5000
    progress_max_inline_bytes: int = 1600
    timeout_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("background_after_ms", "progress_max_inline_bytes"):
            _check_at_least(name, getattr(self, name), 0)
        _check_at_least("progress_interval_ms", self.progress_interval_ms, 10)
        _check_at_least("timeout_ms", self.timeout_ms, 1)

    @staticmethod
    def from_mapping(given: Mapping[str, Any]) -> Behavior:
        """Make it from a mapping, as `command_behavior` is written. Raises ConfigError."""
        known = [f.name for f in fields(Behavior)]
        for key in given:
            if key not in known:
                hint = suggest_names(key, known, f"known: {', '.join(known)}")
                raise ConfigError(f"command_behavior: unknown key `{key}`", hint=hint)
        return Behavior(**given)


def _check_at_least(name: str, value: object, low: int) -> None:
    if value is None:
        return
    # A bool is an int for Python, but not a number for a reader.
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name} = {value!r}: must be a whole number, at least {low}")


@frozen
class CommandOptions:
    """Options of one set of command tools.

    Attributes:
        root: Commands start there or below; a path of the workspace.
        cwd: Where commands start if the call does not say; a path of the workspace.
        max_inline_bytes: The most of each output that a result shows.
        allow_argv_prefixes: A text is a program, a list the first words; None restricts nothing, an
            empty list allows nothing.
        command_policy: A function that decides, see `verdict.py`.
        output_format: `json` (text), `value` (the record itself) or `display` (readable text).
        lifecycle: Adds poll, wait and kill.
        names, namespace: The tools' names in the catalog, so that results name existing readers.
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
        _check_at_least("max_inline_bytes", self.max_inline_bytes, 0)
        if self.command_policy is not None:
            check_callback("command_policy", self.command_policy, ("request", "args"))
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
        return tuple(
            (prefix,) if isinstance(prefix, str) else tuple(prefix)
            for prefix in self.allow_argv_prefixes
        )

    def catalog_name(self, tool: str) -> str:
        """Return the name of a tool of this set in the catalog."""
        name = self.names.get(tool, tool)
        return f"{self.namespace}::{name}" if self.namespace else name


def find_prefix_violation(
    argv: Sequence[str],
    analysis: CommandAnalysis,
    prefixes: tuple[tuple[str, ...], ...],
    *,
    shell: bool,
) -> str:
    """Return why a command does not begin with one of the prefixes; empty if it does.

    In a shell every part must: behind pipes, in substitutions, in the text of `sh -c`. What a list
    of words could not do is refused as well: writing a file by a redirect, setting a variable.
    """
    if not shell and not _has_prefix(tuple(argv), prefixes):
        return f"`{argv[0]}` with these words is not among the allowed commands"
    if analysis.problem or analysis.over_limit:
        return f"the command cannot be judged: {analysis.problem or analysis.over_limit}"
    if shell and not analysis.parts:
        return "the command names no program"
    for part in analysis.parts:
        if part.words and not _has_prefix(part.argv, prefixes):
            return f"`{part.raw[:200]}` is not among the allowed commands"
        if part.assignments:
            return f"`{part.assignments[0][:200]}` sets a variable"
        for redirect in part.redirects:
            if redirect.write and redirect.target.text != "/dev/null":
                return f"`{part.raw[:200]}` writes a file by a redirect"
    return ""


def _has_prefix(words: Sequence[str | None], prefixes: tuple[tuple[str, ...], ...]) -> bool:
    return any(tuple(words[: len(prefix)]) == prefix for prefix in prefixes)
