"""Parses shell text as bash does, or refuses it.

    Parser("a | b > c").script()    the commands of a text, with words, assignments, redirections

A recursive descent parser over bash's grammar, character by character, with the lexical rules of
bash 5: where comments begin and end, which lines a backslash joins, how here-documents end and are
expanded, what is special inside which quotes. Whatever it has no rule for is `CannotParse`: an
extended pattern, a single quote inside `"${...}"`, a here-document without an end. A person is
asked about a text that is refused; a text that is misread would be a hole, so nothing is guessed.
`make lab NAME=fuzz` compares with bash.

The parser does not know the values of variables: `Reading.evaluated` lists what bash evaluates as
code when it runs. Aliases are not expanded: `bash_builtins` asks about a text that defines one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .program_facts import word_set
from .shell_words import Word, WordBuilder, decode_ansi_quotes
from .syntax import MAX_DEPTH


class CannotParse(Exception):
    """The text cannot be parsed with certainty. Says why."""


class TooDeep(Exception):
    """The text is nested too deep."""


@frozen
class ParsedWord:
    """A parsed word.

    `inside` are the scripts that run while it is expanded, `evaluated` the texts in it that
    evaluate the value of a variable as code, `sets` the variables that it may set (`${NAME:=x}`).
    """

    word: Word
    inside: tuple[Script, ...] = ()
    evaluated: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    plain: bool = False
    """True if nothing in it is quoted or expanded: only then it can be a reserved word."""


@frozen
class Assignment:
    """An assignment: `name=value`, `name[subscript]=value` or `name=(values)`."""

    raw: str
    name: str
    values: tuple[ParsedWord, ...]
    evaluated: tuple[str, ...] = ()


@dataclass(slots=True)
class Redirection:
    """A redirection from or to a `file`, or of a text (`fed`). Both are None for `2>&1`.

    The text of a here-document is set when its lines are parsed, behind its command. `stdin` is
    False if it goes to another descriptor. `sets` is the variable that gets the descriptor's
    number (`{NAME}<file`).
    """

    write: bool
    file: ParsedWord | None = None
    fed: ParsedWord | None = None
    evaluated: tuple[str, ...] = ()
    stdin: bool = True
    sets: str = ""


@frozen
class Simple:
    """A simple command. Any of its three parts may be empty."""

    raw: str
    assignments: tuple[Assignment, ...]
    words: tuple[ParsedWord, ...]
    redirections: tuple[Redirection, ...]


@frozen
class Pipeline:
    """Commands whose output is the next one's input.

    `start` and `end` are its place in the text; `pipes` are the ends of the operators between its
    commands. `end` is -1 behind a compound command.
    """

    commands: tuple[Node, ...]
    start: int = 0
    pipes: tuple[int, ...] = ()
    end: int = -1
    is_prefixed: bool = False
    """Whether `!` or `time` stands before it."""


@frozen
class AndOr:
    """Commands and the operators between them, left-associative: `a && b || c`."""

    commands: tuple[Node, ...]
    operators: tuple[str, ...]


@frozen
class Compound:
    """A compound command: a group, loop, branch, function or test.

    `loose` are words that could become file names, `patterns` words that are only compared, `sets`
    is the variable of a loop or of a coprocess.
    """

    raw: str
    kind: str
    scripts: tuple[Script, ...]
    loose: tuple[ParsedWord, ...] = ()
    patterns: tuple[ParsedWord, ...] = ()
    evaluated: tuple[str, ...] = ()
    sets: str = ""
    redirections: tuple[Redirection, ...] = ()


Node = Simple | Pipeline | AndOr | Compound
Script = tuple[Node, ...]

_SKIPPED = compile_lazily(r"(?:[ \t]|\\\n|#[^\n]*)*")
_JOINED_ARITHMETIC = compile_lazily(r"\((?:\\\n)+\(")
"""What bash reads as `((`: it drops joined lines before it looks for operators."""
_BARE = compile_lazily(r"[^ \t\n;&|()<>\\'\"`$]+")
"""Characters of a word without quotes and expansions."""
_BETWEEN_QUOTES = compile_lazily(r'[^"\\`$]+')
_META = " \t\n;&|()<>"
_END = r"(?=[ \t\n;&|()<>]|\Z)"
_RESERVED = word_set("""
    if then else elif fi do done case esac while until for select in function time coproc
    { } ! [[ ]]""")
_RESERVED_HERE = compile_lazily(
    r"(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|select|in|function|time|coproc"
    r"|\{|\}|!|\[\[)" + _END
)
_OPENS_EXPANSION = ("{", "(", "[")
_CLOSING = word_set("then else elif fi do done esac }")
_NAME = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = compile_lazily(r"([A-Za-z_][A-Za-z0-9_]*)(\[|\+?=)")
_REDIRECT = compile_lazily(
    r"(\d+|\{[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]\n]*\])?\})?"
    r"(<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\())|(&>>|&>)"
)
_PARAMETER = compile_lazily(r"\$\{[#!]?(?:[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#?$!-])?")
_DELIMITER = compile_lazily(r"""(?:[^\s;&|()<>'"\\$`\x00-\x1f]|'[^'\n]*'|"[^"\\$`\n]*"|\\[^\n])+""")
_TILDE = compile_lazily(r"~[A-Za-z0-9_+.-]*(?=/|[ \t\n;&|()<>]|\Z)")
_OLD_ARITHMETIC = compile_lazily(r"\$\[[0-9+*/% -]*\]")
_EXTENDED = "?*+@!"
_DUPLICATED = compile_lazily(r"\d*-?")
_DECLARATIONS = word_set("declare typeset export readonly local")
_OPERATORS_OF_TESTS = word_set("-v -R -eq -ne -lt -le -gt -ge")


class Parser:
    """Parses one text. `home` and `root` are the values of `~`, `$HOME` and `$PWD`."""

    def __init__(self, text: str, home: str = "", root: str = "", nesting: int = 0) -> None:
        self.text = text
        self.home = home
        self.root = root
        self.at = 0
        self.nesting = nesting
        self.done: list[Node] = []
        """The commands before the position at which parsing failed."""
        self._substituted = 0
        self._end_of_simple = 0
        self._pending: list[tuple[str, bool, bool, Redirection]] = []

    def script(self) -> Script:
        """Parse the whole text. Raises CannotParse and TooDeep."""
        nodes = self._list(self.done)
        if self.at < len(self.text):
            self._refuse(f"`{self.text[self.at : self.at + 20]}` stands where nothing can")
        self._require_heredocs_read()
        return nodes

    # ---- characters

    def _refuse(self, why: str) -> NoReturn:
        raise CannotParse(why)

    def _peek(self, offset: int = 0) -> str:
        at = self.at + offset
        return self.text[at] if at < len(self.text) else ""

    def _here(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _skip(self) -> None:
        """Skip blanks, joined lines, and a comment, which a backslash does not continue."""
        skipped = _SKIPPED.match(self.text, self.at)
        assert skipped is not None
        self.at = skipped.end()

    def _newlines(self) -> None:
        self._skip()
        while self._peek() == "\n":
            self._newline()
            self._skip()

    def _newline(self) -> None:
        self.at += 1
        waiting = self._pending
        self._pending = []
        for delimiter, quoted, tabs, redirection in waiting:
            redirection.fed = self._document(delimiter, quoted, tabs)

    def _operator(self, *operators: str) -> str:
        """Consume the first of these operators that is here; empty if none is. Longest first."""
        self._skip()
        for operator in operators:
            if self._here(operator):
                self.at += len(operator)
                self._whole_operator()
                return operator
        return ""

    def _whole_operator(self) -> None:
        at = self.at
        while self.text.startswith("\\\n", at):
            at += 2
        if at > self.at and self.text[at : at + 1] and self.text[at] in "&|;<>(-":
            self._refuse("an operator goes on behind a joined line")

    def _word_here(self) -> str:
        """Return the reserved word at this position without consuming it."""
        found = _RESERVED_HERE.match(self.text, self.at)
        return found.group() if found else ""

    def _take_word(self, word: str) -> None:
        self._skip()
        if self._word_here() != word:
            self._refuse(f"`{word}` is missing")
        self.at += len(word)

    def _require_heredocs_read(self) -> None:
        if self._pending:
            self._refuse("a here-document is not ended")

    def _deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise TooDeep

    # ---- lists

    def _list(self, nodes: list[Node] | None = None) -> Script:
        self._deeper()
        found: list[Node] = [] if nodes is None else nodes
        while True:
            self._newlines()
            if not self._peek() or self._peek() == ")" or self._here(";;") or self._here(";&"):
                break
            if self._word_here() in _CLOSING:
                break
            found.append(self._and_or())
            self._skip()
            if self._peek() == "\n":
                continue
            if self._here(";;") or self._here(";&") or not self._operator("&", ";"):
                break
        self.nesting -= 1
        return tuple(found)

    def _body(self) -> Script:
        """Parse a list that may not be empty."""
        nodes = self._list()
        if not nodes:
            self._refuse("commands are missing")
        return nodes

    def _and_or(self) -> Node:
        nodes = [self._pipeline()]
        operators: list[str] = []
        while operator := self._operator("&&", "||"):
            operators.append(operator)
            self._newlines()
            nodes.append(self._pipeline())
        return AndOr(tuple(nodes), tuple(operators)) if operators else nodes[0]

    def _pipeline(self) -> Node:
        self._skip()
        prefixed = False
        any_timed = False
        while self._word_here() in ("!", "time"):
            prefixed = True
            timed = self._word_here() == "time"
            any_timed = any_timed or timed
            self.at += len(self._word_here())
            self._skip()
            for option in ("-p", "--") if timed else ():
                if re.compile(re.escape(option) + _END).match(self.text, self.at):
                    self.at += len(option)
                    self._skip()
        if prefixed and (not self._peek() or self._peek() in "\n;&|)"):
            self._refuse("a command is missing behind `!` or `time`")
        if any_timed and self._peek() == "-":
            self._refuse("an option of `time` is not plain")
        if any_timed and self._substituted and (self._peek() == "(" or self._word_here()):
            # At the beginning of a substitution bash 5.2 runs `time` as a program, with `[[` as its
            # argument.
            self._refuse("more than a simple command stands behind `time` in a substitution")
        start = self.at
        commands = [self._command()]
        pipes: list[int] = []
        while True:
            self._skip()
            if self._here("||") or not self._operator("|&", "|"):
                break
            pipes.append(self.at)
            self._newlines()
            commands.append(self._command())
        # `!` negates the status, which matters to `&&`: it stays a pipeline, even of one command.
        if len(commands) == 1 and not prefixed:
            return commands[0]
        end = self._end_of_simple if isinstance(commands[-1], Simple) else -1
        return Pipeline(tuple(commands), start, tuple(pipes), end, prefixed)

    # ---- commands

    def _command(self) -> Node:
        self._skip()
        start = self.at
        if self._here("(("):
            return self._add_redirections(start, self._arithmetic_command())
        if self._peek() == "(":
            self._refuse_joined_arithmetic()
            return self._add_redirections(start, self._subshell())
        word = self._word_here()
        if word == "coproc":
            return self._coproc()
        if word == "function":
            return self._function_word(start)
        compound = self._compounds().get(word)
        if compound is not None:
            return self._add_redirections(start, compound())
        if word and word != "time":  # after a `|` it is a program
            self._refuse(f"`{word}` stands where a command begins")
        return self._simple()

    def _compounds(self) -> dict[str, Callable[[], Compound]]:
        return {
            "{": self._group,
            "if": self._if,
            "while": self._while,
            "until": self._while,
            "for": self._for,
            "select": self._for,
            "case": self._case,
            "[[": self._test,
        }

    def _add_redirections(self, start: int, compound: Compound) -> Compound:
        raw = self.text[start : self.at]
        return replace(compound, raw=raw, redirections=self._redirections())

    def _group(self) -> Compound:
        self._take_word("{")
        body = self._body()
        self._take_word("}")
        return Compound("", "group", (body,))

    def _subshell(self) -> Compound:
        self.at += 1
        body = self._body()
        self._close()
        return Compound("", "subshell", (body,))

    def _close(self) -> None:
        self._skip()
        if self._peek() != ")":
            self._refuse("`)` is missing")
        self._require_heredocs_read()
        self.at += 1

    def _if(self) -> Compound:
        self._take_word("if")
        scripts = [self._body()]
        self._take_word("then")
        scripts.append(self._body())
        while self._word_here() == "elif":
            self._take_word("elif")
            scripts.append(self._body())
            self._take_word("then")
            scripts.append(self._body())
        if self._word_here() == "else":
            self._take_word("else")
            scripts.append(self._body())
        self._take_word("fi")
        return Compound("", "if", tuple(scripts))

    def _while(self) -> Compound:
        self.at += len("while")  # `until` is as long
        condition = self._body()
        return Compound("", "loop", (condition, self._do()))

    def _do(self) -> Script:
        if self._word_here() == "{":
            self._take_word("{")
            body = self._body()
            self._take_word("}")
            return body
        self._take_word("do")
        body = self._body()
        self._take_word("done")
        return body

    def _for(self) -> Compound:
        word = self._word_here()
        self.at += len(word)
        self._skip()
        if self._here("(("):
            if word != "for":
                self._refuse("`((` stands behind `select`")
            head = self._arithmetic_command()
            self._operator(";")
            self._newlines()
            return replace(head, scripts=(*head.scripts, self._do()))
        name = self._plain_word()
        if not _NAME.fullmatch(name):
            self._refuse("the name of a loop's variable is not plain")
        loose: list[ParsedWord] = []
        self._skip()
        if self._peek() == "\n":
            self._newlines()
        if self._word_here() == "in":
            self._take_word("in")
            while self._word_follows():
                loose.append(self._word())
            self._skip()
            if self._peek() != "\n" and not self._operator(";"):
                self._refuse("a list of words is not ended")
        else:
            self._operator(";")
        self._newlines()
        return Compound("", "loop", (self._do(),), tuple(loose), sets=name)

    def _plain_word(self) -> str:
        """Parse a word in which nothing is quoted, expanded or joined."""
        self._skip()
        start = self.at
        reading = self._word()
        if not reading.plain or self.text[start : self.at] != reading.word.text:
            self._refuse("a name is not plain")
        return reading.word.text

    def _word_follows(self) -> bool:
        self._skip()
        here = self._peek()
        return bool(here) and (here not in _META or self._here("<(") or self._here(">("))

    def _case(self) -> Compound:
        self._take_word("case")
        if not self._word_follows():
            self._refuse("`case` has no word")
        subject = self._word()
        self._newlines()
        self._take_word("in")
        self._newlines()
        patterns: list[ParsedWord] = []
        scripts: list[Script] = []
        while self._word_here() != "esac":
            self._operator("(")
            while True:
                if not self._word_follows():
                    self._refuse("a pattern is missing")
                patterns.append(self._word())
                if patterns[-1].word.text == "esac":
                    # In a substitution bash prints it without its parenthesis, parses that again,
                    # and takes it for the end.
                    self._refuse("a pattern is the word that ends a `case`")
                if not self._operator("|"):
                    break
            self._skip()
            if self._peek() != ")":
                self._refuse("a pattern is not ended")
            self.at += 1
            scripts.append(self._list())
            if not self._operator(";;&", ";;", ";&"):
                break
            self._newlines()
        self._take_word("esac")
        return Compound("", "case", tuple(scripts), (subject,), tuple(patterns))

    def _coproc(self) -> Node:
        start = self.at
        self._take_word("coproc")
        self._skip()
        before = self.at
        named = _NAME.match(self.text, self.at)
        if named and not self._word_here():
            self.at = named.end()
            self._skip()
            # `coproc NAME { ...; }` names it; before anything else it is the command.
            if self._peek() == "(" or self._word_here() in self._compounds():
                raw = self.text[start : self.at]
                return Compound(raw, "group", ((self._command(),),), sets=named.group())
            self.at = before
        return Compound("", "group", ((self._command(),),))

    def _function_word(self, start: int) -> Compound:
        self._take_word("function")
        self._plain_word()
        if self._operator("("):
            self._close()
        return self._function(start)

    def _function(self, start: int) -> Compound:
        self._newlines()
        if self._peek() != "(" and self._word_here() not in self._compounds():
            self._refuse("a function has no body")
        return Compound(self.text[start : self.at], "function", ((self._command(),),))

    # ---- arithmetic and tests

    def _arithmetic_command(self) -> Compound:
        start = self.at
        builder = WordBuilder()
        self.at += 2
        self._arithmetic(builder)
        text = self.text[start : self.at]
        evaluated = (text,) if runs_values("arithmetic", text) else ()
        return Compound("", "arithmetic", builder.inside, evaluated=evaluated)

    def _refuse_joined_arithmetic(self) -> None:
        if _JOINED_ARITHMETIC.match(self.text, self.at):
            self._refuse("a line is joined within `((`")

    def _arithmetic(self, builder: WordBuilder) -> None:
        """Parse the text after `((`, up to and including its `))`, only to find where it ends."""
        open_ones = 0
        while True:
            here = self._peek()
            if not here:
                self._refuse("arithmetic is not ended")
            if here == "$":
                self._dollar(builder, True)
            elif here == "`":
                self._backquotes(builder, False)
            elif here == "\\":
                self.at += 2
            elif here == ")" and not open_ones:
                if self._peek(1) != ")":
                    self._refuse("`((` is a subshell within a subshell")
                self.at += 2
                return
            else:
                open_ones += {"(": 1, ")": -1}.get(here, 0)
                if open_ones > MAX_DEPTH:
                    raise TooDeep
                self.at += 1

    def _test(self) -> Compound:
        start = self.at
        self._take_word("[[")
        operands: list[ParsedWord] = []
        patterns: list[ParsedWord] = []
        evaluated: tuple[str, ...] = ()
        before = ""
        while True:
            self._newlines()
            if not self._peek():
                self._refuse("`]]` is missing")
            if re.compile(r"\]\]" + _END).match(self.text, self.at):
                self.at += 2
                break
            operand = before == "=~" or self._here("<(") or self._here(">(")
            if not operand and (operator := self._operator("&&", "||", "(", ")", "<", ">")):
                before = operator
                continue
            if before == "=~":
                patterns.append(self._word(expression=True))
            elif before in ("==", "=", "!="):
                patterns.append(self._word(extended=True))
            else:
                operands.append(self._word())
            before = (operands if before not in ("=~", "==", "=", "!=") else patterns)[-1].word.text
            if before in _OPERATORS_OF_TESTS:
                evaluated = (self.text[start : start + 80],)
        return Compound("", "test", (), tuple(operands), tuple(patterns), evaluated)

    # ---- simple commands

    def _simple(self) -> Node:
        start = self.at
        end = start
        assignments: list[Assignment] = []
        words: list[ParsedWord] = []
        redirections: list[Redirection] = []
        after_last = start
        while True:
            self._skip()
            if self._redirection(redirections):
                after_last = self.at
                if not words and not assignments:
                    end = self.at
                continue
            if (not words and (assignment := self._assignment())) or (
                words
                and words[0].word.text in _DECLARATIONS
                and (assignment := self._assignment(array=True))
            ):
                assignments.append(assignment)
            elif self._word_follows():
                words.append(self._argument(words))
            else:
                break
            end = self.at
            after_last = end
        if self._peek() == "(" and len(words) == 1 and not assignments and not redirections:
            return self._named_function(start, words[0])
        if not (assignments or words or redirections):
            self._refuse("a command is missing")
        self._end_of_simple = after_last
        return Simple(self.text[start:end], tuple(assignments), tuple(words), tuple(redirections))

    def _argument(self, words: list[ParsedWord]) -> ParsedWord:
        reading = self._word()
        if (
            not words
            and reading.plain
            and reading.word.text in _RESERVED
            and reading.word.raw != "time"
        ):
            self._refuse(f"`{reading.word.text}` stands where a command begins")
        if not words and _ASSIGNED.match(reading.word.raw.replace("\\\n", "")):
            self._refuse("a line is joined in an assignment")
        return reading

    def _named_function(self, start: int, name: ParsedWord) -> Compound:
        if not name.plain or not name.word.is_known:
            self._refuse("the name of a function is not plain")
        self.at += 1
        self._close()
        return self._function(start)

    def _assignment(self, array: bool = False) -> Assignment | None:
        """Parse an assignment. `array`: after `declare`, where only `name=(...)` is one."""
        found = _ASSIGNED.match(self.text, self.at)
        if found is None:
            return None
        start = self.at
        evaluated: tuple[str, ...] = ()
        inside = WordBuilder()
        if found[2] == "[":
            if array:
                return None
            self.at = found.end()
            evaluated = self._subscript(start, inside)
            operator = re.compile(r"\+?=").match(self.text, self.at)
            if operator is None:
                self._refuse("a bracket stands behind the name of a command")
            self.at = operator.end()
        else:
            self.at = found.end()
        if self._peek() == "(":
            values, more = self._array()
            evaluated += more
            if not re.compile(r"(?![<>]?\()" + _END).match(self.text, self.at):
                self._refuse("an assignment goes on behind its array")
        elif array:
            self.at = start
            return None
        else:
            values = (self._word(empty=True),)
        values = (*values, ParsedWord(Word("", ""), inside.inside)) if inside.inside else values
        return Assignment(self.text[start : self.at], found[1], values, evaluated)

    def _subscript(self, start: int, inside: WordBuilder) -> tuple[str, ...]:
        """Parse the text after `[`, up to and including its `]`."""
        begin = self.at
        while self._peek() != "]":
            here = self._peek()
            if here == "$":
                self._dollar(inside, True)
            elif here == "`":
                self._backquotes(inside, False)
            elif not here or here in "\\'\"[\n":
                self._refuse("a subscript is not plain")
            else:
                self.at += 1
        self.at += 1
        if re.fullmatch(r"\d+|[@*]", self.text[begin : self.at - 1]):
            return ()
        return (self.text[start : self.at],)

    def _array(self) -> tuple[tuple[ParsedWord, ...], tuple[str, ...]]:
        """Parse `(...)`; return its values, and the subscripts in it that are evaluated."""
        self.at += 1
        values: list[ParsedWord] = []
        evaluated: list[str] = []
        while True:
            self._newlines()
            if self._peek() == ")":
                self.at += 1
                return tuple(values), tuple(evaluated)
            start = self.at
            if self._peek() == "[":
                inside = WordBuilder()
                self.at += 1
                evaluated += self._subscript(start, inside)
                if not re.compile(r"\+?=").match(self.text, self.at):
                    self._refuse("a bracket begins a value")
                self.at = self.text.index("=", self.at) + 1
                value = self._word(empty=True)
                values.append(replace(value, inside=(*inside.inside, *value.inside)))
                continue
            if not self._word_follows():
                self._refuse("an array is not ended")
            values.append(self._word())

    # ---- redirections

    def _redirections(self) -> tuple[Redirection, ...]:
        found: list[Redirection] = []
        while self._redirection(found):
            pass
        return tuple(found)

    def _redirection(self, found: list[Redirection]) -> bool:
        """Parse a redirection and append it. Return whether there was one."""
        self._skip()
        match = _REDIRECT.match(self.text, self.at)
        if match is None:
            return False
        self._redirect(match, found)
        if match[1] and match[1].startswith("{"):
            found[-1].sets = match[1].strip("{}").partition("[")[0]
        return True

    def _redirect(self, match: re.Match[str], found: list[Redirection]) -> None:
        """Parse what follows the operator of a redirection, and append it."""
        descriptor = match[1] or ""
        operator = match[2] or match[3]
        if len(descriptor) > 4 and descriptor.isdigit():
            self._refuse("a descriptor is out of range")
        evaluated = (descriptor,) if "[" in descriptor else ()
        self.at = match.end()
        self._whole_operator()
        self._skip()
        if operator in ("<<", "<<-"):
            found.append(self._heredoc(operator == "<<-"))
            found[-1].stdin = descriptor in ("", "0")
            return
        if operator in (">&", "<&") and self._peek() == "-":
            self.at += 1  # a word of its own, whatever follows it
            found.append(Redirection(False, evaluated=evaluated))
            return
        if not self._word_follows():
            self._refuse("a redirection names nothing")
        target = self._word()
        if operator == "<<<":
            stdin = descriptor in ("", "0")
            found.append(Redirection(False, fed=target, evaluated=evaluated, stdin=stdin))
        elif operator == ">&" and not target.plain and not target.word.text.isdigit():
            self._refuse("what stands behind `>&` is not plain")
        elif (
            operator in (">&", "<&")
            and target.word.is_known
            and _DUPLICATED.fullmatch(target.word.text)
        ):
            found.append(Redirection(False, evaluated=evaluated))
        else:
            found.append(Redirection(">" in operator, target, evaluated=evaluated))

    def _heredoc(self, tabs: bool) -> Redirection:
        match = _DELIMITER.match(self.text, self.at)
        if match is None or self.text[match.end() : match.end() + 1] not in ("", *_META):
            self._refuse("the end of a here-document is not plain")
        self.at = match.end()
        self._skip()
        if self._substituted and self._peek() != "\n":
            # Bash 5.2 prints what it parsed of a substitution and parses that, without this `;`.
            self._refuse("more stands behind a here-document in a substitution")
        quoted = re.search(r"""['"\\]""", match.group()) is not None
        delimiter = re.sub(r"""\\(.)|['"]""", lambda mark: mark[1] or "", match.group())
        redirection = Redirection(False)
        self._pending.append((delimiter, quoted, tabs, redirection))
        return redirection

    def _document(self, delimiter: str, quoted: bool, tabs: bool) -> ParsedWord:
        """Parse the lines of a here-document, up to the one that ends it."""
        lines: list[str] = []
        while True:
            if self.at >= len(self.text):
                self._refuse("a here-document is not ended")
            line = self._document_line(joined=not quoted)
            if tabs:
                line = line.lstrip("\t")
            if line == delimiter:
                break
            lines.append(line)
        text = "".join(f"{line}\n" for line in lines)
        if quoted:
            return ParsedWord(Word(text, text))
        inner = Parser(text, self.home, self.root, self.nesting)
        return inner.document()

    def _document_line(self, joined: bool) -> str:
        """Parse a line without its newline; a backslash before it joins the next line."""
        out: list[str] = []
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "\n":
                self.at += 1
                break
            if here == "\\" and joined:
                if self._peek(1) != "\n":
                    out.append(self.text[self.at : self.at + 2])
                self.at += 2
                continue
            out.append(here)
            self.at += 1
        return "".join(out)

    def document(self) -> ParsedWord:
        """Parse this text as the body of a here-document that is expanded."""
        builder = WordBuilder()
        while self.at < len(self.text):
            here = self._peek()
            if here == "\\" and self._peek(1) and self._peek(1) in "$`\\":
                builder.add_quoted(self._peek(1))
                self.at += 2
            elif here == "$":
                self._dollar(builder, True)
            elif here == "`":
                self._backquotes(builder, False)
            else:
                builder.add_quoted(here)
                self.at += 1
        builder.finish(None)
        return _build_parsed_word(builder, self.text)

    # ---- words

    def _word(
        self, *, empty: bool = False, extended: bool = False, expression: bool = False
    ) -> ParsedWord:
        """Parse one word.

        Args:
            empty: It may be empty.
            extended: It is a pattern of `[[`.
            expression: It follows `=~`.
        """
        if not empty:
            self._skip()
        start = self.at
        builder = WordBuilder()
        open_ones = 0
        while self.at < len(self.text):
            here = self.text[self.at]
            if expression and here in "(|)" and (here != ")" or open_ones):
                open_ones += {"(": 1, ")": -1}.get(here, 0)
                builder.add_quoted(here)
                self.at += 1
            elif here in "<>" and self._peek(1) == "(":
                if extended or expression:
                    self._refuse("a process substitution stands in a pattern")
                self._process(builder)
            elif extended and self._begins_extended(start):
                self._parse_extended_pattern(builder)
            elif here in _META:
                self._check_end_of_word(here, start)
                if open_ones:
                    self._refuse("a blank stands in an expression")
                break
            else:
                self._piece(here, builder)
        if self.at == start and not empty:
            self._refuse("a word is missing")
        raw = self.text[start : self.at]
        tilde = _TILDE.match(raw.replace("\\\n", ""))
        builder.finish(self.home if tilde else None)
        return _build_parsed_word(builder, raw)

    def _begins_extended(self, start: int) -> bool:
        """Return whether the `(` of an extended pattern is here, in a word from `start`."""
        return self._here("(") and self.at > start and self.text[self.at - 1] in _EXTENDED

    def _check_end_of_word(self, here: str, start: int) -> None:
        word = self.text[start : self.at]
        if here == "(" and word and (word[-1] in _EXTENDED or not _FUNCTION.fullmatch(word)):
            self._refuse("an extended pattern or a lone `(` stands in a word")
        if here in "<>" and "\\\n" in word:
            self._refuse("a line is joined before a redirection")

    def _piece(self, here: str, builder: WordBuilder) -> None:
        if here == "\\":
            if self._peek(1) == "":
                self._refuse("it ends with a backslash")
            if self._peek(1) != "\n":
                builder.add_quoted(self._peek(1))
            self.at += 2
        elif here == "'":
            builder.add_quoted(self._single())
        elif here == '"':
            self._double(builder)
        elif here == "`":
            self._backquotes(builder, False)
        elif here == "$":
            self._dollar(builder, False)
        else:
            run = _BARE.match(self.text, self.at)
            assert run is not None
            builder.add_bare(run.group())
            self.at = run.end()

    def _parse_extended_pattern(self, builder: WordBuilder) -> None:
        match = re.compile(r"\([A-Za-z0-9_.|*?/-]*\)").match(self.text, self.at)
        if match is None:
            self._refuse("an extended pattern is not plain")
        builder.add_unknown(splits=False)
        self.at = match.end()

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self._refuse("a quote is not closed")
        text = self.text[self.at + 1 : end]
        self.at = end + 1
        return text

    def _double(self, builder: WordBuilder) -> None:
        builder.add_quoted("")
        self.at += 1
        while True:
            here = self._peek()
            if not here:
                self._refuse("a quote is not closed")
            if here == '"':
                self.at += 1
                return
            if here == "\\" and self._peek(1) and self._peek(1) in '$`"\\\n':
                if self._peek(1) != "\n":
                    builder.add_quoted(self._peek(1))
                self.at += 2
            elif here == "$":
                self._dollar(builder, True, in_quotes=True)
            elif here == "`":
                self._backquotes(builder, True)
            elif here == "\\":
                builder.add_quoted(here)
                self.at += 1
            else:
                run = _BETWEEN_QUOTES.match(self.text, self.at)
                assert run is not None
                builder.add_quoted(run.group())
                self.at = run.end()

    def _ansi(self, builder: WordBuilder) -> None:
        start = self.at + 2
        at = start
        while self.text[at : at + 1] != "'":
            if at >= len(self.text):
                self._refuse("a quote is not closed")
            at += 2 if self.text[at] == "\\" else 1
        builder.add_quoted(decode_ansi_quotes(self.text[start:at]))
        self.at = at + 1

    def _dollar(self, builder: WordBuilder, quoted: bool, in_quotes: bool = False) -> None:
        """Parse what begins with a `$`.

        Args:
            builder: Gets what is parsed.
            quoted: The value is one word.
            in_quotes: It is between double quotes, not in a here-document or in arithmetic.
        """
        after = self._peek(1)
        if after == "(":
            self._substitution(builder, quoted)
        elif after == "{":
            self._expansion(builder, quoted, in_quotes)
        elif after == "'" and not quoted:
            self._ansi(builder)
        elif after == '"' and not quoted:
            self.at += 1
            self._double(builder)
        elif after == "[":
            self._old_arithmetic(builder, quoted)
        elif after == "\\" and self._peek(2) == "\n":
            self._refuse("a line is joined behind a `$`")
        elif after and (
            name := re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]").match(self.text, self.at + 1)
        ):
            if (
                quoted
                and name.group() == "$"
                and self.text.startswith(_OPENS_EXPANSION, name.end())
            ):
                # Bash searches the end of a text as if an expansion began here, but does not expand
                # it.
                self._refuse("`$$` stands before what an expansion begins with")
            self._variable(builder, name.group(), quoted)
            self.at = name.end()
            if self._here("\\\n"):
                self._refuse("a line is joined behind a variable")
        else:
            builder.add_quoted("$") if quoted else builder.add_bare("$")
            self.at += 1

    def _old_arithmetic(self, builder: WordBuilder, quoted: bool) -> None:
        """Parse `$[1 + 2]`, which may contain nothing but numbers."""
        match = _OLD_ARITHMETIC.match(self.text, self.at)
        if match is None:
            self._refuse("`$[` is arithmetic of old")
        builder.add_unknown(splits=not quoted)
        self.at = match.end()

    def _variable(self, builder: WordBuilder, name: str, quoted: bool) -> None:
        known = {"HOME": self.home, "PWD": self.root}.get(name, "")
        if known:
            builder.add_quoted(known)
            builder.used.append(name)
        else:
            builder.add_unknown(splits=not quoted or name == "@")

    def _substitution(self, builder: WordBuilder, quoted: bool) -> None:
        start = self.at
        if self._here("$(("):
            self.at += 3
            self._arithmetic(builder)
            text = self.text[start : self.at]
            if runs_values("arithmetic", text):
                builder.evaluated.append(text)
        else:
            self.at += 1
            self._refuse_joined_arithmetic()
            self.at += 1
            builder.add_script(self._parse_enclosed())
        builder.add_unknown(splits=not quoted)

    def _process(self, builder: WordBuilder) -> None:
        self.at += 2
        builder.add_script(self._parse_enclosed())
        builder.add_unknown(splits=True)

    def _parse_enclosed(self) -> Script:
        """Parse commands up to and including the `)` that ends them."""
        start = self.at
        waiting = self._pending
        self._pending = []
        self._substituted += 1
        script = self._list()
        self._close()
        self._substituted -= 1
        if waiting and "\n" in self.text[start : self.at]:
            self._refuse(
                "a substitution of several lines stands behind the beginning of a here-document"
            )
        self._pending = waiting
        return script

    def _backquotes(self, builder: WordBuilder, quoted: bool) -> None:
        at = self.at + 1
        while self.text[at : at + 1] != "`":
            if at >= len(self.text):
                self._refuse("a back-tick is not closed")
            at += 2 if self.text[at] == "\\" else 1
        escaped = r'\\([$`\\"])' if quoted else r"\\([$`\\])"
        # Lines are joined first, whatever quotes are inside.
        joined = _ESCAPED.sub(_without_newline, self.text[self.at + 1 : at])
        text = re.sub(escaped, r"\1", joined)
        self._deeper()
        inner = Parser(text, self.home, self.root, self.nesting)
        builder.add_script(inner.script())
        self.nesting -= 1
        builder.add_unknown(splits=not quoted)
        self.at = at + 1

    def _expansion(self, builder: WordBuilder, quoted: bool, in_quotes: bool) -> None:
        """Parse `${...}`: what it evaluates, and the commands in its word."""
        self._deeper()
        start = self.at
        match = _PARAMETER.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        inner = WordBuilder()
        while self._peek() != "}":
            self._expansion_piece(inner, quoted, in_quotes)
        self.at += 1
        text = self.text[start : self.at]
        builder.merge(inner)
        if runs_values("expansion", text):
            builder.evaluated.append(text)
        if set_here := _SETS_DEFAULT.match(text):
            builder.sets.append(set_here[1])
        name = text[2:-1]
        if name in ("HOME", "PWD"):
            self._variable(builder, name, quoted)
        else:
            builder.add_unknown(splits=not quoted or "@" in text)
        self.nesting -= 1

    def _expansion_piece(self, inner: WordBuilder, quoted: bool, in_quotes: bool) -> None:
        here = self._peek()
        if not here:
            self._refuse("an expansion is not ended")
        if quoted and (here == "'" or (here == '"' and not in_quotes)):
            self._refuse("a quote stands in an expansion that is quoted itself")
        if here in "<>" and self._peek(1) == "(":
            self._refuse("a process substitution stands in an expansion")
        if here == "$":
            self._dollar(inner, quoted, in_quotes)
        elif here == "`":
            self._backquotes(inner, quoted)
        elif here == "'":
            self._single()
        elif here == '"':
            self._double(inner)
        else:
            self.at += 2 if here == "\\" else 1


_ESCAPED = compile_lazily(r"\\.", re.DOTALL)


def _without_newline(escaped: re.Match[str]) -> str:
    return "" if escaped.group() == "\\\n" else escaped.group()


_FUNCTION = compile_lazily(r"[^\s'\"\\$`]+")


def _build_parsed_word(builder: WordBuilder, raw: str) -> ParsedWord:
    word = Word(builder.text, raw, builder.splits)
    return ParsedWord(
        word, builder.inside, tuple(builder.evaluated), tuple(builder.sets), builder.plain
    )


# ---- values that are evaluated as code
#
# Arithmetic evaluates what a variable contains, and a subscript in it may contain a substitution:
# with `x='a[$(rm y)]'` all of `$((x))`, `[[ x -eq 1 ]]`, `[[ -v $x ]]`, `${a[x]}`, `${!x}` and
# `${x@P}` run `rm`. The value may come from a loop over a file, so the text cannot show what runs:
# where names are evaluated, a person is asked.

_VALUE_NAME = r"(?:[A-Za-z_]\w*|[0-9@*#?$!_-])(?:\[(?:[0-9]+|[@*])\])?"
_SETS_DEFAULT = compile_lazily(r"\$\{([A-Za-z_]\w*)(?:\[[^\]]*\])?:?=")
_PLAIN_EXPANSION = compile_lazily(
    rf"\$\{{#?{_VALUE_NAME}(?:(?::?[-=+?]|##?|%%?|//?|\^\^?|,,?).*|:\s?\d+(?::\d+)?)?\}}",
    re.DOTALL,
)
_NUMBERS = compile_lazily(r"[\s\d()+\-*/%<>=!&|^~?:,;]*")


def runs_values(kind: str, text: str) -> bool:
    """Return whether an `expansion` (`${...}`) or `arithmetic` (`((...))`) evaluates a variable."""
    if kind == "expansion":
        return _PLAIN_EXPANSION.fullmatch(text) is None
    return _NUMBERS.fullmatch(text.removeprefix("$")) is None
