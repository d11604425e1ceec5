"""Programs drawn from bash's grammar, as odd as it allows.

    Grammar(random.Random(7)).program()     the same number, the same program

A program is drawn from the rules below, each a method; one in three is then damaged in a few
places, since text that almost is what it seems is what two readers take differently. `used` counts
the rules that were drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

HARMLESS = ("ok", "ls", "cat", "git", "echo", "no", "grep", "sort")
QUIET = ("printf", "read", "cd", "mapfile", "getopts", "export", "declare", "wait", "unset")
"""Built-ins that start nothing."""
HARMFUL = ("touch", "rm", "hid")
SPECIAL = (
    *("RANDOM", "SRANDOM", "SECONDS", "HISTCMD", "OPTIND", "LINENO", "BASHPID", "EPOCHSECONDS"),
    *("DIRSTACK", "GROUPS", "FUNCNAME", "BASH_ARGV0", "BASH_SUBSHELL", "BASH_ALIASES", "TMOUT"),
    *("PATH", "CDPATH", "IFS", "HOME", "PS4", "BASH_ENV", "ENV", "PWD", "GLOBIGNORE", "EXECIGNORE"),
)
"""Variables that bash evaluates, runs or goes by."""
MOST = 1500
"""Characters of a program."""


class Grammar:
    """Draws programs. Not for two threads."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.used: Counter[str] = Counter()
        self.depth = 0
        self.number = 0
        self.waiting: list[str] = []
        """Bodies of here-documents that the next newline must bring."""

    # ---- drawing

    def draw(self, *rules: Callable[[], str]) -> str:
        """One of these rules; below a depth only the first, which ends."""
        rule = rules[0] if self.depth > 5 else self.rng.choice(rules)
        self.used[rule.__name__] += 1
        self.depth += 1
        text = rule()
        self.depth -= 1
        return text

    def pick(self, *texts: Any) -> Any:
        return self.rng.choice(texts)

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def program(self) -> str:
        """One program."""
        self.depth = self.number = 0
        self.waiting = []
        while True:
            lines = [self.line() for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3)))]
            text = "".join(lines)
            if self.chance(3):
                text = self.damage(text)
            text = text.replace("\0", "")
            if text.strip() and len(text) <= MOST:
                return text

    def line(self) -> str:
        """A list and its newline, with what the here-documents in it wait for."""
        text = self.list_()
        if self.chance(6):
            text += self.comment()
        return text + self.newline()

    def newline(self) -> str:
        bodies = "".join(self.waiting)
        self.waiting = []
        return "\n" + bodies

    # ---- white space, comments, continuations

    def blank(self) -> str:
        if not self.chance(12):
            return " "
        return self.pick("  ", "\t", " \\\n", "\\\n ", " \\\n\t", "\t \t", " \\\n\\\n")

    def comment(self) -> str:
        self.used["comment"] += 1
        start = self.pick(" #", " # ", "#", " \\\n#", ";#", " #!", "\t#")
        return start + "".join(self.comment_piece() for _ in range(self.rng.randrange(3)))

    def comment_piece(self) -> str:
        return self.draw(
            self.leaf,
            lambda: "\\",
            lambda: "'",
            lambda: '"',
            lambda: "`",
            lambda: "$(",
            lambda: "<<E",
            lambda: "\\\n" + self.leaf(),
            lambda: " x",
            lambda: "}",
            lambda: ")",
            self.word,
        )

    # ---- commands

    def leaf(self) -> str:
        """A command of its own kind: what runs can be told apart by its number."""
        self.number += 1
        program = self.pick(*HARMLESS) if self.chance(2) else self.pick(*HARMFUL)
        return f"{program} {self.number}"

    def list_(self) -> str:
        count = self.rng.choice((1, 1, 1, 2, 2, 3)) if self.depth < 5 else 1
        text = self.pipeline()
        for _ in range(count - 1):
            text += self.separator() + self.pipeline()
        return text + (self.pick(" &", ";", "&", "") if self.chance(6) else "")

    def separator(self) -> str:
        drawn = self.pick(
            "; ",
            ";",
            " && ",
            "||",
            " || ",
            "&&",
            " & ",
            "\n",
            "&& \n",
            ";\\\n",
            " &&\\\n",
            "|| # x\n",
        )
        if "\n" not in drawn or drawn.endswith("\\\n"):
            return drawn
        return drawn.rstrip("\n") + self.newline()

    def pipeline(self) -> str:
        text = self.command()
        while self.chance(6):
            text += self.pick(" | ", "|", " |& ", "|\\\n") + self.command()
        if self.chance(20):
            text = self.pick("! ", "time ", "time -p ", "! ! ", "!\t", "time -- ") + text
        return text

    def command(self) -> str:
        return self.draw(
            self.simple,
            self.simple,
            self.simple,
            self.simple,
            self.simple,
            self.simple,
            self.compound,
            self.builtin,
            self.builtin,
            self.set_in_some_way,
            self.moved,
            self.wrapped,
            self.assigned,
            self.redirected,
            self.here,
            self.conditional,
        )

    def simple(self) -> str:
        text = self.leaf()
        for _ in range(self.rng.randrange(3)):
            text += self.blank() + self.word()
        return self.mangled(text) if self.chance(15) else text

    def mangled(self, text: str) -> str:
        """Another spelling of a command's first word."""
        name, _, rest = text.partition(" ")
        at = self.rng.randrange(1, len(name)) if len(name) > 1 else 1
        first, last = name[:at], name[at:]
        spelled = self.pick(
            f"\\{name}",
            f"'{first}'{last}",
            f'"{name}"',
            f"{first}\\\n{last}",
            f"$'{name}'",
            f"{first}''{last}",
            f"{{{name},}}",
            f"$'\\x{ord(name[0]):02x}'{name[1:]}",
            f'{first}"{last}"',
            f"${{E-{name}}}",
            f"$(echo {name})",
            f"{first}$E{last}",
            f'$"{name}"',
            f"{first}\\{last}",
            f"${{E:={name}}}",
        )
        return f"{spelled} {rest}"

    def wrapped(self) -> str:
        return self.pick(
            "nice ",
            "nice -n 3 ",
            "nohup ",
            "timeout 5 ",
            "command ",
            "builtin ",
            "env ",
            "env A=1 ",
            "xargs ",
            "exec ",
            "command -p ",
            "exec -a x ",
            "xargs -n1 ",
            "setsid ",
            "env -i ",
            "timeout -s KILL 5 ",
            "echo x | xargs ",
            "command -- ",
            "exec -- ",
            "nice -- ",
            "nice timeout 5 ",
            "env -S ",
            "exec -c ",
            "time command ",
        ) + self.draw(self.leaf, self.word, self.simple, lambda: f"bash -c {self.quoted_program()}")

    def quoted_program(self) -> str:
        """A program as one word, for `bash -c`, `eval` and the like."""
        inner = self.pick(self.leaf(), self.leaf(), self.compound_small())
        return self.quote(inner)

    def compound_small(self) -> str:
        kept = self.waiting
        self.waiting = []
        text = self.list_()
        if self.waiting:
            text += self.newline()
        self.waiting = kept
        return text

    def quote(self, text: str) -> str:
        if self.chance(3):
            return (
                '"'
                + text.replace("\\", "\\\\")
                .replace('"', '\\"')
                .replace("`", "\\`")
                .replace("$", "\\$")
                + '"'
            )
        if self.chance(4):
            return "$'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
        return "'" + text.replace("'", "'\\''") + "'"

    def assigned(self) -> str:
        name = self.pick("A", "B", "a", "PATH", "PS4", "IFS", "BASH_ENV", "LANG", "x")
        operator = self.pick("=", "=", "=", "+=")
        value = self.draw(
            lambda: "1", self.word, self.array, lambda: "", lambda: "~/x:~", lambda: "evil"
        )
        target = self.pick(name, name, name, f"a[{self.subscript()}]")
        return f"{target}{operator}{value}" + ("" if self.chance(2) else " " + self.leaf())

    def name(self) -> str:
        """The name of a variable that something sets."""
        return self.pick(*SPECIAL) if self.chance(2) else self.pick("i", "x", "N", "A", "fd")

    def value(self) -> str:
        """A value that does something where it is evaluated, or where programs are looked for."""
        return self.draw(
            lambda: f"'a[$({self.leaf()})]'",
            lambda: "evil",
            lambda: "..",
            lambda: '"$N"',
            self.word,
        )

    def set_in_some_way(self) -> str:
        """A variable is set in one of all the ways, and something may run after it."""
        name = self.name()
        text = self.draw(
            lambda: f"for {name} in {self.value()}; do {self.leaf()}; done",
            lambda: f"select {name} in {self.value()}; do {self.leaf()}; break; done <<< 1",
            lambda: f"printf -v {name} %s {self.value()}",
            lambda: f"printf -v{name} %s {self.value()}",
            lambda: f'for i in -v{name}; do printf "$i" {self.value()}; done',
            lambda: f"read {name} <<< {self.value()}",
            lambda: f"read -ra{name} <<< {self.value()}",
            lambda: f"mapfile {name} <<< {self.value()}",
            lambda: f"getopts {self.pick('a', '-- a', '-- -a')} {name} -a",
            lambda: f"wait -n -p{name}",
            lambda: f"{self.pick('declare', 'export', 'readonly')} {name}={self.value()}",
            lambda: f"echo {{{name}}}{self.pick('<data', '>&-', '>/dev/null', '<<<x')}",
            lambda: f"coproc {name} {{ {self.leaf()}; }}",
            lambda: f"echo ${{{name}{self.pick(':=', '=')}{self.value()}}}",
            lambda: f"(({name}={self.arithmetic()}))",
            lambda: f"echo ${{a[{name}=1]}}",
            lambda: f"{name}={self.value()}",
            lambda: f"unset {name}",
        )
        return text + self.pick("", "; ", "\n" if not self.waiting else "; ") + self.pick("", "ls")

    def array(self) -> str:
        values = (self.word, self.substitution)
        items = [
            self.pick("", f"[{self.subscript()}]=", "[0]=") + self.pick(*values)()
            for _ in range(self.rng.randrange(3))
        ]
        return "(" + self.pick(" ", "\n", " #x'\n").join(items) + ")"

    def subscript(self) -> str:
        return self.draw(
            lambda: "0",
            self.arithmetic,
            lambda: "@",
            lambda: "N",
            self.substitution,
            self.double,
            lambda: "-1",
        )

    # ---- compound commands

    def compound(self) -> str:
        return self.draw(
            self.group,
            self.subshell,
            self.loop,
            self.loop,
            self.branch,
            self.case,
            self.case,
            self.function,
            self.function,
            self.arithmetic_command,
            self.coproc,
            self.select,
        ) + (self.redirect() if self.chance(6) else "")

    def body(self) -> str:
        """A list that something ends: a `;` or a newline behind it."""
        text = self.list_()
        if text.endswith(("&", ";")):
            return text + " "
        return text + (self.newline() if self.waiting or self.chance(4) else "; ")

    def group(self) -> str:
        return "{ " + self.body() + "}"

    def subshell(self) -> str:
        text = self.list_()
        if self.waiting:
            text += self.newline()
        return self.pick("(", "( ") + text + ")"

    def loop(self) -> str:
        head = self.draw(
            lambda: f"for i in {self.words()}",
            lambda: f"for {self.name()} in {self.value()}",
            lambda: "for i in 1",
            lambda: f"for i in\\\n {self.word()}",
            lambda: f"while {self.body()}break; ",
            lambda: f"until {self.body()}",
            lambda: f"for ((i=0;i<1;i++{self.pick('', ',' + self.arithmetic())}))",
            lambda: f"for (({self.arithmetic()};0;))",
            lambda: "for i",
        )
        separator = (
            ""
            if head.endswith(("; ", "\n"))
            else self.pick("; ", ";", "\n")
            if not self.waiting
            else self.newline()
        )
        inner = self.body()
        if head.startswith(("while", "until")):
            inner += "break; "
        if head.startswith("for") and self.chance(5):
            return head + separator + "{ " + inner + "}"
        return head + separator + "do " + inner + "done"

    def select(self) -> str:
        return f"select {self.name()} in {self.words()}; do {self.body()}break; done"

    def branch(self) -> str:
        text = f"if {self.body()}then {self.body()}"
        if self.chance(3):
            text += f"elif {self.body()}then {self.body()}"
        if self.chance(3):
            text += f"else {self.body()}"
        return text + "fi"

    def case(self) -> str:
        text = f"case {self.word()} in{self.pick(' ', chr(10), ' #x' + chr(10))}"
        for _ in range(self.rng.randrange(1, 3)):
            text += (
                self.pick("", "(")
                + "|".join(self.pattern() for _ in range(self.rng.choice((1, 1, 2))))
                + ")"
            )
            text += self.pick(" ", "") + self.list_()
            if self.waiting:
                text += self.newline()
            text += self.pick(";;", ";&", ";;&", " ;; ", ";;\n")
        return text + " esac"

    def pattern(self) -> str:
        return self.draw(
            lambda: "*",
            self.word,
            lambda: "a*",
            lambda: "[a-z]",
            lambda: "@(a|b)",
            lambda: "'x'",
            lambda: "?",
            lambda: '"$W"',
            lambda: "\\)",
            lambda: "esac",
            lambda: "[[:alpha:]#]",
            lambda: "+([0-9])",
        )

    def function(self) -> str:
        name = self.pick("f", "ls", "ok", "git", "f-g", "echo", "cat", "a.b")
        head = self.pick(
            f"{name}() ",
            f"function {name} ",
            f"function {name}() ",
            f"{name} () ",
            f"{name}()\n",
            f"{name} ( ) ",
        )
        body = self.draw(
            self.group,
            self.subshell,
            self.group,
            lambda: f"if ok; then {self.body()}fi",
            self.arithmetic_command,
        )
        return head + body + self.pick("", f"; {name} {self.number}", f"\n{name}")

    def coproc(self) -> str:
        return "coproc " + self.draw(
            self.leaf, self.group, lambda: f"{self.name()} {self.group()}", self.simple
        )

    def arithmetic_command(self) -> str:
        return "((" + self.arithmetic() + "))"

    def conditional(self) -> str:
        inner = self.draw(
            lambda: f"{self.word()} == {self.pattern()}",
            lambda: f"{self.word()} =~ {self.regex()}",
            lambda: f"{self.word()} -eq {self.word()}",
            lambda: f"-n {self.word()}",
            lambda: f"-v {self.variable_name()}",
            lambda: f"-f {self.word()} && {self.word()} != {self.pattern()}",
            lambda: f"! ( -z {self.word()} )",
            lambda: f"{self.word()} < {self.word()}",
            lambda: f"-R {self.variable_name()}",
            lambda: f"1 -lt {self.arithmetic()}",
        )
        return f"[[ {inner} ]]"

    def regex(self) -> str:
        return self.draw(
            lambda: "a",
            lambda: "^(a|b)$",
            self.word,
            lambda: "[[:space:]]",
            lambda: "(#|x)",
            lambda: "a\\ b",
            lambda: "$N",
        )

    def variable_name(self) -> str:
        return self.draw(
            lambda: "N",
            lambda: f"a[{self.subscript()}]",
            lambda: f"'a[$({self.leaf()})]'",
            lambda: '"$N"',
            lambda: "$N",
        )

    # ---- built-ins that evaluate

    def builtin(self) -> str:
        program = self.quoted_program
        name = self.variable_name
        number = self.arithmetic
        return self.draw(
            lambda: f"eval {program()}",
            lambda: f"eval {self.leaf()}",
            lambda: f"trap {program()} {self.pick('EXIT', 'DEBUG', 'ERR', 'RETURN', '0')}",
            lambda: f"trap -- {program()} EXIT",
            lambda: f"mapfile -C {program()} -c 1 a < data",
            lambda: f"readarray -c1 -C {program()} a < data",
            lambda: f"mapfile -tC{program()} -c 1 a < data",
            lambda: f"complete -C {program()} x",
            lambda: f"complete -F {self.pick('f', 'ls')} x",
            lambda: f"compgen -C {program()} x",
            lambda: f"compgen -W {self.quote('$(' + self.leaf() + ')')}",
            lambda: "compgen -F f x",
            lambda: (
                f"compgen -{self.pick('P', 'S', 'X')} {self.quote('$(' + self.leaf() + ')')} -W "
                "'a b'"
            ),
            lambda: f"bind -x '\"x\":{self.leaf()}'",
            lambda: f"printf -v {name()} x",
            lambda: f"printf -v{name()} x",
            lambda: f"read {name()} < data",
            lambda: "read -a a < data",
            lambda: f"test -v {name()}",
            lambda: f"[ -v {name()} ]",
            lambda: f"[ 1 -eq {self.word()} ]",
            lambda: f"test {self.word()} -eq {self.word()}",
            lambda: f"let {self.quote(number())}",
            lambda: f"let x={self.word()}",
            lambda: f"declare -i x={self.word()}",
            lambda: f"declare -n r={name()}; r=1; echo $r",
            lambda: f"declare {name()}=1",
            lambda: f"declare -a {self.quote('a=($(' + self.leaf() + '))')}",
            lambda: f"unset {name()}",
            lambda: f"unset -v {name()}",
            lambda: f"export A={self.word()}",
            lambda: f"readonly R={self.word()}",
            lambda: f"local x={self.word()}",
            lambda: f"declare -i x; x={name()}",
            lambda: "typeset -i x=N",
            lambda: f"PS4={self.quote('$(' + self.leaf() + ')')}; set -x; ok",
            lambda: f"set -x; ok {self.word()}",
            lambda: "BASH_ENV=./script.sh bash -c ok",
            lambda: "ENV=./script.sh sh -c ok",
            lambda: f"PROMPT_COMMAND={program()} bash -c ok",
            lambda: (
                "source "
                f"{self.pick('./script.sh', 'data', '/dev/stdin <<< ' + program(), '<(echo ' + program() + ')')}"
            ),
            lambda: f". {self.pick('./script.sh', 'script.sh', '<(say)')}",
            lambda: "enable -f ./x.so foo",
            lambda: "enable -n echo; echo",
            lambda: f"hash -p {self.pick('evil/ls', '$PWD/../stubs/touch')} ls; ls {self.number}",
            lambda: f"exec {self.leaf()}",
            lambda: f"exec 3> {self.file()}",
            lambda: f"command eval {program()}",
            lambda: f"builtin eval {program()}",
            lambda: f"command -v {self.word()}",
            lambda: f"shopt -s expand_aliases; alias ls={program()}\nls",
            lambda: f"shopt -s expand_aliases\nalias q={program()} z='ls '\nz q",
            lambda: f"BASH_ALIASES[ls]={program()}; shopt -s expand_aliases\nls",
            lambda: (
                "shopt -s "
                f"{self.pick('extglob', 'nullglob', 'lastpipe', 'globstar', 'expand_aliases', 'xpg_echo', 'nocasematch', 'patsub_replacement')}"
            ),
            lambda: (
                "set "
                f"-{self.pick('e', 'f', 'u', 'o pipefail', 'o posix', 'a', 'k', 'B', 'n', 'v', 'T')}"
            ),
            lambda: f"set -- {self.words()}; $1",
            lambda: "set -k; ls A=1",
            lambda: f"cd {self.pick('dir', 'evil', '..', '-', '$W')}",
            lambda: f"pushd dir; {self.leaf()}",
            self.moved,
            self.moved,
            lambda: f"getopts a {name()}",
            lambda: f"wait -n -p {name()}",
            lambda: f"bash -c {program()}",
            lambda: f"sh -c {program()}",
            lambda: f"bash -c {program()} x {self.word()}",
            lambda: f"bash <<< {program()}",
            lambda: f"echo {program()} | bash",
            lambda: f"bash -x -c {program()}",
            lambda: f"bash -ec {program()}",
            lambda: f"bash +e -c {program()}",
            lambda: f"bash -O extglob -c {program()}",
            lambda: f"bash --rcfile x -c {program()}",
            lambda: f"env bash -c {program()}",
            lambda: "bash script.sh",
            lambda: "bash -s < list",
            lambda: (
                "while read l; do "
                f"{self.pick('$l', 'eval $l', 'echo $((l))', 'echo $l', 'unset $l', 'printf -v $l x')}; "
                "done < data"
            ),
            lambda: f"history -s {self.word()}",
            lambda: "fc -s x",
            lambda: f"echo {self.leaf()} > /dev/tcp/host/80",
            lambda: f"kill -{self.pick('0', 'TERM')} $$",
            lambda: f"shopt -u sourcepath; type {self.word()}",
            lambda: f"umask {self.word()}",
            lambda: f"return {self.word()}",
            lambda: f"exit {self.word()}",
            lambda: f"shift {self.word()}",
            lambda: f"ulimit -n {self.word()}",
            lambda: f"declare -f f; f() {{ {self.body()}}}; export -f f; bash -c f",
            lambda: f"env 'BASH_FUNC_ls%%=() {{ {self.leaf()}; }}' bash -c ls",
            lambda: f"export -n {name()}",
            lambda: "unalias -a",
            lambda: (
                f"declare -A m=([{self.subscript()}]={self.word()}); echo "
                f"${{m[{self.subscript()}]}}"
            ),
            lambda: f"declare -l x={self.word()}",
            lambda: f"alias ls={program()}",
            lambda: 'eval "$P"',
            lambda: "$P",
            lambda: "$C",
            lambda: "$X 1",
            lambda: '"$X" 2',
            lambda: "${!REF}",
        )

    def moved(self) -> str:
        """A `cd`, and what could start in another folder for it."""
        folder = self.pick(
            "dir",
            "evil",
            "..",
            "dir/..",
            "nowhere",
            "./dir",
            "../box/evil",
            "/tmp/fuzz/box/dir",
            ".",
            "-P dir",
            "",
            "~",
            "data",
        )
        start = self.pick(
            "",
            "",
            "",
            "",
            "CDPATH=/tmp/fuzz ",
            "CDPATH=..; ",
            "PWD=dir ",
            "command ",
            "builtin ",
            "! ",
            "eval ",
            "nice ",
        )
        text = start + f"cd {folder}"
        for _ in range(self.rng.randrange(1, 4)):
            text += self.pick(
                " && ", " || ", "; ", " & ", " | ", "\n" if not self.waiting else "; "
            )
            text += self.draw(
                self.leaf,
                lambda: f"{self.leaf()} > out",
                lambda: f"{self.leaf()} > out/x",
                lambda: f"cd {self.pick('dir', '..', 'evil', '../dir', '-')}",
                self.command,
            )
        if self.waiting:
            return text
        return self.pick(text, text, f"({text})", f"({text}) > out", f"{{ {text}; }}")

    # ---- redirections

    def file(self) -> str:
        self.number += 1
        return self.pick(
            f"out{self.number}",
            f"out{self.number}",
            self.word(),
            f"'o u{self.number}'",
            "/dev/null",
            "$L",
            "*.txt",
            f"{{o,p}}{self.number}",
            f"/dev/fd/../cwd/kept{self.number}",
            f"/dev/fd/../root/../../tmp/fuzz/box/kept{self.number}",
            f"/dev/{self.pick('stdout', 'null', 'fd/1')}/../../tmp/fuzz/box/kept{self.number}",
        )

    def redirect(self) -> str:
        operator = self.pick(
            ">",
            ">>",
            "2>",
            "<",
            "&>",
            ">|",
            "<>",
            ">&",
            "2>&1",
            "&>>",
            "{fd}>",
            "3<",
            "10>",
            "<&-",
            ">&2",
            "<&0",
            "1>&2-",
            "3<>",
            "{fd}<&-",
            "{a[0]}>",
            "{fd}>>",
            f"{{{self.name()}}}<",
            f"{{{self.name()}}}>&-",
            "2>>",
            "0<",
        )
        if operator[-1] in "-012" and "&" in operator:
            return " " + operator
        return (
            " "
            + operator
            + self.pick("", " ", "\\\n", "\t")
            + (self.pick("data", "list", "b.txt") if operator[-1] == "<" else self.file())
        )

    def redirected(self) -> str:
        if self.chance(4):
            return self.redirect().strip() + " " + self.leaf()
        text = self.leaf() + self.redirect()
        if self.chance(3):
            text += " " + self.word()
        if self.chance(3):
            text += self.redirect()
        return text

    def here(self) -> str:
        command = self.pick(
            self.leaf(), "cat", "bash", "while read l; do " + self.leaf() + "; done", "sh", ": "
        )
        if self.chance(5):
            return f"{command} <<<{self.blank()}{self.word()}"
        tabs = self.chance(3)
        name = self.pick("E", "E", "EOF", "E1", "_", "E-F", "É")
        quoted = self.pick(
            name,
            name,
            name,
            f"'{name}'",
            f'"{name}"',
            f"\\{name}",
            f"{name[:1]}''{name[1:]}",
            f"$'{name}'",
            f'$"{name}"',
        )
        body = "".join(self.here_line(name, tabs) for _ in range(self.rng.randrange(3)))
        self.waiting.append(body + ("\t" * self.rng.randrange(2) if tabs else "") + name + "\n")
        operator = "<<-" if tabs else "<<"
        text = (
            f"{command} "
            f"{self.pick('', '', '', '0', '3')}{operator}{self.pick('', '', ' ', chr(92) + chr(10))}{quoted}"
        )
        if self.chance(4):
            text += self.pick(" | ", " && ", "; ", " >", " ") + self.leaf()
        if self.chance(8):
            text += " #" + self.pick("\\", "'", "")
        if self.chance(8):
            text += " " + self.here()
        return text

    def here_line(self, name: str, tabs: bool) -> str:
        if tabs and self.chance(2):
            return "\t" + self.pick(self.substitution(), self.backticks()) + "\n"
        start = "\t" * self.rng.randrange(3) if tabs else self.pick("", "", " ", "\t")
        piece = self.draw(
            self.leaf,
            self.word,
            self.expansion,
            self.substitution,
            self.backticks,
            lambda: f"$(\n{self.leaf()})",
            lambda: f"\\$({self.leaf()})",
            lambda: name + " ",
            lambda: "'" + self.substitution() + "'",
            lambda: '"' + self.backticks(),
            lambda: f"{name}\\",
            lambda: "\\",
            lambda: f"\\\\`{self.leaf()}`",
            lambda: "#" + self.backticks(),
            lambda: f"$\\\n({self.leaf()})",
            lambda: "$((" + self.arithmetic() + "))",
            lambda: f"\\`{self.leaf()}\\`",
            lambda: "$'" + self.leaf() + "'",
            lambda: " x " + self.expansion() + "'",
        )
        return start + piece + "\n"

    # ---- words

    def words(self) -> str:
        return " ".join(self.word() for _ in range(self.rng.randrange(1, 3)))

    def word(self) -> str:
        text = self.piece()
        while self.chance(5):
            text += self.piece()
        return text

    def piece(self) -> str:
        return self.draw(
            self.plain,
            self.plain,
            self.plain,
            self.single,
            self.double,
            self.double,
            self.ansi,
            self.translated,
            self.substitution,
            self.backticks,
            self.expansion,
            self.expansion,
            self.arithmetic_expansion,
            self.process,
            self.brace,
            self.glob,
            self.escaped,
            self.odd,
        )

    def plain(self) -> str:
        return self.pick(
            "a",
            "b.txt",
            "-x",
            "x=1",
            "a#b",
            "1",
            "~",
            "~/x",
            "$N",
            "$W",
            "$E",
            "$@",
            "$1",
            "-delete",
            "--",
            "é",
            "{}",
            "=",
            "@",
            "%",
            "a:b",
        )

    def single(self) -> str:
        return (
            "'"
            + self.pick(
                "", "a b", "#", "`", "$(x)", '"', "\\", "a\nb", "E\n", "a\\\nb", "${x}", "$(("
            )
            + "'"
        )

    def double(self) -> str:
        return '"' + "".join(self.in_double() for _ in range(self.rng.randrange(3))) + '"'

    def in_double(self) -> str:
        return self.draw(
            lambda: "a b",
            lambda: "#",
            lambda: "'",
            self.substitution,
            self.backticks,
            self.expansion,
            self.arithmetic_expansion,
            lambda: '\\"',
            lambda: "\\\\",
            lambda: "\\$(x)",
            lambda: "\\\n",
            lambda: "$",
            lambda: "\\`",
            lambda: "\n",
            lambda: "$'",
            lambda: "~",
            lambda: "{a,b}",
            lambda: "!",
        )

    def ansi(self) -> str:
        return (
            "$'"
            + self.pick(
                "a",
                "\\'",
                "\\n",
                "\\x24(x)",
                "#",
                "\\\\",
                "a b",
                "\\'; x",
                "\\c'",
                "\\u0041",
                "\\0",
                "`",
                '"',
                "\\x27",
                "\\cx",
            )
            + "'"
        )

    def translated(self) -> str:
        return "$" + self.double()

    def substitution(self) -> str:
        inner = self.draw(
            self.leaf,
            self.inner,
            lambda: "<" + self.pick("data", "b.txt", " data", "$L", " b.txt | cat"),
            lambda: f"{self.leaf()} # )\n",
            lambda: f"case a in a) {self.leaf()};; esac",
            lambda: f"\n{self.leaf()}\n",
            lambda: f"( {self.leaf()} )",
            lambda: f"# '\n{self.leaf()}",
            lambda: f"cat <<E\n{self.word()}\nE\n",
            lambda: f"case a in (a) {self.leaf()} ;; esac",
            lambda: "",
            lambda: f"echo {self.leaf()}",
        )
        return "$(" + inner + ")"

    def inner(self) -> str:
        return self.compound_small()

    def backticks(self) -> str:
        inner = self.draw(
            self.leaf,
            self.inner,
            lambda: f"{self.leaf()} #",
            lambda: f"\\`{self.leaf()}\\`",
            lambda: f"echo \\$({self.leaf()})",
            lambda: f"\\\n{self.leaf()}",
            lambda: "<data",
        )
        return "`" + (inner if self.chance(3) else inner.replace("`", "\\`")) + "`"

    def process(self) -> str:
        return self.pick("<(", ">(") + self.draw(self.leaf, self.inner) + ")"

    def arithmetic_expansion(self) -> str:
        if self.chance(10):
            return "$[" + self.arithmetic() + "]"
        return "$((" + self.arithmetic() + "))"

    def arithmetic(self) -> str:
        return self.draw(
            lambda: "1",
            lambda: "1 + 2",
            lambda: "N",
            lambda: "x=1",
            self.substitution,
            lambda: f"a[{self.substitution()}]",
            self.expansion,
            lambda: "a[0]",
            lambda: "16#ff",
            lambda: "x++",
            lambda: f"1 ? {self.backticks()} : 2",
            lambda: '"1"',
            lambda: "'1'",
            lambda: "$N",
            lambda: "(1)",
            lambda: "1,2",
            lambda: f"$(( {self.arithmetic()} ))",
            lambda: "1 <<2",
            lambda: "#",
        )

    def parameter(self) -> str:
        return (
            self.pick(
                "x",
                "N",
                "W",
                "E",
                "@",
                "*",
                "1",
                "#",
                "a[0]",
                "a[@]",
                "PATH",
                "?",
                "-",
                "!",
                "HOME",
                "10",
                *SPECIAL[:2],
                "CDPATH",
                "IFS",
            )
            if not self.chance(8)
            else f"a[{self.subscript()}]"
        )

    def expansion(self) -> str:
        name = self.parameter()
        operator = self.pick(
            ":-",
            "-",
            ":=",
            "=",
            ":+",
            "+",
            "#",
            "##",
            "%",
            "%%",
            "/",
            "//",
            "/#",
            "/%",
            "^",
            "^^",
            ",",
            ":?",
            ",,",
            "~",
        )
        word = self.draw(
            lambda: "",
            self.word,
            self.substitution,
            self.backticks,
            self.double,
            self.single,
            lambda: "a b",
            lambda: "}",
            lambda: "\\}",
            self.expansion,
            lambda: "#",
            lambda: "'",
            lambda: '"$(' + self.leaf() + ')"',
            lambda: f"{self.word()}/{self.word()}",
        )
        return self.draw(
            lambda: "${" + name + "}",
            lambda: "${" + name + operator + word + "}",
            lambda: "${" + name + operator + word + "}",
            lambda: "$x",
            lambda: "${#" + name + "}",
            lambda: "${!" + name + "}",
            lambda: "${" + name + "@" + self.pick("P", "Q", "A", "E", "a", "U", "K", "k") + "}",
            lambda: "${" + name + ":" + self.arithmetic() + "}",
            lambda: "${" + name + ":" + self.arithmetic() + ":" + self.arithmetic() + "}",
            lambda: "${!" + self.pick("P*", "P@", "a[@]", "REF", "N") + "}",
            lambda: "${" + name + operator + "\\\n" + word + "}",
            lambda: "$" + self.pick("#", "$", "!", "*", "-", "?", "_", "0"),
            lambda: "${ " + self.leaf() + "; }",
            lambda: "$\\\n{" + name + operator + word + "}",
        )

    def brace(self) -> str:
        return self.pick(
            "{a,b}",
            "{1..3}",
            "{a,}",
            "{,-delete}",
            "{a,b}c",
            "{a, b}",
            "{" + self.word() + ",b}",
            "{a..c..2}",
            "\\{a,b}",
            "{touch,x}",
        )

    def glob(self) -> str:
        return self.pick(
            "*",
            "?",
            "[ab]*",
            "*.txt",
            "[!a]",
            "@(a|b)",
            "!(a)",
            "?(x)",
            "+(" + self.word() + ")",
            "[[:alpha:]]*",
            "**",
            "[a",
            "a]",
            "[#]",
            "[$W]",
        )

    def escaped(self) -> str:
        return "\\" + self.pick(
            "a",
            "#",
            " ",
            "'",
            '"',
            "$",
            "`",
            "\\",
            "(",
            ")",
            ";",
            "&",
            "|",
            "\n",
            "{",
            "}",
            "<",
            "~",
            "*",
            "!",
            "é",
        )

    def odd(self) -> str:
        return self.pick(
            "\t",
            "$",
            "''",
            '""',
            "é",
            "ü#",
            "\u00a0",
            "\r",
            "\x0b",
            "\x0c",
            "\x01",
            "\x7f",
            "\u2028",
            "\udc80",
            "\udcff",
            "$;",
            "#x",
            " #",
            "!",
            "\\\n#",
            "}",
            "{",
            "]]",
            "do",
            "in",
            "if",
            "esac",
            "time",
            "[",
            "!x",
            "$'",
            "^",
        )

    # ---- damage

    def damage(self, text: str) -> str:
        """A few characters that are not where the rules put them."""
        self.used["damage"] += 1
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            at = self.rng.randrange(len(text) + 1)
            kind = self.rng.randrange(5)
            if kind == 0:
                text = text[:at] + "\\\n" + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + 1 :]
            elif kind == 2:
                text = (
                    text[:at]
                    + self.pick(
                        "#",
                        "'",
                        '"',
                        "`",
                        "\\",
                        "$",
                        "(",
                        ")",
                        "{",
                        "}",
                        "\n",
                        "\t",
                        ";",
                        "&",
                        "|",
                        "<",
                        ">",
                        " ",
                        " #",
                        "<<E",
                        "$(",
                        "\\\n#",
                        "!",
                        "=",
                        "[",
                        "]",
                        "E\n",
                        "((",
                        "))",
                        "$'",
                        "${",
                        "*",
                        "~",
                        "\r",
                    )
                    + text[at:]
                )
            elif kind == 3:
                end = min(len(text), at + self.rng.randrange(1, 12))
                other = self.rng.randrange(len(text) + 1)
                text = text[:other] + text[at:end] + text[other:]
            else:
                text = text[:at] + self.pick(" ", "\t", "\n", "") + text[at + 1 :]
        return text
