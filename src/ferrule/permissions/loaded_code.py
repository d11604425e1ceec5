"""What a command line loads as code, and whether commands can write it.

    program = trust_command_line(("node", "/opt/server.js"), search_path, "/work", writable)
    trust_shell_text("sh ~/hooks/check.sh", search_path, "/work", writable)

A program that is started with more rights than commands have must not run anything that commands
can write: not itself, not the interpreter in its first line, not a script, module or package that
its arguments or variables name. Rules:

* The program is found by `provenance.find_program`.
* An argument that names an existing file which commands can write counts as code, whatever the
  program: a script, a library, a file of settings that names more of them. Folders are data.
* The first operand of an interpreter counts whether it exists or not. Without one, it loads from
  the folder where it starts, and so do Python's `-m` and `-c` without `-P` or `-I`.
* Programs that look for their code, or for settings that name it, where they start (`npm`, `make`,
  `uv run`, `pytest`, `eslint`, `git`, …) are trusted only where commands cannot write.
* A shell's text is analysed; what only the shell knows is not trusted.

Not covered: what a trusted program starts by itself later, for example a script that runs the tests
of a project, and what a container loads from a folder that it is given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ferrule.core.lazy_patterns import compile_lazily

from .command_analysis.analysis import analyse_command
from .command_analysis.program_facts import INTERPRETERS, PLAIN, SHELLS, program_name, word_set
from .command_analysis.syntax import CommandPart
from .command_variables import controls_programs, loads_code
from .provenance import (
    CommandWritable,
    Origin,
    TrustedProgram,
    UntrustedPath,
    find_program,
    trust_search_path,
)

_OWN_INTERPRETERS = SHELLS | INTERPRETERS | word_set("java")
_WRAPPERS = word_set("env nice nohup timeout stdbuf time setsid ionice xargs command sudo doas")
_PACKAGE_RUNNERS = word_set("uvx pipx")
"""Programs that fetch and run a package, which may also be a folder that they are given."""
_FOLDER_LOADERS = word_set("""
    npm npx pnpm pnpx yarn bun bunx corepack uv poetry pdm pipenv hatch rye pixi conda tox nox make
    gmake just task rake bundle composer cargo go mvn gradle nx turbo lerna rush moon direnv mise
    asdf nix nix-shell guix devbox docker-compose ant ninja cmake meson scons bazel buck2 pants
    pip pip3 git hg jj svn gh pre-commit lefthook husky
    tsx ts-node Rscript R octave iex mix clojure clj lein sbt scala-cli swift zig dart flutter
    dotnet pytest jest vitest mocha ava karma cypress playwright rspec phpunit
    mypy pylint flake8 black isort sphinx-build mkdocs eslint prettier stylelint tsc rubocop biome
    webpack vite rollup esbuild next nuxt ng gulp grunt nodemon invoke inv fab ipython jupyter
    ansible ansible-playbook terraform tofu pulumi cdk serverless vagrant packer act earthly dagger
    wrangler firebase foreman honcho overmind fastlane pod xcodebuild
    claude codex gemini aider opencode ferrule""")
"""Programs that look for their code, or for settings that name it, in the folder they start in."""
_CONTAINERS = word_set("docker podman nerdctl")
_CONTAINER_FOLDER_VERBS = word_set("compose build buildx bake")
_READERS = PLAIN | word_set("exit return wait sleep jq")
"""Programs and built-ins that load no code, whatever they read."""
_VERSION = compile_lazily(r"[0-9.]+t?$")
_NUMBER = compile_lazily(r"-?[0-9.]+[a-z]?")
_ASSIGNMENT = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PYTHON_CODE = compile_lazily(r"-[A-Za-z]*[mc]")
_PYTHON_ALONE = compile_lazily(r"-[A-Za-z]*[IP][A-Za-z]*")
_PLACEHOLDER = compile_lazily(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_PLAIN_PATH = compile_lazily(r"[A-Za-z0-9_./@+-]+")
_ELSEWHERE = "put it outside the workspace and the folders that are opened for writing"


def trust_command_line(
    words: Sequence[str], search_path: str, folder: str, writable: CommandWritable
) -> TrustedProgram:
    """Return the program of a command line that loads nothing which commands can write.

    Args:
        words: The program and its arguments.
        search_path: The PATH.
        folder: Absolute path of the folder where it starts.
        writable: What commands can write.

    Raises:
        ProgramNotFound: There is no such program, or commands can write it.
        UntrustedPath: It would load what commands can write.
    """
    name = os.path.expanduser(words[0])  # noqa: PTH111  text, as it was written
    if "/" in name:
        name = os.path.join(folder, name)  # noqa: PTH118  as above
    program = find_program(
        name, search_path, writable, origin=Origin.PERSON, reason="named by a command line"
    )
    check = _Check(_base_name(words[0]), folder, writable)
    check.check_first_line(program)
    check.check_files(words[1:])
    if check.name in _WRAPPERS:
        rest = _skip_own_words(words[1:])
        if rest:
            trust_command_line(rest, search_path, folder, writable)
    else:
        check.check_code(words[1:])
    return program


def trust_shell_text(
    text: str,
    search_path: str,
    folder: str,
    writable: CommandWritable,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Check that a text for a shell loads nothing which commands can write.

    Args:
        text: What the shell is given.
        search_path: The PATH.
        folder: Absolute path of the folder where it starts.
        writable: What commands can write.
        variables: Variables whose values are known; all others are not.

    Raises:
        ProgramNotFound: A program does not exist, or commands can write it.
        UntrustedPath: It would load what commands can write, or that cannot be told.
    """
    known = _fill_placeholders(text, variables or {})
    analysis = analyse_command(known, root=folder, home=os.path.expanduser("~"))  # noqa: PTH111  text
    problem = analysis.problem or analysis.over_limit
    if problem or not analysis.parts:
        raise _unclear(text, problem or "it starts nothing by name")
    for part in analysis.parts:
        _check_part(part, search_path, folder, writable)


def check_variables(variables: Mapping[str, str], folder: str, writable: CommandWritable) -> None:
    """Check that variables lead no program to code that commands can write.

    Raises:
        UntrustedPath: One of them does.
    """
    for name, value in variables.items():
        if not (loads_code(name) or controls_programs(name)):
            continue
        is_list = name.upper().endswith("PATH")
        for piece in re.split(r"[\s:]+", value):
            place = _locate(piece.rpartition("=")[2], folder)
            if not piece or not (is_list or "/" in piece or os.path.exists(place)):  # noqa: PTH110  text
                continue
            if writable.contains(place):
                raise _describe_untrusted(f"{name}={value}", place)


def trust_environment(variables: Mapping[str, str], writable: CommandWritable) -> dict[str, str]:
    """Return variables for a program with more rights than commands have.

    Those that name a place which commands can write are left out, such as an activated environment
    of the project, and lists lose such folders. Where programs are, keep their files, and start is
    no secret.
    """
    kept: dict[str, str] = {}
    for name, value in variables.items():
        if name in ("PWD", "OLDPWD", "HOME", "TMPDIR") or not value.startswith(("/", ":")):
            kept[name] = value
        elif name == "PATH" or ":" in value:
            kept[name] = trust_search_path(value, writable)
        elif not writable.contains(value):
            kept[name] = value
    return kept


class _Check:
    """The arguments of one program."""

    def __init__(self, name: str, folder: str, writable: CommandWritable) -> None:
        self.name = name
        self._folder = folder
        self._writable = writable

    def check_first_line(self, program: TrustedProgram) -> None:
        """Check the interpreter that the first line of a script names."""
        for word in _read_first_line(program.real)[:1]:
            if self._writable.contains(word):
                raise _describe_untrusted(program, word)

    def check_files(self, words: Sequence[str]) -> None:
        """Check each argument that names a file."""
        for word in words:
            for piece in _split_word(word):
                place = _locate(piece, self._folder)
                if os.path.isfile(place) and self._writable.contains(place):  # noqa: PTH113  text
                    raise _describe_untrusted(word, place)

    def check_code(self, words: Sequence[str]) -> None:
        """Check what the program takes for code by the position of its argument."""
        operand = next((word for word in words if not word.startswith("-")), None)
        options = list(words[: words.index(operand)]) if operand is not None else list(words)
        if self._loads_folder(operand, options):
            self._check_folder()
        elif self.name in _PACKAGE_RUNNERS:
            self._check_package(operand, options)
        elif self.name in _OWN_INTERPRETERS:
            self._check_script(operand, options)

    def _loads_folder(self, operand: str | None, options: Sequence[str]) -> bool:
        """Whether the program looks for code in the folder where it starts."""
        if self.name in _CONTAINERS:
            return operand in _CONTAINER_FOLDER_VERBS
        return self.name in _FOLDER_LOADERS and not self._has_own_prefix(options)

    def _has_own_prefix(self, options: Sequence[str]) -> bool:
        """Whether npx is told to look elsewhere than in the folder where it starts."""
        if self.name != "npx":
            return False
        prefixes = [word.partition("=")[2] for word in options if word.startswith("--prefix=")]
        return bool(prefixes) and not self._writable.contains(prefixes[-1])

    def _check_folder(self) -> None:
        if self._writable.contains(self._folder):
            raise UntrustedPath(
                self.name,
                self._folder,
                f"it loads what lies in `{self._folder}`, where commands can write",
                hint="start it in a folder outside the workspace (`cwd`)",
            )

    def _check_package(self, operand: str | None, options: Sequence[str]) -> None:
        for word in (*options, operand or ""):
            named = word.partition("=")[2] if word.startswith("-") else word
            place = _locate(named, self._folder)
            if named.startswith((".", "/", "~", "file:")) and self._writable.contains(place):
                raise _describe_untrusted(word, place)

    def _check_script(self, operand: str | None, options: Sequence[str]) -> None:
        if self.name in SHELLS and any("c" in word for word in options if word[1:2] != "-"):
            raise _unclear(operand or "", "it is a text for a shell")
        if self.name.startswith(("python", "pypy")):
            if any(map(_PYTHON_ALONE.fullmatch, options)):
                is_module = any(map(_PYTHON_CODE.match, options))
                operand = "/" if is_module else operand
            elif any(map(_PYTHON_CODE.match, options)):
                operand = None
        if operand is None:
            self._check_folder()
        elif self._writable.contains(_locate(operand, self._folder)):
            raise _describe_untrusted(operand, _locate(operand, self._folder))


def _check_part(
    part: CommandPart, search_path: str, folder: str, writable: CommandWritable
) -> None:
    if part.assignments or part.renamed or part.folders != ("",):
        raise _unclear(part.raw, "what it starts depends on variables, aliases or `cd`")
    check = _Check("", folder, writable)
    for redirect in part.redirects:
        if not redirect.target.is_known:
            raise _unclear(part.raw, "a file of it is known to the shell alone")
        if not redirect.write:
            check.check_files([redirect.target.text])
    known = [word for word in part.argv if word is not None]
    if known and known[0] in _READERS:
        check.check_files(known[1:])
    elif len(known) < len(part.argv):
        raise _unclear(part.raw, "a word of it is known to the shell alone")
    elif known:
        trust_command_line(known, search_path, folder, writable)


def _fill_placeholders(text: str, variables: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        value = variables.get(match[1] or match[2], "")
        return value if _PLAIN_PATH.fullmatch(value) else match[0]

    return _PLACEHOLDER.sub(fill, text)


def _base_name(word: str) -> str:
    """Return the name of a program without its folder and version: `python3.11` is `python`."""
    name = program_name(word)
    shorter = _VERSION.sub("", name)
    return name if name in _OWN_INTERPRETERS else shorter


def _skip_own_words(words: Sequence[str]) -> Sequence[str]:
    """Return what follows the options, assignments and numbers of a wrapper."""
    for index, word in enumerate(words):
        if not (word.startswith("-") or _ASSIGNMENT.fullmatch(word) or _NUMBER.fullmatch(word)):
            return words[index:]
    return ()


def _split_word(word: str) -> Iterator[str]:
    """Yield the parts of an argument that could be a path: `-I./a`, `--file=a`, `a:b`."""
    yield word
    if word.startswith("-") and not word.startswith("--"):
        yield word[2:]
    if re.search(r"[=:,@]", word):
        yield from re.split(r"[=:,@]", word)


def _locate(word: str, folder: str) -> str:
    path = os.path.expanduser(word.removeprefix("file://").removeprefix("file:"))  # noqa: PTH111  text
    return os.path.join(folder, path)  # noqa: PTH118  text, as it was written


def _read_first_line(path: str) -> list[str]:
    """Return the words behind `#!` of a script; none if it is no script."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  text, as it was found
            line = file.readline(4096)
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


def _describe_untrusted(named: str, place: str) -> UntrustedPath:
    return UntrustedPath(named, place, f"commands can write `{place}`", hint=_ELSEWHERE)


def _unclear(text: str, why: str) -> UntrustedPath:
    return UntrustedPath(
        text[:200], "", f"what it loads cannot be told: {why}", hint="name a script of your own"
    )
