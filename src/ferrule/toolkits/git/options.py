"""The options that `git_command` passes on: one table; every other option is refused by name.

An option is here only if it can neither run a program, nor write, nor read a file that its value
names, nor lead to another repository. So these are not: `-c`, `-C`, `--git-dir`, `--work-tree`,
`--exec-path`, `--output`, `--ext-diff`, `--textconv`, `--no-index`, `-O`, `--contents`,
`--ignore-revs-file`, `-S` of blame, `--stdin`, `--pathspec-from-file`, `--show-signature`,
`--submodule`, `--ignore-submodules`, `--follow`, `-z`, `--no-prefix`. git accepts any unambiguous
beginning of a long option; here only whole names count. Source: the manual pages of git 2.39 to
2.51.
"""

from __future__ import annotations

import re
from typing import Literal

from ferrule.core.errors import RetryCall
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

Subcommand = Literal["status", "diff", "log", "show", "blame"]

_NUMBER = r"\d{1,9}"
_TEXT = r"[^\0\n]{1,1000}"
_PERCENT = r"\d{1,3}%?"
# Formats exclude placeholders that run a program (signatures) or another git (describe).
_FORMAT = r"(?!.*%(?:[+\- ]?G|\([^)]*describe))[^\0]{0,1000}"
_WORD = r"[A-Za-z0-9:,_-]{1,40}"


@frozen
class Option:
    """An option that is passed on.

    `value` is the expression that its value must match, None for a flag; an `optional` value may be
    missing. `content` options show, or search in, what changed: then files that may not be read are
    left out.
    """

    value: str | None = None
    optional: bool = False
    content: bool = False


def _flags(names: str, *, content: bool = False) -> dict[str, Option]:
    return {name: Option(content=content) for name in names.split()}


def _build_options(
    names: str, value: str, *, optional: bool = False, content: bool = False
) -> dict[str, Option]:
    return {name: Option(value, optional, content) for name in names.split()}


_DIFF: dict[str, Option] = {
    **_flags(
        "-s --no-patch --numstat --shortstat --name-only --name-status --summary --quiet "
        "--exit-code"
    ),
    **_build_options("--stat --dirstat", _WORD, optional=True),
    **_flags(
        "-p -u --patch --patch-with-stat --patch-with-raw --raw --check --full-index "
        "--binary -a --text -R "
        "--minimal --patience --histogram --indent-heuristic --no-indent-heuristic -w -b "
        "--ignore-all-space "
        "--ignore-space-change --ignore-space-at-eol --ignore-cr-at-eol --ignore-blank-lines "
        "--function-context -W --pickaxe-regex --pickaxe-all --no-renames --cc -m --no-color "
        "--irreversible-delete -D",
        content=True,
    ),
    **_build_options("-U --unified --inter-hunk-context", _NUMBER, content=True),
    **_build_options("-S -G", _TEXT, content=True),
    **_build_options("-M --find-renames --find-copies", _PERCENT, optional=True, content=True),
    **_build_options("--word-diff", "color|plain|porcelain|none", optional=True, content=True),
    **_build_options("--diff-algorithm", "patience|minimal|histogram|myers", content=True),
    **_build_options("--diff-filter", "[A-Za-z]{1,12}", content=True),
    **_build_options("--abbrev", _NUMBER, optional=True),
    **_build_options("--color", "never|auto", optional=False),
}
_SHOWN: dict[str, Option] = {
    **_flags(
        "--oneline --no-decorate --abbrev-commit --no-abbrev-commit --no-notes "
        "--no-expand-tabs --parents"
    ),
    **_build_options("--decorate", "short|full|auto|no", optional=True),
    **_build_options("--format --pretty", _FORMAT, optional=True),
    **_build_options("--date", r"[^\0\n]{1,80}"),
}
_LOG: dict[str, Option] = {
    **_flags(
        "-i --regexp-ignore-case --all-match --invert-grep -E --extended-regexp -F "
        "--fixed-strings -P "
        "--perl-regexp --merges --no-merges --first-parent --graph --all --branches --tags "
        "--remotes "
        "--reverse --date-order --topo-order --author-date-order --left-right --left-only "
        "--right-only "
        "--cherry-pick --cherry-mark --cherry --boundary --simplify-by-decoration --full-history "
        "--ancestry-path --children --walk-reflogs -g --no-walk --source"
    ),
    **_build_options("-n --max-count --skip --min-parents --max-parents", _NUMBER),
    **_build_options(
        "--since --after --until --before --author --committer --grep --grep-reflog", _TEXT
    ),
    **_build_options(
        "--branches --tags --remotes --glob --exclude", r"[^\0\n]{1,200}", optional=True
    ),
}

OPTIONS: dict[Subcommand, dict[str, Option]] = {
    "status": {
        **_flags(
            "-s --short -b --branch --no-branch --long --show-stash --no-show-stash --ahead-behind "
            "--no-ahead-behind --renames --no-renames"
        ),
        **_build_options("--porcelain", "v?[12]", optional=True),
        **_build_options("-u --untracked-files", "no|normal|all", optional=True),
        **_build_options("--ignored", "traditional|no|matching", optional=True),
        **_build_options("--find-renames", _PERCENT, optional=True),
    },
    "diff": {
        **_DIFF,
        **_flags("--cached --staged --merge-base --base --ours --theirs -0 -1 -2 -3"),
    },
    "log": {**_DIFF, **_SHOWN, **_LOG},
    "show": {**_DIFF, **_SHOWN, **_flags("--first-parent --no-walk")},
    "blame": {
        **_flags(
            "-l -t -s -e --show-email -w -f --show-name -n --show-number -b --root --porcelain -p "
            "--line-porcelain --first-parent --no-color --show-stats"
        ),
        **_build_options(
            "-L",
            r"(?:/[^\0\n]{1,200}/|:[^\0\n]{1,200}|\+?\d{1,9})?(?:,(?:/[^\0\n]{1,200}/|[+-]?\d{1,9}))?",
        ),
        **_build_options("-M", _NUMBER, optional=True),
        **_build_options("--date", r"[^\0\n]{1,80}"),
        **_build_options("--abbrev", _NUMBER, optional=True),
        **_build_options("--since --until", _TEXT),
        **_build_options("--ignore-rev", r"[0-9A-Za-z_./^~@{}-]{1,200}"),
    },
}


@frozen
class ParsedArguments:
    """Sorted arguments. `separated` means that `paths` came after `--`."""

    options: tuple[str, ...]
    positionals: tuple[str, ...]
    paths: tuple[str, ...]
    separated: bool
    content: bool


def parse_arguments(subcommand: Subcommand, arguments: list[str]) -> ParsedArguments:
    """Sort arguments into options, names of commits or files, and paths.

    Raises:
        RetryCall: An argument may not be used; the first one is named.
    """
    parsed = _sort_arguments(subcommand, arguments)
    if subcommand == "log" and parsed.content and "--graph" in parsed.options:
        # The graph precedes every line: files that may not be read could not be recognised.
        raise RetryCall(
            "`git log`: `--graph` does not go with differences here; ask for the two one "
            "after the other"
        )
    return parsed


def _sort_arguments(subcommand: Subcommand, arguments: list[str]) -> ParsedArguments:
    options: list[str] = []
    positionals: list[str] = []
    content = subcommand != "log"
    known = OPTIONS[subcommand]
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            return ParsedArguments(tuple(options), tuple(positionals), tuple(rest), True, content)
        if not argument.startswith("-") or argument == "-":
            positionals.append(_check_positional(argument))
            continue
        text, option = _take_option(subcommand, known, argument, rest)
        options.append(text)
        content = content or option.content
    return ParsedArguments(tuple(options), tuple(positionals), (), False, content)


def _check_positional(argument: str) -> str:
    if not argument or argument == "-" or re.search(r"[\0-\x1f\x7f]", argument):
        raise RetryCall(f"{argument!r} is neither a commit nor a path; leave it out")
    return argument


def _take_option(
    subcommand: str, known: dict[str, Option], argument: str, rest: list[str]
) -> tuple[str, Option]:
    if subcommand == "log" and re.fullmatch(r"-\d{1,9}", argument):
        return argument, Option()
    name, equals, value = argument.partition("=")
    if not argument.startswith("--"):
        name, value = (argument, "") if argument in known else (argument[:2], argument[2:])
        equals = "=" if value else ""
    option = known.get(name)
    if option is None or (equals and option.value is None):
        raise RetryCall(_describe_unknown(subcommand, argument, known))
    if option.value is None or (option.optional and not equals):
        return name, option
    if not equals:
        if not rest:
            raise RetryCall(f"`git {subcommand}`: `{name}` needs a value after it")
        value = rest.pop(0)
    if not re.fullmatch(option.value, value, re.DOTALL):
        raise RetryCall(
            f"`git {subcommand}`: `{name}` does not take the value `{value[:100]}` here"
        )
    return (f"{name}={value}" if name.startswith("--") else f"{name}{value}"), option


def _describe_unknown(subcommand: str, argument: str, known: dict[str, Option]) -> str:
    letters = [f"-{letter}" for letter in argument[1:]]
    is_bundle = re.fullmatch(r"-[A-Za-z]{2,}", argument) is not None
    if is_bundle and all(letter in known for letter in letters):
        return f"`git {subcommand}`: write `{argument}` as {' '.join(letters)}"
    name = argument.partition("=")[0]
    step = suggest_names(name, known, "leave it out", count=3, cutoff=0.5)
    return f"`git {subcommand}`: `{argument[:100]}` is not an option that may be used here; {step}"
