"""One pass over the syntax tree of a shell command: finds the simple commands, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from .command_hazards import hazards
from .evaluation import runs_values
from .folders import FOLLOWED, Folders, comes_back
from .hazards import PLAIN, RUNNERS, SHELLS, TALKERS, base, listed
from .labels import FETCHERS, RUN_INPUT, labels_of
from .named_paths import judge_paths
from .parts import MAX_BYTES, MAX_DEPTH, MAX_PARTS, Analysis, Part, Redirect
from .reserved import Names
from .tree_check import misread
from .words import UNKNOWN, Word, literal, read_word
from .wrappers import strip

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree


class _OverLimit(Exception):
    pass


@cache
def _language() -> Language:
    import tree_sitter  # heavy: loaded with the first command
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _parse(source: bytes) -> Tree:
    from tree_sitter import Parser

    return Parser(_language()).parse(source)  # one per call: a parser is not for two threads


# Whitespace that shells and the grammar do not agree on, and characters that hide text from a person.
_STRANGE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f\\x85\\xa0\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ufeff"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)
_CONTINUED = re.compile(r"(\\+)\n")
_NOT_IN_SH = re.compile(r"\$'|\[\[")
_OF_THEIR_OWN = listed("zsh fish csh tcsh")
"""Shells whose grammar is not that of `sh`."""
_BRACE = re.compile(r"(\{[0-9]*(?:\.\.[0-9]*)?)[^\x00-\xff]")


class Walk:
    """One pass over a syntax tree. Collects; `conclude` judges."""

    def __init__(self, root: str, home: str) -> None:
        self.root, self.home = root, home
        self.parts: list[Part] = []
        self.loose: list[Word] = []
        self.doubts: list[str] = []
        self.labels: set[str] = set()
        self.problem: str | None = None
        self.depth = 0
        self.folders = Folders()
        self.renamed = False

    # ---- entrances

    def read(self, text: str) -> str | None:
        """Walk shell text. The answer is why it is over a limit, or None."""
        if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
            return f"it is longer than {MAX_BYTES} bytes"
        if not text:
            self.problem = "it is empty"
            return None
        try:
            self._text(text)
        except _OverLimit as error:
            return str(error)
        return None

    def read_argv(self, text: str, words: list[str]) -> str | None:
        """Walk an argument list; `sh -c` in it is shell text again."""
        if len(text.encode("utf-8", "replace")) > MAX_BYTES:
            return f"it is longer than {MAX_BYTES} bytes"
        if not words or not words[0]:
            self.problem = "it names no program"
            return None
        if any("\0" in word for word in words):
            self.problem = "it holds a NUL character"
        try:
            self._add(Part(text, tuple(literal(re.sub("[\\0-\\3]", "", word)) for word in words)))
        except _OverLimit as error:
            return str(error)
        return None

    def _text(self, text: str) -> None:
        if strange := _STRANGE.search(text):
            self.problem = f"it holds the character U+{ord(strange.group()):04X}, which is invisible or read differently by shells"
        joined = _CONTINUED.sub(lambda m: m[1][:-1] if len(m[1]) % 2 else m[0], text)
        if joined != text and "'" in text:
            self.problem = "it continues a line near single quotes"
        if _BRACE.search(joined):
            # tree-sitter-bash 0.25 takes what follows `{` for an index into a table of 384: other characters read
            # memory that is not there and end the process. It is shown another one, and a person is asked.
            self.problem = "a character that the parser cannot read stands behind `{`"
            joined = _BRACE.sub("\\1\u00e9", joined)
        source = joined.encode("utf-8", "replace")
        tree = _parse(source)
        if tree.root_node.has_error:
            self.problem = "it cannot be parsed as a shell command"
        elif why := misread(tree.root_node, source, joined):
            self.problem = f"it is not sure how a shell reads it: {why}"
        self.visit(tree.root_node, ())

    def conclude(self, text: str, over: str | None, names: Names | None) -> Analysis:
        if self.renamed or self.folders.lost:
            known = self.folders
            self.parts = [
                replace(part, folders=None if known.lost else part.folders, renamed=self.renamed)
                for part in self.parts
            ]
        if self.folders.changed:
            # Another folder's hooks and configuration would run; in a loop also for a git that stands before.
            self.parts = [
                replace(p, hazards=(*p.hazards, ""))
                if p.target == "git" and not comes_back(p, self.root)
                else p
                for p in self.parts
            ]
        for redirect in (r for part in self.parts for r in part.redirects):
            if not redirect.target.known:
                self.doubts.append(f"which file `{redirect.target.raw}` is will be known only when it runs")
            if redirect.target.text.startswith(("/dev/tcp/", "/dev/udp/")):
                self.labels.add("network_exfil")
        findings, doubts = judge_paths(self.parts, self.loose, self.root, self.home, names)
        labels = self.labels | {finding.label for finding in findings if finding.label}
        if any(
            r.write and not r.target.text.startswith("/dev/") for part in self.parts for r in part.redirects
        ):
            labels.add("write_intent")
        return Analysis(
            text, tuple(self.parts), tuple(self.loose), frozenset(labels), self.problem, over,
            tuple(dict.fromkeys((*self.doubts, *doubts))), tuple(findings),
        )  # fmt: skip

    # ---- the tree

    def visit(self, node: Node, fed_by: tuple[str, ...]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _OverLimit(f"it is nested more than {MAX_DEPTH} deep")
        handler = _HANDLERS.get(node.type)
        if handler is not None:
            self.renamed = self.renamed or node.type == "function_definition"
            if node.type in FOLLOWED:
                handler(self, node, fed_by)
            else:
                with self.folders.within(node.type):
                    handler(self, node, fed_by)
        elif node.type in _WORDS:
            self.loose.append(read_word(node, self.home, self.root))
            self.nested(node)
        elif node.type not in _LEAVES:
            self.problem = self.problem or f"it holds `{node.type}`, which is not understood here"
            self.each(node, fed_by)
        self.depth -= 1

    def _evaluated(self, node: Node) -> None:
        if runs_values(node.type, _source(node)):
            self.doubts.append(f"`{_source(node)[:80]}` evaluates what a variable holds")

    def each(self, node: Node, fed_by: tuple[str, ...]) -> None:
        for child in node.named_children:
            self.visit(child, fed_by)
            self.folders.step()

    def and_or(self, node: Node, fed_by: tuple[str, ...]) -> None:
        """`a && b`, `a || b`: the second starts where the first ended, well or badly."""
        left, *right = node.named_children
        self.visit(left, fed_by)
        before = self.folders.branch(any(_source(child) == "||" for child in node.children))
        for child in right:
            self.visit(child, fed_by)
        self.folders.join(before)

    def nested(self, node: Node) -> None:
        """Commands inside a word: substitutions in strings, expansions and arithmetic."""
        self._evaluated(node)
        for child in node.named_children:
            if child.type in ("command_substitution", "process_substitution"):
                self.visit(child, ())
            elif child.type not in ("string_content",):
                self.depth += 1
                if self.depth > MAX_DEPTH:
                    raise _OverLimit(f"it is nested more than {MAX_DEPTH} deep")
                self.nested(child)
                self.depth -= 1

    def container(self, node: Node, fed_by: tuple[str, ...]) -> None:
        if node.type in ("compound_statement", "c_style_for_statement", "subscript"):
            self._evaluated(node)
        self.each(node, fed_by)

    def pipeline(self, node: Node, fed_by: tuple[str, ...]) -> None:
        for child in node.named_children:
            first = len(self.parts)
            self.visit(child, fed_by)
            fed_by = (*fed_by, *(part.target or "?" for part in self.parts[first:]))

    def redirected(self, node: Node, fed_by: tuple[str, ...]) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if body is None or child.id != body.id]
        if body is not None and body.type in (
            "command",
            "declaration_command",
            "unset_command",
            "test_command",
        ):
            self.command(body, fed_by, redirects)
            return
        if body is not None:
            self.visit(body, fed_by)
        self._redirects_only(node, redirects)

    def _redirects_only(self, node: Node, redirects: list[Node]) -> None:
        opened, extra, _ = self._opened(redirects, ())
        if extra:
            # `p | q < x y`: the words belong to q, but the tree does not say so.
            self.problem = "words stand behind a redirect of more than one command"
        self._add(Part(_source(node), tuple(extra), redirects=tuple(opened)))

    def command(self, node: Node, fed_by: tuple[str, ...], redirects: Sequence[Node] = ()) -> None:
        words: list[Word] = []
        assignments: list[str] = []
        inside: list[Node] = list(redirects)
        first = len(self.parts)
        if node.type != "command":
            self._evaluated(node)
            words.append(literal(_source(node.children[0])))
        for child in node.named_children:
            if child.type == "variable_assignment" and node.type == "command":
                assignments.append(_source(child))
                self.assignment(child, ())
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                inside.append(child)
            elif node.type == "test_command":
                self.visit(child, ())
            else:
                target = child.named_children[0] if child.type == "command_name" else child
                words.append(read_word(target, self.home, self.root))
                self._whole(target)
        started = {part.target for part in self.parts[first:]}
        opened, extra, fed_text = self._opened(inside, tuple(base(w.text) for w in words[:1]))
        part = Part(_source(node), (*words, *extra), tuple(assignments), tuple(opened), fed_by)
        part = self._add(part)
        if started & FETCHERS and part.target in RUN_INPUT:
            self._fetched(part)
        for text in fed_text if part.target in SHELLS else ():
            self._dialect(part.target, text)
            self._inner_text(text)

    def _whole(self, node: Node) -> None:
        """Commands inside this word, or the word being a command itself: `$(x)`, `<(x)`."""
        if node.type in ("command_substitution", "process_substitution"):
            self.visit(node, ())
        else:
            self.nested(node)

    def _opened(
        self, nodes: Sequence[Node], owner: tuple[str, ...]
    ) -> tuple[list[Redirect], list[Word], list[Word]]:
        """Files that redirects open, words of the command that stand after them, text they feed."""
        opened: list[Redirect] = []
        extra: list[Word] = []
        fed: list[Word] = []
        for node in nodes:
            children = [child for child in node.named_children if child.type != "file_descriptor"]
            if node.type == "heredoc_redirect":
                self._heredoc(children, owner, opened, extra, fed)
            elif node.type == "herestring_redirect":
                for child in children:
                    fed.append(read_word(child, self.home, self.root))
                    self._whole(child)
            elif node.type == "file_redirect":
                self._file(node, children, opened, extra)
            else:
                self.visit(node, ())
        return opened, extra, fed

    def _file(self, node: Node, children: list[Node], opened: list[Redirect], extra: list[Word]) -> None:
        operator = next((_source(child) for child in node.children if not child.is_named), "")
        for index, child in enumerate(children):
            word = read_word(child, self.home, self.root)
            self._whole(child)
            if index:
                extra.append(
                    word
                )  # the grammar takes words after the target as further targets; shells do not
            elif child.type != "process_substitution" and not (
                "&" in operator and word.text.rstrip("-").isdigit()
            ):
                opened.append(Redirect(word, ">" in operator))

    def _heredoc(
        self,
        children: list[Node],
        owner: tuple[str, ...],
        opened: list[Redirect],
        extra: list[Word],
        fed: list[Word],
    ) -> None:
        for child in children:
            if child.type in ("heredoc_start", "heredoc_end"):
                continue
            if child.type == "heredoc_body":
                known = not any(c.type != "heredoc_content" for c in child.named_children)
                fed.append(Word(_source(child) if known else UNKNOWN, _source(child)))
                self.nested(child)
            elif child.type == "file_redirect":
                inner, more, _ = self._opened([child], owner)
                opened += inner
                extra += more
            elif child.type in _WORDS:
                extra.append(read_word(child, self.home, self.root))
                self._whole(child)
            else:
                self.folders.lost = True
                self.visit(child, owner)  # `cat <<E | sh`: the grammar hangs the rest of the line in here

    def assignment(self, node: Node, fed_by: tuple[str, ...]) -> None:
        """The value of `X=value`, which can hold commands and names."""
        value = node.child_by_field_name("value")
        for child in node.named_children:
            if child.type == "subscript":
                self.nested(child)
        if value is not None and value.type == "array":
            self.each(value, ())
        elif value is not None:
            self.loose.append(read_word(value, self.home, self.root))
            self._whole(value)

    def assigned(self, node: Node, fed_by: tuple[str, ...]) -> None:
        """Assignments that are a command of their own: they last."""
        each = [node] if node.type == "variable_assignment" else node.named_children
        for child in each:
            self.assignment(child, ())
        self._add(Part(_source(node), assignments=tuple(_source(child) for child in each)))

    # ---- one part

    def _add(self, part: Part) -> Part:
        stripped = strip(part.words)
        words = [word.text for word in stripped]
        if part.words and not (part.words[0].known and (not stripped or stripped[0].known)):
            self.doubts.append("which program runs is known only when it runs")
        if any(words and words[0].raw in _RESERVED for words in (part.words, stripped)):
            # `! for ...` and `time { ...` are taken for programs of that name; a shell knows better.
            self.problem = "a word of the shell's grammar stands where a program is named"
        dangers = (*hazards([w for w in words if UNKNOWN not in w]), *_unspellable(stripped))
        part = replace(part, stripped=stripped, hazards=dangers, folders=self.folders.now)
        self.parts.append(part)
        self.renamed = self.renamed or part.target == "alias"
        self.folders.follow(part)
        if len(self.parts) > MAX_PARTS:
            raise _OverLimit(f"it holds more than {MAX_PARTS} commands")
        self.labels.update(labels_of(words))
        if part.target in RUN_INPUT and FETCHERS & set(part.fed_by):
            self._fetched(part)
        self._started_by(part)
        return part

    def _fetched(self, part: Part) -> None:
        self.labels.add("curl_pipe_shell")
        self.doubts.append(f"`{part.target}` would run what was just fetched")

    def _started_by(self, part: Part) -> None:
        """What a runner starts, and the text given to a shell."""
        words = part.words
        runner = part.program in RUNNERS
        if runner:
            for index in range(1, len(words)):
                self.labels.update(labels_of([word.text for word in words[index:]]))
                if FETCHERS & set(part.fed_by) and base(words[index].text) in SHELLS:
                    self._fetched(part)
        for index, word in enumerate(words):
            if (index == 0 or runner) and base(word.text) in SHELLS:
                self._shell_text(words[index:])
        if part.target in ("eval", "trap"):
            rest = part.stripped[1:] if part.target == "eval" else part.stripped[1:2]
            self._inner_text(
                Word(" ".join(word.text for word in rest), part.raw, any(word.splits for word in rest))
            )

    def _shell_text(self, words: Sequence[Word]) -> None:
        for index, word in enumerate(words[:-1]):
            if re.fullmatch(r"[-+][A-Za-z]*c[A-Za-z]*|--command", word.text):
                texts = [w for w in words[index + 1 :] if not w.text.startswith(("-", "+"))]
                if texts:
                    self._dialect(base(words[0].text), texts[0])
                    self._inner_text(texts[0])
                return

    def _dialect(self, shell: str, word: Word) -> None:
        """Text for another shell than bash, which is what reads it here: `$'a\\'; b; #'` is one word to it, two commands to `sh`."""
        if shell in _OF_THEIR_OWN or (shell not in ("bash", "rbash") and _NOT_IN_SH.search(word.text)):
            self.doubts.append(f"`{shell}` may read its text otherwise than it is judged here")

    def _inner_text(self, word: Word) -> None:
        if not word.text.strip():
            return
        if not word.known:
            self.doubts.append("the text given to a shell is known only when it runs")
        self.depth += MAX_DEPTH // 4
        if self.depth > MAX_DEPTH:
            raise _OverLimit("shells are started within shells too deep")
        with self.folders.within("text"):
            self._text(re.sub("[\\0-\\3]", "x", word.text))
        self.depth -= MAX_DEPTH // 4


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _unspellable(words: tuple[Word, ...]) -> Iterator[str]:
    """An empty hazard for each thing that no wildcard may cover."""
    program = base(words[0].text) if words else ""
    for word in words[1:]:
        unknown = UNKNOWN in word.text or word.splits
        if (unknown and program not in TALKERS) or (word.may_be_flag and program not in PLAIN):
            yield ""


_RESERVED = listed("for while until if then else elif fi do done case esac select function { } ! coproc in")
_LEAVES = listed("""
    comment heredoc_start heredoc_end heredoc_content string_content variable_name special_variable_name test_operator
    file_descriptor regex ERROR""")
_WORDS = listed("""
    word number raw_string string translated_string ansi_c_string concatenation simple_expansion expansion
    arithmetic_expansion brace_expression""")
_CONTAINERS = listed("""
    program subshell compound_statement if_statement elif_clause else_clause while_statement for_statement
    c_style_for_statement case_statement case_item do_group negated_command function_definition command_substitution
    process_substitution binary_expression unary_expression ternary_expression postfix_expression
    parenthesized_expression array subscript ERROR""")


def _pattern(walk: Walk, node: Node, fed_by: tuple[str, ...]) -> None:
    # In `[[ x == a* ]]` and `case`: it is compared with text and never becomes a file name.
    walk.nested(node)


_HANDLERS: dict[str, Callable[[Walk, Node, tuple[str, ...]], None]] = {
    **dict.fromkeys(_CONTAINERS, Walk.container),
    **dict.fromkeys(("command", "declaration_command", "unset_command", "test_command"), Walk.command),
    "list": Walk.and_or,
    "pipeline": Walk.pipeline,
    "extglob_pattern": _pattern,
    "redirected_statement": Walk.redirected,
    "variable_assignment": Walk.assigned,
    "variable_assignments": Walk.assigned,
}
