"""Finds the simple commands of a shell text, wherever they are, and what they would do."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.command_variables import explain_meaning
from ferrule.permissions.protected_names import ProtectedNames

from .bash_builtins import FILLS_COMMAND, find_callbacks, find_doubts, find_shell_texts
from .bash_parser import (
    AndOr,
    Assignment,
    CannotParse,
    Compound,
    Node,
    ParsedWord,
    Parser,
    Pipeline,
    Redirection,
    Simple,
    TooDeep,
)
from .hazards import find_hazards
from .path_arguments import is_device, judge_paths
from .program_facts import PLAIN, PRINTERS, SHELLS, program_name, runs_arguments, word_set
from .risk_labels import FETCHERS, RUN_INPUT, labels_of
from .shell_words import UNKNOWN, Word, literal_word
from .syntax import MAX_BYTES, MAX_PARTS, CommandAnalysis, CommandPart, Redirect
from .working_directory import States, WorkingDirectory, absolute_folders
from .wrappers import find_environment_doubts, runs_unknown_program, strip_wrappers


class _OverLimit(Exception):
    pass


# Whitespace that shells and people read differently, and characters that hide text from people.
_STRANGE = compile_lazily(
    "[\x00-\x08\x0b-\x1f\x7f\x85\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_NOT_IN_SH = compile_lazily(
    r"\$['\"]|\[\[|\(\(|[<>]\(|&>|<<<|\|&|;;?&|>&[^0-9-]|\+?=\(|\+=|\]=|\{[^}]*(?:,|\.\.)"
    r"|\b(?:function|select|coproc|time|source|declare|typeset|let|shopt|mapfile|readarray|enable|builtin)\b"
)
"""Syntax that other shells read differently, or run as a program of that name."""

_OTHER_GRAMMAR = word_set("zsh fish csh tcsh")
"""Shells whose grammar is not that of `sh`."""

MAX_SHELLS = 4
"""The most shells that are started within each other."""


class CommandWalk:
    """Walks the commands of one text and collects its parts; `conclude` judges them."""

    def __init__(self, root: str, home: str, start: str = "") -> None:
        self.root = root
        self.start = posixpath.normpath(posixpath.join(root, start)) if start else root
        self.home = home
        self.parts: list[CommandPart] = []
        self.loose: list[Word] = []
        self.doubts: list[str] = []
        self.file_doubts: set[str] = set()
        self.value_doubts: set[str] = set()
        self.labels: set[str] = set()
        self.problem: str | None = None
        self.shells = 0
        """The number of shells around the text that is walked now."""
        self.folders = WorkingDirectory()
        self.renamed = False

    # ---- entry points

    def walk_text(self, text: str) -> str | None:
        """Walk shell text. Return why it exceeds a limit, or None."""
        if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
            return f"it is longer than {MAX_BYTES} bytes"
        if not text:
            self.problem = "it is empty"
            return None
        try:
            self._text(text)
        except _OverLimit as error:
            return str(error)
        except (TooDeep, RecursionError):
            return "it is nested too deep"
        return None

    def walk_arguments(self, text: str, words: list[str]) -> str | None:
        """Walk an argument list, and the shell text in it (`sh -c`). Return as `read` does."""
        if len(text.encode("utf-8", "replace")) > MAX_BYTES:
            return f"it is longer than {MAX_BYTES} bytes"
        if not words or not words[0]:
            self.problem = "it names no program"
            return None
        if any("\0" in word for word in words):
            self.problem = "it holds a NUL character"
        try:
            self._add(
                CommandPart(
                    text, tuple(literal_word(re.sub("[\\0-\\3]", "", word)) for word in words)
                )
            )
        except _OverLimit as error:
            return str(error)
        except (TooDeep, RecursionError):
            return "it is nested too deep"
        return None

    def _text(self, text: str) -> None:
        strange = _STRANGE.search(text)
        if strange:
            character = f"U+{ord(strange.group()):04X}"
            self.problem = (
                f"it holds the character {character}, which is invisible or read differently by "
                "shells"
            )
        parser = Parser(text, self.home, self.start)
        try:
            script = parser.script()
        except CannotParse as error:
            self.problem = (
                self.problem or f"it cannot be parsed for sure as a shell command: {error}"
            )
            script = tuple(parser.done)
            # The rest may still name files that no tool may touch.
            pieces = re.split(r"[\s;&|()<>'\"`$\\]+", text)
            self.loose += [
                literal_word(re.sub("[\\0-\\3]", "", piece)) for piece in pieces if piece
            ]
        self.visit_all(script, ())

    def conclude(
        self, text: str, over: str | None, names: ProtectedNames | None
    ) -> CommandAnalysis:
        """Judge what was collected.

        Args:
            text: The command line.
            over: Why it exceeds a limit, or None.
            names: Names that no tool may touch; None for no such names.
        """
        self._apply_folders(text)
        for part in self.parts:
            for redirect in part.redirects:
                self._judge_redirect(redirect)
        findings, doubts = judge_paths(
            self.parts, self.loose, self.root, self.home, names, start=self.start
        )
        labels = self.labels | {finding.label for finding in findings if finding.label}
        return CommandAnalysis(
            text=text,
            parts=tuple(self.parts),
            loose=tuple(self.loose),
            labels=frozenset(labels),
            problem=self.problem,
            over_limit=over,
            doubts=tuple(dict.fromkeys((*self.doubts, *doubts))),
            file_doubts=frozenset((*self.file_doubts, *doubts)),
            value_doubts=frozenset(self.value_doubts),
            findings=tuple(findings),
        )

    def _apply_folders(self, text: str) -> None:
        """Apply to all parts what is only known at the end: aliases, and where they start."""
        if self.renamed or self.folders.is_lost:
            for index, part in enumerate(self.parts):
                folders = None if self.folders.is_lost else part.folders
                self.parts[index] = replace(part, folders=folders, renamed=self.renamed)
        if not self.folders.is_changed and self.start == self.root:
            return
        for index, part in enumerate(self.parts):
            # Hooks and configuration of another folder would run; in a loop also for a `git` that
            # comes before the `cd`.
            if part.wrapped_program == "git" and not self._starts_in_root(part):
                self.parts[index] = replace(part, hazards=(*part.hazards, ""))
        if self.folders.is_changed and re.search(r"\$\{?PWD", text):
            self._doubt_files("which folder `$PWD` is will be known only when it runs")

    def _doubt_values(self, why: str) -> None:
        """Note a doubt about nothing but values that only come when the command runs."""
        self.doubts.append(why)
        self.value_doubts.add(why)

    def _doubt_files(self, why: str) -> None:
        """Note a doubt about nothing but which files the command touches."""
        self.doubts.append(why)
        self.file_doubts.add(why)

    def _starts_in_root(self, part: CommandPart) -> bool:
        """Return whether a command certainly starts in the workspace itself."""
        root = self.root or "/."
        return part.folders is not None and absolute_folders(part, self.start or root, []) == [root]

    def _judge_redirect(self, redirect: Redirect) -> None:
        target = redirect.target
        if not target.is_known:
            self._doubt_files(f"which file `{target.raw}` is will be known only when it runs")
        if target.text.startswith(("/dev/tcp/", "/dev/udp/")):
            self.labels.add("network_exfil")
        if redirect.write and not is_device(target.text):
            self.labels.add("write_intent")

    # ---- the commands

    def visit_all(self, script: Iterable[Node], fed_by: tuple[str, ...]) -> None:
        """Walk commands in their order."""
        for node in script:
            self.visit(node, fed_by)
            self.folders.step()

    def visit(self, node: Node, fed_by: tuple[str, ...]) -> None:
        """Walk one command; `fed_by` are the programs whose output it reads."""
        if isinstance(node, Pipeline):
            with self.folders.within("pipeline"):
                self._pipeline(node, fed_by)
        elif isinstance(node, AndOr):
            self._and_or(node, fed_by)
        elif isinstance(node, Compound):
            self.renamed = self.renamed or node.kind == "function"
            with self.folders.within(node.kind):
                self._compound(node, fed_by)
        else:
            self._simple(node, fed_by)

    def _and_or(self, node: AndOr, fed_by: tuple[str, ...]) -> None:
        """Visit `a && b` or `a || b`: the second starts where the first succeeded or failed."""
        self.visit(node.commands[0], fed_by)
        for operator, command in zip(node.operators, node.commands[1:], strict=True):
            before = self.folders.branch(operator == "||")
            self.visit(command, fed_by)
            self.folders.join(before)

    def _pipeline(self, node: Pipeline, fed_by: tuple[str, ...]) -> None:
        for command in node.commands:
            first = len(self.parts)
            self.visit(command, fed_by)
            fed_by = (*fed_by, *(part.wrapped_program or "?" for part in self.parts[first:]))

    def _compound(self, node: Compound, fed_by: tuple[str, ...]) -> None:
        # The shell opens its files before a `cd` in it.
        starts_in = self.folders.if_succeeded
        self._note_evaluation(node.evaluated)
        for reading in (*node.loose, *node.patterns):
            self._inside(reading)
        self.loose += [reading.word for reading in node.loose]
        if node.sets:
            self._note_setting(node.sets)
        opened, fed = self._collect_redirections(node.redirections)
        if fed or any(not redirect.write for redirect in opened):
            fed_by = (*fed_by, "?")
        for script in node.scripts:
            self.visit_all(script, fed_by)
        if node.kind in ("test", "arithmetic"):
            self._add(
                CommandPart(
                    node.raw, (literal_word(node.raw[:2]),), redirects=tuple(opened), fed_by=fed_by
                )
            )
        elif opened:
            self._add(CommandPart(node.raw, redirects=tuple(opened)), starts_in)

    def _simple(self, node: Simple, fed_by: tuple[str, ...]) -> None:
        first = len(self.parts)
        for assignment in node.assignments:
            self._assignment(assignment)
        for reading in node.words:
            self._inside(reading)
        started = {part.wrapped_program for part in self.parts[first:]}
        opened, fed = self._collect_redirections(node.redirections)
        part = CommandPart(
            node.raw,
            tuple(reading.word for reading in node.words),
            tuple(assignment.raw for assignment in node.assignments),
            tuple(opened),
            fed_by,
        )
        part = self._add(part)
        if started & FETCHERS and part.wrapped_program in RUN_INPUT:
            self._note_download_run(part)
        self._fed(part, fed, started)

    def _inside(self, reading: ParsedWord) -> None:
        self._note_evaluation(reading.evaluated)
        for name in reading.sets:
            self._note_setting(name)
        for script in reading.inside:
            with self.folders.within("substitution"):
                self.visit_all(script, ())

    def _note_evaluation(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._doubt_values(f"`{text[:80]}` evaluates what a variable holds")

    def _assignment(self, assignment: Assignment) -> None:
        self._note_evaluation(assignment.evaluated)
        for value in assignment.values:
            self._inside(value)
            self.loose.append(value.word)
        # Rules see an assignment as part of its command.
        self._note_setting(assignment.name, is_spelled_out=True)

    def _note_setting(self, name: str, *, is_spelled_out: bool = False) -> None:
        """Note that the line sets a variable, in whatever way."""
        if why := explain_meaning(name, is_spelled_out=is_spelled_out):
            self.doubts.append(why)

    def _collect_redirections(
        self, redirections: Sequence[Redirection]
    ) -> tuple[list[Redirect], list[Word]]:
        """Return the files that redirections open, and the texts that they feed."""
        opened: list[Redirect] = []
        fed: list[Word] = []
        for redirection in redirections:
            self._note_evaluation(redirection.evaluated)
            if redirection.sets:
                self._note_setting(redirection.sets)
            for reading in (redirection.file, redirection.fed):
                if reading is not None:
                    self._inside(reading)
            if redirection.file is not None and not _is_process(redirection.file.word):
                opened.append(Redirect(redirection.file.word, redirection.write))
            if redirection.fed is not None and redirection.stdin:
                fed.append(redirection.fed.word)
        return opened, fed

    # ---- one part

    def _add(self, part: CommandPart, starts_in: States | None = None) -> CommandPart:
        stripped = strip_wrappers(part.words)
        words = [word.text for word in stripped]
        if part.words and (
            runs_unknown_program(part.words) or (stripped and not stripped[0].is_known)
        ):
            self.doubts.append("which program runs is known only when it runs")
        known = [word for word in words if UNKNOWN not in word]
        part = replace(
            part,
            words_after_wrappers=stripped,
            hazards=(*find_hazards(known), *_unspellable(stripped)),
            folders=self.folders.if_succeeded if starts_in is None else starts_in,
        )
        self.parts.append(part)
        self.renamed = self.renamed or part.wrapped_program == "alias"
        self.folders.follow(part)
        if len(self.parts) > MAX_PARTS:
            raise _OverLimit(f"it holds more than {MAX_PARTS} commands")
        self.labels.update(labels_of(words))
        if part.wrapped_program in RUN_INPUT and FETCHERS & set(part.fed_by):
            self._note_download_run(part)
        self._judge_what_is_started(part)
        return part

    def _note_download_run(self, part: CommandPart) -> None:
        self.labels.add("curl_pipe_shell")
        self.doubts.append(f"`{part.wrapped_program}` would run what was just fetched")

    def _judge_what_is_started(self, part: CommandPart) -> None:
        """Judge what a runner starts, the text given to a shell, and what built-ins evaluate."""
        words = part.words
        runner = runs_arguments([word.text for word in words])
        if runner:
            for index in range(1, len(words)):
                self.labels.update(labels_of([word.text for word in words[index:]]))
                if FETCHERS & set(part.fed_by) and program_name(words[index].text) in SHELLS:
                    self._note_download_run(part)
        for index, word in enumerate(words):
            if index and not runner:
                break
            if program_name(word.text) in SHELLS:
                self.doubts += find_environment_doubts(words[:index])
                self._shell(words[index:], part)
            if word.is_known:
                doubts = list(find_doubts(words[index:]))
                self.doubts += doubts
                self.value_doubts.update({FILLS_COMMAND}.intersection(doubts))
                for text in find_callbacks(words[index:]):
                    self._inner_text(text)

    def _shell(self, words: Sequence[Word], part: CommandPart) -> None:
        for text in find_shell_texts(words):
            self._dialect(program_name(words[0].text), text)
            self._inner_text(text)

    def _fed(self, part: CommandPart, fed: Sequence[Word], started: set[str]) -> None:
        """Text that a shell, or `source`, is given on its input."""
        reads = [word for word in part.words if program_name(word.text) in SHELLS]
        if not reads and part.wrapped_program not in ("source", "."):
            return
        for text in fed:
            self._dialect(program_name(reads[0].text) if reads else "bash", text)
            self._inner_text(text)
        runs = part.words_after_wrappers[1:2]
        if reads:
            runs = find_shell_texts(part.words[part.words.index(reads[0]) :], also_files=True)
        known = all(
            word.is_known and not word.text.startswith(("/dev/", "/proc/")) for word in runs
        )
        if not known or not (fed or runs):
            self.doubts.append(f"what `{part.wrapped_program}` runs is known only when it runs")

    def _dialect(self, shell: str, word: Word) -> None:
        r"""Doubt text for another shell that it may read differently from bash.

        `$'a\'; b; #'` is one word in bash, and two commands in `sh`.
        """
        is_bash = shell in ("bash", "rbash")
        if shell in _OTHER_GRAMMAR or (not is_bash and _NOT_IN_SH.search(word.text)):
            self.doubts.append(f"`{shell}` may read its text otherwise than it is judged here")

    def _inner_text(self, word: Word) -> None:
        if not word.text.strip():
            return
        if not word.is_known:
            self.doubts.append("the text given to a shell is known only when it runs")
        self.shells += 1
        if self.shells > MAX_SHELLS:
            raise _OverLimit("shells are started within shells too deep")
        with self.folders.within("text"):
            self._text(re.sub("[\\0-\\3]", "x", word.text))
        self.shells -= 1


def _is_process(word: Word) -> bool:
    """Return whether a word is only `<(command)`."""
    return word.text == UNKNOWN and word.raw.startswith(("<(", ">("))


def _unspellable(words: tuple[Word, ...]) -> Iterator[str]:
    """Yield an empty hazard for each word that no wildcard may cover."""
    program = program_name(words[0].text) if words else ""
    for word in words[1:]:
        unknown = UNKNOWN in word.text or word.splits
        if (unknown and program not in PRINTERS) or (word.may_be_flag and program not in PLAIN):
            yield ""
