"""Runs git for the tools: in the sandbox of the session, as `run_command` would.

What commands may not do to a repository git may not do here either: hooks, configuration and
protected names are covered by the sandbox, the identity is the one that commands have, and hooks of
the repository run confined or not at all (`sandbox.git_hooks`).

Where no sandbox confines commands, git only reads, and meets no configuration of the repository
(`unconfined_reads`).

A sandbox takes longer to start than git to read something, so all gits of an operation share one
(`git_shell`), but for those that may start a program of the repository: hooks, filters, drivers.

Decisions about files and commits are made by what git prints, so an output that does not fit is an
error here, never a shorter result, unless the caller asks for its beginning.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import TrustedProgram
from ferrule.permissions.repositories import FoundRepository, Repository, find_repository
from ferrule.sandbox.command import (
    Capture,
    Command,
    LandlockAccess,
    TrustedCommand,
)
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.git_hooks import list_hooks
from ferrule.toolkits.commands.policy import CommandPolicy
from ferrule.toolkits.commands.session_commands import SessionCommands
from ferrule.toolkits.commands.start import (
    find_command_writable,
    get_sandbox,
    has_confinement,
    record_confinement,
)
from ferrule.toolkits.process import find_installed, run_process
from ferrule.tools.context import Context

from .attempt import Attempt, GitResult
from .git_shell import MAX_INPUT, EndedGit, GitShell
from .receipt import GitOptions
from .refs import check_revision
from .settings import names_programs
from .unconfined_reads import open_unconfigured

MAX_SECONDS = 120.0
"""Time for one operation, in seconds."""
MAX_OUTPUT = 32 * 1024 * 1024
"""Bytes that one git may print."""
MAX_REFERENCES = 2000
"""Most references that are compared before and after."""
_WRITE_FILES = ("switch", "merge", "rebase", "stash")
_LOCKED = compile_lazily(r"Unable to create '(?P<path>[^']*\.lock)': File exists")
_MOVED = compile_lazily(r"cannot lock ref '[^']*'|Another git process seems to be running")

_SETTINGS = {
    "color.ui": "false",
    "commit.gpgSign": "false",
    "core.attributesFile": os.devnull,
    "core.commentChar": "#",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.quotePath": "false",
    "diff.mnemonicPrefix": "false",
    "diff.noprefix": "false",
    "gc.auto": "0",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "merge.verifySignatures": "false",
    "protocol.allow": "never",
    "rebase.autoSquash": "false",
    "rebase.autoStash": "false",
    "rebase.updateRefs": "false",
    "rerere.enabled": "false",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "tag.gpgSign": "false",
    "user.useConfigOnly": "true",
}
"""What every git gets: results that can be read, and nothing that asks or goes on by itself."""
_READING = {
    "core.hooksPath": os.devnull,
    "diff.autoRefreshIndex": "false",
    "diff.ignoreSubmodules": "all",
}
"""What a git gets besides that changes nothing: no hook runs for it."""
_VARIABLES = {
    "LC_ALL": "C.UTF-8",
    "GIT_ASKPASS": "false",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "false",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_TERMINAL_PROMPT": "0",
}


@dataclass(slots=True)
class GitRunner:
    """Git in the repository of a workspace.

    `prefix` is the workspace below the work tree, with a slash at its end: empty where they are the
    same. Names that git counts from the work tree begin with it. `sandbox` is None for a git that
    only reads. `deadline` is the loop's time at which it is ended. `can_share`: its gits start no
    program of the repository, apart from hooks, so that one shell may run them.
    """

    program: TrustedProgram
    directory: int
    environment: Mapping[str, str]
    workspace: Workspace
    repository: Repository
    prefix: str
    deadline: float
    context: Context
    sandbox: Sandbox | None = None
    wall: LandlockAccess | None = None
    results: list[GitResult] = field(default_factory=list[GitResult])
    """The runs so far, for receipts."""
    can_share: bool = True
    references_after: dict[str, str] | None = None
    """The references after the operation, if it has read them itself."""
    _shell: GitShell | None = None

    async def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        keep: int = 0,
        patterns: bool = False,
        hooks: bool = False,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        noted: bool = True,
    ) -> GitResult:
        """Run git.

        Args:
            arguments: The subcommand and its arguments.
            stdin: Its input.
            keep: Bytes of output after which it is ended; 0: more than `MAX_OUTPUT` is an error.
            patterns: Whether paths are patterns with magic; else they are names.
            hooks: Whether it is the one that changes something, so that hooks run.
            settings: Configuration for this run.
            variables: Variables for this run.
            noted: Whether it is one of the operation's, for receipts.

        Raises:
            ToolFailed: It takes too long or prints too much.
        """
        # Hooks inherit what is said of paths: git passes it on.
        names = () if patterns or hooks else ("--literal-pathspecs",)
        argv = ("git", "--no-pager", "--no-optional-locks", *names, *arguments)
        environment = self._make_variables(hooks=hooks, settings=settings)
        limit = keep or MAX_OUTPUT
        if self.sandbox is None or not self._may_share(stdin, settings, variables, hooks=hooks):
            ended = await self._run_alone(argv, {**environment, **(variables or {})}, stdin, limit)
        else:
            shell = self._find_shell(self.sandbox)
            seconds = self._count_seconds()
            ended = await shell.run(argv, environment, stdin, limit=limit, seconds=seconds)
        result = self._make_result(argv, ended, keep)
        if noted:
            self.results.append(result)
        return result

    def _may_share(
        self,
        stdin: bytes,
        settings: Mapping[str, str] | None,
        variables: Mapping[str, str] | None,
        *,
        hooks: bool,
    ) -> bool:
        """Return whether a git runs in the shell of the operation; the parameters are `run`'s."""
        may_run_hooks = hooks and bool(list_hooks(self.repository))
        is_special = bool(settings or variables) or len(stdin) > MAX_INPUT
        return self.can_share and not may_run_hooks and not is_special

    def _make_variables(
        self, *, hooks: bool, settings: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the variables of a git; `hooks` and `settings` are those of `run`."""
        given = {**_SETTINGS, **({} if hooks else _READING), **(settings or {})}
        personal = {} if hooks else {"GIT_CONFIG_GLOBAL": os.devnull}
        return {**self.environment, **personal, **_configure(given)}

    def _find_shell(self, sandbox: Sandbox) -> GitShell:
        """Return the shell of this operation, another one if the one before has ended."""
        if self._shell is None or self._shell.is_over:
            self._shell = GitShell(
                sandbox,
                self.program,
                self.directory,
                self._make_variables(hooks=False),
                self.context.identity,
            )
        return self._shell

    async def close(self) -> None:
        """End the shell, if there is one: nothing runs in the sandbox then."""
        if self._shell is not None:
            shell = self._shell
            self._shell = None
            await shell.close()

    def _count_seconds(self) -> float:
        return max(0.1, self.deadline - asyncio.get_running_loop().time())

    def _make_result(self, argv: tuple[str, ...], ended: EndedGit, keep: int) -> GitResult:
        arguments = argv[argv.index("--no-optional-locks") + 1 :]
        if arguments[0] == "--literal-pathspecs":
            arguments = arguments[1:]
        if ended.timed_out:
            message = f"`git {arguments[0]}` was ended: the time for it was over"
            if arguments[0] in _WRITE_FILES:
                message += "; files that it had changed by then stay changed: look at `git_status`"
            raise ToolFailed(ErrorType.TIMEOUT, message)
        if ended.stopped_by_sink and not keep:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"`git {arguments[0]}` printed more than {MAX_OUTPUT} bytes; ask for less, or name "
                f"paths",
            )
        complaint = ended.complaint
        if "GIT_DIR" in self.environment:
            complaint = complaint.replace(self.environment["GIT_DIR"], ".git")
        code = 0 if ended.stopped_by_sink else ended.code
        output = ended.output[: keep or MAX_OUTPUT]
        return GitResult(argv, code, output, complaint, ended.hooks, ended.stopped_by_sink)

    async def _run_alone(
        self, argv: tuple[str, ...], environment: Mapping[str, str], stdin: bytes, limit: int
    ) -> EndedGit:
        """Run a git in a sandbox of its own; where there is none, behind Landlock."""
        output = bytearray()
        errors = Capture(8192, 0)

        def take(data: bytes) -> bool:
            output.extend(data)
            return len(output) <= limit

        seconds = self._count_seconds()
        what = (self.directory, environment, take, errors, stdin, seconds)
        if self.sandbox is None:
            ran = await run_process(TrustedCommand(argv, self.program, *what, landlock=self.wall))
        else:
            ran = await self.sandbox.run(
                Command(argv, self.program, *what, identity=self.context.identity)
            )
        return EndedGit.of(ran, bytes(output), errors.text())

    async def run_checked(self, *arguments: str, stdin: bytes = b"") -> GitResult:
        """Run git, which has to succeed. Raises ToolFailed(io_error) with its complaint."""
        ran = await self.run(*arguments, stdin=stdin)
        if ran.code:
            raise make_git_error(f"`git {arguments[0]}` failed", ran)
        return ran

    async def find_commit(self, name: str, *, noted: bool = True) -> str | None:
        """Return the id of the commit that a name stands for, or None.

        The name reaches git only on its standard input. `noted` is that of `run`.
        """
        ran = await self.run(
            "cat-file",
            "--batch-check=%(objectname) %(objecttype)",
            stdin=f"{name}^{{commit}}\n".encode(),
            noted=noted,
        )
        found = re.fullmatch(r"([0-9a-f]{40,64}) commit\n", ran.text)
        return found[1] if found else None

    async def resolve_commit(self, name: str, parameter: str = "rev") -> str:
        """Return the id of a commit as a model names it.

        Raises:
            ToolFailed: It is not a name, or there is no such commit.
        """
        check_revision(name, parameter)
        found = await self.find_commit(name)
        if found is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`{parameter}` = `{name}` is not a commit of this repository; "
                "`git_log` lists them",
            )
        return found

    async def find_head_tree(self) -> str:
        """Return `HEAD`, or the id of the empty tree if there is no commit yet: for comparisons."""
        if await self.find_commit("HEAD"):
            return "HEAD"
        empty_tree = await self.run_checked("hash-object", "-t", "tree", "--stdin")
        return empty_tree.text.strip()

    async def read_references(self) -> dict[str, str]:
        """Return ids by full name, `HEAD` among them; of a branch without commits its name."""
        ran = await self.run(
            "for-each-ref",
            f"--count={MAX_REFERENCES}",
            "--format=%(HEAD)%(objectname) %(refname)",
            noted=False,
        )
        found: dict[str, str] = {}
        head = ""
        for line in ran.text.splitlines():
            identifier, _, name = line[1:].partition(" ")
            found[name] = identifier
            if line.startswith("*"):
                head = identifier
        if not head:
            head = await self.find_commit("HEAD", noted=False)
            head = head or await self._find_unborn_branch()
        return {"HEAD": head, **found}

    async def _find_unborn_branch(self) -> str:
        symbolic = await self.run("symbolic-ref", "--quiet", "HEAD", noted=False)
        return f"ref: {symbolic.text.strip()}"

    def name_in_workspace(self, name: str) -> str | None:
        """Return the name in the workspace of what git counts from the work tree.

        None if it lies beside the workspace.
        """
        return name.removeprefix(self.prefix) if name.startswith(self.prefix) else None


def _configure(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as variables, see git-config(1), "ENVIRONMENT"."""
    found = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        found[f"GIT_CONFIG_KEY_{number}"] = key
        found[f"GIT_CONFIG_VALUE_{number}"] = value
    return found


def make_git_error(what: str, ran: GitResult) -> ToolFailed:
    """Return the error for a git that failed. A lock of another git is worth another try.

    Args:
        what: What did not happen, as the beginning of the message.
        ran: The run.
    """
    reason = ran.complaint or ran.text.strip() or f"exit status {ran.code}"
    locked = _LOCKED.search(reason)
    if locked:
        name = os.path.basename(locked["path"])  # noqa: PTH119  text that git printed
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"{what}: another git is at work in this repository, or one broke off (`{name}` is "
            f"there); try again, or ask the person to remove `{locked['path']}`",
            transient=True,
        )
    if _MOVED.search(reason):
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"{what}: another git changed the repository meanwhile; look at `git_status` and try "
            f"again: {reason[:1000]}",
            transient=True,
        )
    return ToolFailed(ErrorType.IO_ERROR, f"{what}: {reason[:2000]}")


def find_git(context: Context) -> TrustedProgram:
    """Return git. Raises ToolFailed if there is none where commands cannot write."""
    return find_installed(["git"], find_command_writable(context), "`apt install git`")


async def find_sandbox(context: Context) -> Sandbox | None:
    """Return what confines the commands of this run; None if nothing does."""
    given = context.resources.get(Sandbox)
    commands = SessionCommands.from_context(context)
    if isinstance(given, Sandbox):
        found: Sandbox | None = given
    elif has_confinement(context):
        found = await get_sandbox(context, commands)
    else:
        # A person may have agreed to less than is required.
        found = commands.sandbox.current
    return found if found is not None and found.protections().backend != "none" else None


async def _look_at_nothing(git: GitRunner) -> None:
    return


@asynccontextmanager
async def open_git(
    context: Context,
    *,
    changes: str = "",
    look: Callable[[GitRunner], Awaitable[None]] = _look_at_nothing,
) -> AsyncGenerator[GitRunner]:
    """Yield git on the repository of the workspace, inside an `async with` block.

    Args:
        context: The context of the call.
        changes: The operation, if it changes something: then the references are read before and
            after.
        look: Reads what else the operation has to know before; at the same time as the references.

    Raises:
        ToolFailed: There is no repository that may be used, or nothing confines what git would
            start.
    """
    workspace = context.resource(Workspace)
    repository = _find_repository(workspace)
    sandbox = await find_sandbox(context)
    if sandbox is None and changes:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`{changes}` was not run: no sandbox confines commands here, so programs that the "
            "repository names would run with the person's rights; ask the person to run git, or "
            "to have a sandbox (`ferrule doctor` says what is missing)",
        )
    if sandbox is not None and sandbox.policy.preview and changes:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`{changes}` was not run: the commands of this run are previews, which change "
            "nothing; `run_command` shows what git would change",
        )
    with _open(workspace, repository, sandbox, context) as git:
        try:
            if not changes:
                yield git
                return
            attempt = Attempt.from_context(context)
            references, _ = await asyncio.gather(git.read_references(), look(git))
            attempt.begin(references)
            try:
                yield git
            except ToolFailed as failure:
                if failure.error_type is not ErrorType.TIMEOUT:
                    attempt.end(await git.read_references())
                raise
            attempt.end(git.references_after or await git.read_references())
        finally:
            await git.close()


@contextmanager
def _open(
    workspace: Workspace, repository: Repository, sandbox: Sandbox | None, context: Context
) -> Generator[GitRunner]:
    program = find_git(context)
    below = os.path.relpath(workspace.root, repository.work_tree)
    prefix = "" if below == "." else f"{below}/"
    seconds = min(MAX_SECONDS, 0.9 * (context.deadline or MAX_SECONDS))
    deadline = asyncio.get_running_loop().time() + seconds
    with ExitStack() as stack:
        root = workspace.open_descriptor("")
        stack.callback(os.close, root)
        wall = None
        if sandbox is None:
            shown = stack.enter_context(open_unconfigured(workspace, repository, program))
            environment = {**shown.environment, **_VARIABLES}
            wall = shown.wall
        else:
            record_confinement(context, sandbox, program)
            environment = _make_environment(context)
        yield GitRunner(
            program,
            root,
            environment,
            workspace,
            repository,
            prefix,
            deadline,
            context,
            sandbox,
            wall,
            Attempt.from_context(context).results,
            can_share=not names_programs(repository),
        )


def _make_environment(context: Context) -> dict[str, str]:
    """Return the variables of a confined git: those of commands, and who commits."""
    allowed = CommandPolicy.from_context(context).allow_env
    passed = filter_environment(os.environ, add=allowed).values
    values = {name: value for name, value in passed.items() if not name.startswith("GIT_")}
    author = GitOptions.from_context(context).author
    if author is not None:
        for role in ("AUTHOR", "COMMITTER"):
            values[f"GIT_{role}_NAME"], values[f"GIT_{role}_EMAIL"] = author
    if not os.environ.get("HOME", "").startswith("/"):
        # Of a relative home git would read what the workspace has.
        values["GIT_CONFIG_GLOBAL"] = os.devnull
    return {**values, **_VARIABLES}


def _find_repository(workspace: Workspace) -> Repository:
    found: FoundRepository = find_repository(workspace.root)
    if found.repository is not None:
        return found.repository
    if found.problem:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"git was not run: {found.problem}; ask the person to look, or to work in a full clone",
        )
    raise ToolFailed(
        ErrorType.NOT_FOUND,
        "the workspace is not a git repository: there is no `.git` in it or above it",
    )
