"""What the arguments of known programs mean: hazards, paths and text.

`option_tables.json` lists the options of programs; this module says, by hand, what they mean. For a
program that is not listed, and an option that its table does not contain, every word could be a
path.

    sort   writes `--output`, runs `--compress-program`; its operands are files that it reads
    cut    `--delimiter` is text by the name of its value (`DELIM`); its operands are files
    grep   the first operand is a pattern, unless `--regexp` or `--file` gave one
    uniq   the first operand is read, the second written
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Literal

from ferrule.core.value_class import frozen

from .option_parsing import Option, OptionTable, ParsedArgument, Style, parse_arguments, table_of
from .program_facts import word_set

Role = Literal["written", "text", "any"]
"""`written` is a path that is created or changed; `any` may be a path or text."""


_TEXT_VALUES = word_set(
    """
    n num number size sizes char chars character sep separator delim delimiter list string str
    strings format fmt fs
    pattern patterns regexp regex type date time when word words message style keydef limit skip
    duration signal
    width cols columns len level depth script program-text term max method lines length count glob
    attr key text label prefix max-args max-chars max-procs max-lines replace mode author trailer
    commit committer
    marker levels days lo-hi mtype unit r end bytes field_list time_style prompt pattern_list
    seconds
    globs num-lines numsuffix encoding name:value var filter markexpr expression ruff rule_code
    line_length
    output_format target-version spec features triple profile-name bin test bench example d t
    """
)
"""Names of values that are not paths."""


@frozen
class ProgramArguments:
    """What the arguments of a program mean. Options are named by one of their spellings."""

    runs: frozenset[str] = frozenset()
    """Options that run, load, delete or send something."""
    writes: frozenset[str] = frozenset()
    """Options whose value is a file that is written."""
    words: frozenset[str] = frozenset()
    """Operands that do more than usual: `clear` of `git stash clear`."""
    text: frozenset[str] = frozenset()
    """Options whose value is text although the name of the value does not say so."""
    operands: tuple[Role, ...] = ("any",)
    """Roles of the operands in order; the last one also applies to all that follow."""
    instead: frozenset[str] = frozenset()
    """Options that replace the first operand, such as a pattern or a script."""
    style: Style = "getopt"
    mixed: bool = True
    most: int = 0
    """More operands than this are hazards; 0 for any number."""


def _program(  # noqa: PLR0913  one argument for each field of a record
    runs: str = "",
    writes: str = "",
    *,
    words: str = "",
    text: str = "",
    operands: tuple[Role, ...] = ("any",),
    instead: str = "",
    style: Style = "getopt",
    mixed: bool = True,
    most: int = 0,
) -> ProgramArguments:
    return ProgramArguments(
        word_set(runs),
        word_set(writes),
        word_set(words),
        word_set(text),
        operands,
        word_set(instead),
        style,
        mixed,
        most,
    )


_FILES = _program()
_GREP = _program(operands=("text", "any"), instead="--regexp --file")
_SED = _program(
    "--in-place --file",
    text="--expression",
    operands=("text", "any"),
    instead="--expression --file",
)
_AWK = _program(
    "--file --include --load --exec --source --debug",
    "--dump-variables --pretty-print --profile",
    text="--assign -v -F --field-separator",
    operands=("text", "any"),
    instead="--file --source --exec",
    mixed=False,
)
_GO = (
    "-exec -toolexec -overlay -modfile -vettool -C -pkgdir -gccgoflags -ldflags -gcflags "
    "-asmflags -compiler"
)
_GO_FILES = "-o -outputdir -cpuprofile -memprofile -blockprofile -mutexprofile -trace -coverprofile"
_GO_TEXT = (
    "-run -bench -tags -cpu -list -fuzz -vet -mod -coverpkg -buildmode -shuffle -covermode -f -skip"
)
_PIP = (
    "--index-url --extra-index-url --target --python --trusted-host --find-links "
    "--config-settings --prefix"
)
_CARGO = "--config --manifest-path -C -Z --target-dir --artifact-dir --out-dir --lockfile-path"
_NODE = (
    "--script-shell --node-options --globalconfig --userconfig --prefix --global --shell "
    "--editor --git --call"
    " --init-module --viewer --browser"
)


@cache
def all_programs() -> dict[str, ProgramArguments]:
    """Return all programs except git. Built on first use, as most processes analyse no command."""
    return {
        **dict.fromkeys(
            word_set(
                "cat head tail nl wc comm cmp tac sha256sum md5sum ls du df stat paste join fold"
            ),
            _FILES,
        ),
        "cut": _FILES,
        "column": _program(text="--separator --output-separator --table-columns"),
        "echo": _program(operands=("text",)),
        "tr": _program(operands=("text",)),
        "seq": _program(operands=("text",), mixed=False),
        "basename": _program(operands=("any", "text"), text="--suffix"),
        "date": _program("--set --file", operands=("text",), text="--date"),
        "sort": _program("--compress-program --temporary-directory --files0-from", "--output"),
        "shuf": _program("--random-source", "--output"),
        "uniq": _program(operands=("any", "written")),
        "xxd": _program(operands=("any", "written"), style="single"),
        "split": _program("--filter", operands=("any", "written")),
        "diff": _program(
            "--to-file --from-file", text="--label --show-function-line --ignore-matching-lines"
        ),
        "file": _program("--compile --magic-file --preserve-date", text="--separator --parameter"),
        "tree": _program("-R", "-o", text="-P -I -T -H -L --sort --timefmt", style="getopt"),
        "less": _program(
            "--log-file --LOG-FILE --lesskey-file --lesskey-src --lesskey-content --tag-file",
            text="--pattern",
        ),
        "man": _program("--pager --preprocessor --html --config-file --manpath --update --catman"),
        "grep": _GREP,
        "egrep": _GREP,
        "fgrep": _GREP,
        "rg": _program(
            "--pre --hostname-bin --search-zip --follow",
            text="--glob --iglob --type --type-not --replace --regexp",
            operands=("text", "any"),
            instead="--regexp --file --files --type-list",
        ),
        "ag": _program(
            "--pager --search-zip",
            text="--ignore --file-search-regex -G -g",
            operands=("text", "any"),
            instead="-g",
        ),
        "fd": _program(
            "--exec --exec-batch",
            text="--extension --exclude --type --glob",
            operands=("text", "any"),
        ),
        "sed": _SED,
        **dict.fromkeys(("gawk", "awk", "nawk", "mawk"), _AWK),
        "jq": _program(
            "--from-file --rawfile --slurpfile --argfile -L",
            text="--arg --argjson",
            operands=("text", "any"),
            instead="--from-file",
        ),
        "yq": _program(
            "--in-place --from-file --rawfile --slurpfile -L --split-exp --split-exp-file",
            operands=("text", "any"),
        ),
        "tar": _program(
            "--to-command --checkpoint-action --use-compress-program --rsh-command "
            "--info-script --new-volume-script"
            " --rmt-command --extract --get --absolute-names --directory --delete "
            "--overwrite --remove-files"
            " --unlink-first --recursive-unlink --backup --multi-volume",
            "--index-file --listed-incremental --volno-file",
            text="--exclude --transform --xform --owner --group --mode --mtime --label --newer",
        ),
        "curl": _program(
            "--config --upload-file --data --data-ascii --data-binary --data-raw "
            "--data-urlencode --form --form-string"
            " --request --request-target --proxy --preproxy --socks4 --socks4a --socks5 "
            "--socks5-hostname --netrc"
            " --netrc-file --netrc-optional --cert --key --proxy-cert --proxy-key "
            "--unix-socket --abstract-unix-socket"
            " --json --url --url-query --next --remote-name --remote-name-all "
            "--remote-header-name --output-dir"
            " --create-dirs --quote --postquote --prequote --engine --resolve --connect-to "
            "--doh-url --dns-servers"
            " --variable --mail-from --mail-rcpt --telnet-option --ftp-create-dirs --append",
            (
                "--output --dump-header --cookie-jar --trace --trace-ascii --stderr --etag-save "
                "--libcurl --alt-svc --hsts"
            ),
            text=(
                "--header --user-agent --write-out --max-time --connect-timeout --retry --range "
                "--max-filesize --proto"
            ),
            most=1,
        ),
        "wget": _program(
            "--execute --post-data --post-file --input-file --use-askpass --config "
            "--directory-prefix --method --body-data"
            " --body-file --delete-after --content-disposition --private-key --certificate",
            (
                "--output-document --output-file --append-output --save-cookies --rejected-log "
                "--warc-file --hsts-file"
            ),
            most=1,
        ),
        "rsync": _program(
            "--rsh --delete --delete-before --delete-during --delete-delay --delete-after "
            "--delete-excluded --del --rsync-path"
            " --daemon --config --remove-source-files --files-from --password-file "
            "--include-from --exclude-from --early-input"
            " --sockopts --dparam --force --read-batch",
            "--log-file --write-batch --only-write-batch --partial-dir --temp-dir --backup-dir",
        ),
        "scp": _program("-S -o -F -D -J -i", operands=("any",)),
        "zip": _program("--unzip-command --test --move --delete -T -TT -m -d -@ -O -b"),
        "npm": _program(
            _NODE,
            words=(
                "exec x explore config c set edit pkg init create publish unpublish login logout "
                "adduser token"
            ),
            style="npm",
        ),
        "pnpm": _program(
            "--dir --script-shell --shell-mode --config --global",
            words="exec dlx create config set",
        ),
        "yarn": _program(
            "--cwd --use-yarnrc --script-shell --modules-folder --global-folder --prefix",
            words="exec dlx create config set",
        ),
        "pip": _program(_PIP + " --log --proxy --root --report"),
        "cargo": _program(_CARGO),
        "pytest": _program(
            (
                "--rootdir --confcutdir --override-ini --config-file --basetemp --pdbcls --debug "
                "--pastebin -p"
            ),
            "--junit-xml --junitxml --log-file",
            text="-k -m --deselect --durations --maxfail --tb -W --capture",
            operands=("any",),
        ),
        "nc": _program("-e -c -l -x -X -P -U", operands=("text",)),
        "ncat": _program(
            "--exec --sh-exec --lua-exec --listen --proxy --proxy-auth --unixsock",
            "--output --hex-dump --append-output",
            operands=("text",),
        ),
        "gh": _program(
            words="alias extension config auth api codespace secret ssh-key gpg-key variable"
        ),
        "docker": _program(
            "--volume --mount --privileged --host --config --device --env-file --cap-add "
            "--security-opt --pid --network"
            " --file --label-file --userns --ipc --volumes-from --entrypoint --add-host "
            "--cidfile --iidfile --metadata-file --output --secret --ssh",
            text="--format --filter --tail --since --until --name",
            operands=("any",),
        ),
        "make": _program(
            "--eval --file --include-dir --environment-overrides --touch",
            text="--jobs --load-average",
        ),
        "find": _program(
            "-exec -execdir -ok -okdir -delete -files0-from -follow -L",
            "-fprint -fprint0 -fprintf -fls",
            style="single",
        ),
        "openssl": _program(
            ("-engine -config -provider -provider-path -passin -pass -passout -kdfopt -key -inkey"),
            "-out -keyout -writerand",
            style="single",
        ),
        "java": _program(style="single"),
        "ruff": _program(
            "--config --output-file --cache-dir --add-noqa",
            text="--select --ignore --extend-select",
        ),
        "uv": _program(
            "--directory --project --config-file --python --index-url --extra-index-url "
            "--index --default-index --find-links"
            " --with --with-editable --with-requirements --env-file --target --prefix "
            "--cache-dir --allow-insecure-host"
            " --script --gui-script --module",
            "--output-file",
            mixed=True,
        ),
        "go": _program(
            _GO,
            _GO_FILES,
            text=_GO_TEXT,
            style="single",
            words="generate run get install tool env work clean bug telemetry",
        ),
        "timeout": _program(mixed=False),
        "nice": _program(mixed=False),
        "stdbuf": _program(mixed=False),
        "xargs": _program("--arg-file --process-slot-var", mixed=False),
        "time": _program("", "--output", mixed=False),
    }


_GIT_RUNS = """
    --upload-pack --receive-pack --exec --ext-diff --textconv --open-files-in-pager --config
    --config-env
    --exec-path --git-dir --work-tree --namespace --template --no-index --remote --unsafe-paths
    --interactive --force
    --force-with-lease --mirror --delete --hard --prune --separate-git-dir --reference
    --reference-if-able
    --super-prefix --no-verify --prune-tags --strategy --filters --discard-changes --expire
    --expire-unreachable
    --bundle-uri --refmap --force-create --edit-description
"""
_GIT_WRITES = "--output --output-directory --build-fake-ancestor"
_GIT_TEXT = """
    -S -G --grep --author --committer --format --pretty --since --until --after --before --message
    --date --sort
    --diff-filter --word-diff-regex --glob --branches --tags --remotes --exclude --grep-reflog
    --trailer -m -L -e
    --match --abbrev --max-count -n -U --unified --decorate-refs --points-at --contains --merged
    --no-merged
"""
_GIT_SHORT = {
    "push": "-f -d",
    "grep": "-O",
    # Going on obeys what an unfinished operation left on disk: its steps and its strategy.
    "rebase": "-i -x -s --continue --skip --edit-todo",
    "am": "-r --continue --resolved --skip --retry",
    "clone": "-u -c",
    "clean": "-f -d -x -X",
    "branch": "-D -d -f -M -m -C -c",
    "checkout": "-f -B",
    "add": "-p -i -e -f",
    "tag": "-d -f",
    "archive": "-o",
    "format-patch": "-o",
    "commit": "-n -F",
    "fetch": "-u -p -f -P",
    "switch": "-f -C",
    "merge": "-s -F",
    "worktree": "-f -B",
    "remote": "-p",
    "notes": "-f",
    "mv": "-f",
    "rm": "-f",
    "symbolic-ref": "-d",
    "revert": "--continue --skip",
    "cherry-pick": "--continue --skip",
    "pull": "-f -s",
}
_GIT_WORDS = {
    "stash": "clear drop pop branch store create",
    "reflog": "expire delete drop",
    "remote": "add set-url remove rm rename set-branches set-head prune update",
    "worktree": "remove move repair unlock prune",
    "notes": "remove prune edit merge",
    "bundle": "create unbundle",
    "sparse-checkout": "set add reapply disable init",
}
_GIT_OPERANDS: dict[str, tuple[Role, ...]] = {
    "grep": ("text", "any"),
    "check-ignore": ("any",),
}


@cache
def program_of(program: str, verb: str = "") -> ProgramArguments | None:
    """Return what a program's arguments mean; None if nothing is known about them."""
    if program != "git":
        return all_programs().get(program)
    return _program(
        f"{_GIT_RUNS} {_GIT_SHORT.get(verb, '')}",
        _GIT_WRITES,
        words=_GIT_WORDS.get(verb, ""),
        text=_GIT_TEXT,
        operands=_GIT_OPERANDS.get(verb, ("any",)),
        instead="-e -f" if verb == "grep" else "",
    )


@frozen
class JudgedArgument:
    """One option or operand of an argument list.

    Attributes:
        index: The position of its word.
        value_index: The position of its value; the same unless the value is a word of its own.
        value: The option's value, or the operand.
        role: Whether the value is a path that is written, text, or either.
        hazard: It does more than the program's name says.
        sure: The option is known.
        operand: It is not an option.
    """

    index: int
    value_index: int
    value: str | None
    role: Role
    hazard: bool
    sure: bool
    operand: bool


def judge_arguments(
    program: str, words: Sequence[str], verb: str = ""
) -> tuple[JudgedArgument, ...]:
    """Judge the arguments of a program, without its name; none if nothing is known about them.

    For git, `verb` is its verb and `words` are the arguments behind that.
    """
    if program_of(program, verb) is None:
        return ()
    return _judge(program, tuple(words), verb)


@lru_cache(maxsize=256)  # called for hazards, then for paths
def _judge(program: str, words: tuple[str, ...], verb: str) -> tuple[JudgedArgument, ...]:
    known = program_of(program, verb)
    if known is None:
        return ()
    table, start, mixed = _table(program, words, verb)
    arguments = parse_arguments(words[start:], table, known.style, mixed=mixed and known.mixed)
    given = any(_gives(known, argument) for argument in arguments)
    judged: list[JudgedArgument] = []
    number = 0
    for index in range(start):
        judged.append(
            JudgedArgument(
                index, index, words[index], "text", words[index] in known.words, True, True
            )
        )
    for argument in arguments:
        if argument.options is None:
            first = number == 0 and start == 0
            judged.append(_judge_operand(known, argument, number + given, start, first))
            number += 1
            continue
        judged.append(_judge_option(program, verb, argument, start, table.source == "getopt"))
        hidden = argument.value or ""
        if argument.value_index > argument.index and hidden.startswith("-") and len(hidden) > 1:
            # If the table is wrong about the value, this is an option: it counts as one, too.
            for other in parse_arguments((hidden,), table, known.style):
                extra = _judge_option(program, verb, other, start + argument.value_index, False)
                judged.append(extra)
    return tuple(judged)


_ALIASES = {"awk": "gawk", "nawk": "gawk", "mawk": "gawk", "pip3": "pip", "gmake": "make"}
_NO_TABLE = OptionTable("", "")
_COMMANDS_AFTER = frozenset({"uv run", "docker run", "docker exec"})
"""Verbs whose first operand is a program, to which all that follows belongs."""


def _table(program: str, words: Sequence[str], verb: str) -> tuple[OptionTable, int, bool]:
    """Return the table, the length of the verb, and whether options may follow operands."""
    program = _ALIASES.get(program, program)
    if verb:
        return table_of(f"{program} {verb}") or _NO_TABLE, 0, True
    for length in (2, 1):
        name = " ".join((program, *words[:length]))
        table = table_of(name) if len(words) >= length else None
        if table is not None:
            return table, length, name not in _COMMANDS_AFTER
    return table_of(program) or _NO_TABLE, 0, True


def _gives(known: ProgramArguments, argument: ParsedArgument) -> bool:
    return any(not known.instead.isdisjoint(option.names) for option in argument.options or ())


def _judge_operand(
    known: ProgramArguments, argument: ParsedArgument, number: int, start: int, first: bool
) -> JudgedArgument:
    role = known.operands[min(number, len(known.operands) - 1)]
    value = argument.value or ""
    verb = value in known.words and (first or not argument.sure)
    hazard = role == "written" or verb or bool(known.most and number >= known.most)
    at = argument.index + start
    return JudgedArgument(at, at, value, role, hazard, argument.sure, True)


def _judge_option(
    program: str, verb: str, argument: ParsedArgument, start: int, closed: bool
) -> JudgedArgument:
    options = argument.options or ()
    meanings = [_explain_option(program, verb, option) for option in options]
    unknown = closed and not options and not argument.sure
    hazard = unknown or any(does_more for does_more, _ in meanings)
    role = meanings[0][1] if len(meanings) == 1 else "any"
    if program == "curl" and role == "text" and (argument.value or "").startswith("@"):
        role = "any"  # `-H @file` sends the content of the file
    value_index = argument.value_index + start if argument.value_index >= 0 else -1
    return JudgedArgument(
        argument.index + start, value_index, argument.value, role, hazard, argument.sure, False
    )


@cache
def _explain_option(program: str, verb: str, option: Option) -> tuple[bool, Role]:
    """Return whether an option does more than the program's name says, and what its value is."""
    known = program_of(program, verb)
    if known is None:
        return False, "any"
    names = set(option.names)
    if not known.writes.isdisjoint(names):
        return True, "written"
    runs = not known.runs.isdisjoint(names)
    named_text = not known.text.isdisjoint(names)
    # Docker calls every value `string` or `list`, paths too.
    by_name = option.value in _TEXT_VALUES and program != "docker"
    if named_text or (by_name and not runs):
        return runs, "text"
    return runs, "any"
