"""What the arguments of known programs mean: hazards, paths and text.

`option_tables.json` lists the options of programs; this module says, by hand, what they mean. An
option that is named here counts whether or not its table has it. For a program that is not listed,
and an option that its table does not contain, every word could be a path; and such an option could
do more than the program's name says, if others of the program do.

    sort   writes `--output`, runs `--compress-program`; its operands are files that it reads
    cut    `--delimiter` is text by the name of its value (`DELIM`); its operands are files
    grep   the first operand is a pattern, unless `--regexp` or `--file` gave one
    uniq   the first operand is read, the second written
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from .program_arguments import ProgramArguments, Role, describe_program
from .program_facts import word_set
from .subcommands import NPM_DOES_MORE
from .tool_meanings import tool_programs

_FILES = describe_program()
_GREP = describe_program(operands=("text", "any"), instead="--regexp --file")
_SED = describe_program(
    "--in-place --file",
    text="--expression",
    operands=("text", "any"),
    instead="--expression --file",
)
_AWK = describe_program(
    "--file --include --load --exec --source --debug -W -f",
    "--dump-variables --pretty-print --profile",
    text="--assign -v -F --field-separator",
    operands=("text", "any"),
    instead="--file --source --exec",
    mixed=False,
)
_NO_VERSION = r"\A(?!\d+(\.\d+){0,2}\Z)"
"""Anything but a number of a version (`3.12`): it may name a program."""
_GO = (
    "-exec -toolexec -overlay -modfile -vettool -C -pkgdir -gccgoflags -ldflags -gcflags "
    "-asmflags -compiler"
)
_GO_FILES = "-outputdir -cpuprofile -memprofile -blockprofile -mutexprofile -trace -coverprofile"
_GO_TEXT = (
    "-run -bench -tags -cpu -list -fuzz -vet -mod -coverpkg -buildmode -shuffle -covermode -f -skip"
)
_PIP = (
    "--index-url --extra-index-url --target --python --trusted-host --find-links "
    "--config-settings --prefix --proxy --root --cache-dir --cert --client-cert --build-option "
    "--global-option --src"
)
_PIP_FILES = "--log --report --dest --wheel-dir"
_CARGO = (
    "--config --manifest-path -C -Z --target-dir --artifact-dir --out-dir --lockfile-path "
    "--config-file --tool-config-file --archive-file --extract-to"
)
_NODE = (
    "--script-shell --node-options --globalconfig --userconfig --prefix --global --shell "
    "--editor --git --call"
    " --init-module --viewer --browser --onload-script --node-gyp"
)


_MAKE = describe_program(
    "--eval --file --include-dir --environment-overrides --touch",
    text="--jobs --load-average",
    tables="make",
)


@cache
def all_programs() -> dict[str, ProgramArguments]:
    """Return all programs except git. Built on first use, as most processes analyse no command."""
    return {
        **tool_programs(),
        **dict.fromkeys(
            word_set(
                "cat head tail nl wc comm cmp tac sha256sum md5sum ls du df stat paste join fold"
            ),
            _FILES,
        ),
        "cut": _FILES,
        "column": describe_program(text="--separator --output-separator --table-columns"),
        "echo": describe_program(operands=("text",)),
        "tr": describe_program(operands=("text",)),
        "seq": describe_program(operands=("text",), mixed=False),
        "basename": describe_program(operands=("any", "text"), text="--suffix"),
        "date": describe_program("--set --file", operands=("text",), text="--date"),
        "sort": describe_program(
            "--compress-program --temporary-directory --files0-from", "--output"
        ),
        "shuf": describe_program("--random-source", "--output"),
        "uniq": describe_program(operands=("any", "written")),
        "xxd": describe_program(operands=("any", "written"), style="single"),
        "split": describe_program("--filter", operands=("any", "written")),
        "diff": describe_program(
            "--to-file --from-file", text="--label --show-function-line --ignore-matching-lines"
        ),
        "file": describe_program(
            "--compile --magic-file --preserve-date", text="--separator --parameter"
        ),
        "tree": describe_program(
            "-R", "-o", text="-P -I -T -H -L --sort --timefmt", style="getopt"
        ),
        "less": describe_program(
            "--log-file --LOG-FILE --lesskey-file --lesskey-src --lesskey-content --tag-file",
            text="--pattern",
        ),
        "man": describe_program(
            "--pager --preprocessor --html --config-file --manpath --update --catman"
        ),
        "grep": _GREP,
        "egrep": _GREP,
        "fgrep": _GREP,
        "rg": describe_program(
            "--pre --hostname-bin --search-zip --follow",
            text="--glob --iglob --type --type-not --replace --regexp",
            operands=("text", "any"),
            instead="--regexp --file --files --type-list",
        ),
        "ag": describe_program(
            "--pager --search-zip",
            text="--ignore --file-search-regex -G -g",
            operands=("text", "any"),
            instead="-g",
        ),
        "fd": describe_program(
            "--exec --exec-batch",
            text="--extension --exclude --type --glob",
            operands=("text", "any"),
        ),
        "sed": _SED,
        "gawk": _AWK,
        # Debian's awk is mawk, others link theirs to gawk.
        **dict.fromkeys(("awk", "nawk", "original-awk"), replace(_AWK, tables=("gawk", "mawk"))),
        "mawk": describe_program(
            "-f -W", text="-v -F", operands=("text", "any"), instead="-f -W", mixed=False
        ),
        "jq": describe_program(
            "--from-file --rawfile --slurpfile --argfile -L",
            text="--arg --argjson",
            operands=("text", "any"),
            instead="--from-file",
        ),
        "yq": describe_program(
            "--in-place --from-file --rawfile --slurpfile -L --split-exp --split-exp-file",
            operands=("text", "any"),
        ),
        "tar": describe_program(
            "--to-command --checkpoint-action --use-compress-program --rsh-command "
            "--info-script --new-volume-script"
            " --rmt-command --files-from --extract --get --absolute-names --directory --delete "
            "--overwrite --remove-files"
            " --unlink-first --recursive-unlink --backup --multi-volume",
            "--index-file --listed-incremental --volno-file",
            text="--exclude --transform --xform --owner --group --mode --mtime --label --newer",
        ),
        "curl": describe_program(
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
        "wget": describe_program(
            "--execute --post-data --post-file --input-file --use-askpass --config "
            "--directory-prefix --method --body-data"
            " --body-file --delete-after --content-disposition --private-key --certificate",
            (
                "--output-document --output-file --append-output --save-cookies --rejected-log "
                "--warc-file --hsts-file"
            ),
            most=1,
        ),
        "rsync": describe_program(
            "--rsh --delete --delete-before --delete-during --delete-delay --delete-after "
            "--delete-excluded --del --rsync-path"
            " --daemon --config --remove-source-files --files-from --password-file "
            "--include-from --exclude-from --early-input"
            " --sockopts --dparam --force --read-batch",
            "--log-file --write-batch --only-write-batch --partial-dir --temp-dir --backup-dir",
        ),
        "scp": describe_program("-S -o -F -D -J -i", operands=("any",)),
        "zip": describe_program(
            "--unzip-command -TT --test -T --move -m --delete -d --names-stdin -@ --filesync -FS "
            "--temp-path -b",
            "--output-file -O --logfile-path -lf",
        ),
        "npm": describe_program(
            _NODE,
            words=" ".join(NPM_DOES_MORE),
            style="npm",
        ),
        "pnpm": describe_program(
            "--dir --script-shell --shell-mode --config --global",
            words="exec dlx create config set publish login",
            open_ended=True,
        ),
        "yarn": describe_program(
            "--cwd --use-yarnrc --script-shell --modules-folder --global-folder --prefix",
            words="exec dlx create config set publish login plugin",
            open_ended=True,
        ),
        **dict.fromkeys(
            ("pip", "pip3"), describe_program(_PIP, _PIP_FILES, words="config", tables="pip")
        ),
        "cargo": describe_program(
            _CARGO, words="install login logout owner publish rustc rustdoc yank"
        ),
        "nc": describe_program("-e -c -l -x -X -P -U", operands=("text",)),
        "ncat": describe_program(
            "--exec --sh-exec --lua-exec --listen --proxy --proxy-auth --unixsock",
            "--output --hex-dump --append-output",
            operands=("text",),
        ),
        "gh": describe_program(
            words="alias extension config auth api codespace secret ssh-key gpg-key variable"
        ),
        "docker": describe_program(
            "--volume --mount --privileged --host --config --device --env-file --cap-add "
            "--security-opt --pid --network"
            " --file --label-file --userns --ipc --volumes-from --entrypoint --add-host "
            "--cidfile --iidfile --metadata-file --output --secret --ssh",
            text="--format --filter --tail --since --until --name",
            operands=("any",),
        ),
        **dict.fromkeys(("make", "gmake"), _MAKE),
        "find": describe_program(
            "-exec -execdir -ok -okdir -delete -files0-from -follow -L",
            "-fprint -fprint0 -fprintf -fls",
            style="single",
        ),
        "openssl": describe_program(
            ("-engine -config -provider -provider-path -passin -pass -passout -kdfopt -key -inkey"),
            "-out -keyout -writerand",
            style="single",
        ),
        "java": describe_program(style="single"),
        "ruff": describe_program(
            "--config --output-file --cache-dir --add-noqa",
            text="--select --ignore --extend-select",
        ),
        "uv": describe_program(
            "--directory --project --config-file --index-url --extra-index-url "
            "--index --default-index --find-links"
            " --with --with-editable --with-requirements --env-file --target --prefix "
            "--cache-dir --allow-insecure-host"
            " --script --gui-script --module",
            "--output-file",
            words="publish self tool",
            valued=(("--python -p", _NO_VERSION),),
        ),
        "go": describe_program(
            _GO,
            _GO_FILES,
            produces="-o",
            text=_GO_TEXT,
            style="single",
            words="generate run get install tool env work clean bug telemetry",
        ),
        "timeout": describe_program(mixed=False),
        "nice": describe_program(mixed=False),
        "stdbuf": describe_program(mixed=False),
        "xargs": describe_program("--arg-file --process-slot-var", mixed=False),
        "time": describe_program("", "--output", mixed=False),
        "patch": describe_program(
            "-e --ed -d --directory -g --get -B --prefix -Y --basename-prefix",
            "-o --output -r --reject-file",
        ),
        "unzip": describe_program("-d -o -:", open_ended=True),
        "install": describe_program(
            "--strip-program --target-directory -t --backup", open_ended=True
        ),
        "iconv": describe_program("", "-o --output"),
        "nm": describe_program("--plugin"),
        "objdump": describe_program("--prefix"),
        **dict.fromkeys(
            ("ar", "ranlib", "ld"), describe_program("-plugin", style="single", open_ended=True)
        ),
        **dict.fromkeys(
            ("bat", "batcat"),
            describe_program(
                "--pager --generate-config-file --config-file", words="cache", tables="bat"
            ),
        ),
        "htmlq": describe_program("", "-o --output", operands=("text",), open_ended=True),
        "info": describe_program(
            "--restore --directory -d", "-o --output --dribble", open_ended=True
        ),
        "journalctl": describe_program(
            "--vacuum-size --vacuum-time --vacuum-files --rotate --flush --sync --relinquish-var "
            "--setup-keys --update-catalog --directory -D --root --image --file --cursor-file",
            open_ended=True,
        ),
        "dmesg": describe_program("-C --clear -c --read-clear -D -E -n -F --file", open_ended=True),
        "ss": describe_program("-K --kill -F --filter", "-D --diag", open_ended=True),
        "ip": describe_program(
            "-batch -b -force -n -netns", words="netns", style="single", open_ended=True
        ),
        "tcpdump": describe_program("-z -F -r -V", "-w", open_ended=True),
        "nmap": describe_program(
            "--script --script-args-file --datadir --resume --servicedb --versiondb --stylesheet "
            "-iL --excludefile",
            "-oN -oX -oS -oG -oA -oM",
            style="single",
            open_ended=True,
        ),
        "ssh": describe_program(
            "-o -F -S -w -L -R -D -J -W -I -O -A -X -Y -i", "-E", open_ended=True
        ),
        "sftp": describe_program("-b -o -F -S -D -J -s -i", open_ended=True),
        "aria2c": describe_program(
            "-i --input-file --conf-path --on-download-start --on-download-complete "
            "--on-download-error --on-download-pause --on-download-stop --on-bt-download-complete "
            "--enable-rpc --load-cookies --private-key --certificate --netrc-path",
            "-o --out -d --dir -l --log --save-session --save-cookies --server-stat-of",
            open_ended=True,
        ),
        **dict.fromkeys(
            ("http", "https"),
            describe_program(
                "--session --session-read-only --cert --cert-key --raw --continue --download "
                "--multipart --form -f -d -c --auth -a",
                "--output -o",
                most=1,
                open_ended=True,
            ),
        ),
        "gdb": describe_program(
            "-ex --eval-command -x --command -iex --init-eval-command -ix --init-command "
            "-eix --early-init-command -eiex --early-init-eval-command --exec -exec "
            "-p --pid --data-directory -D --write --interpreter -i --cd",
            style="single",
            starts="--args",
        ),
        "sqlite3": describe_program(
            "-A -cmd -init -interactive -zip -append -deserialize",
            operands=("any", "text"),
            style="single",
        ),
        "psql": describe_program("--file", "--output --log-file", text="--command"),
        **dict.fromkeys(
            ("mysql", "mariadb"),
            describe_program(
                "--init-command --pager --defaults-file --defaults-extra-file --plugin-dir "
                "--default-auth --local-infile --system-command",
                "--tee",
                text="--execute",
                tables="mysql",
                open_ended=True,
            ),
        ),
        "pandoc": describe_program(
            "--filter -F --lua-filter -L --defaults -d --template --pdf-engine --pdf-engine-opt "
            "--metadata-file --syntax-definition --data-dir --extract-media --include-in-header "
            "-H --include-before-body -B --include-after-body -A --reference-doc --csl "
            "--bibliography --citation-abbreviations --abbreviations --epub-metadata "
            "--epub-cover-image --epub-embed-font --print-highlight-style --css -c",
            "--output -o --log",
            valued=(
                ("--from --read -f -r --to --write -t -w", r"\.|/"),
                ("--metadata -M --variable -V", r"^(header-includes|include-)"),
            ),
            open_ended=True,
        ),
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
    "stash": "clear drop branch store create",
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
def plain_name(program: str) -> str:
    """Return the name under which a program is listed: `python` for `python3.12`."""
    if program in all_programs():
        return program
    return re.sub(r"(?<=[a-z+])-?[0-9][0-9.]*t?$", "", program)


@cache
def program_of(program: str, verb: str = "") -> ProgramArguments | None:
    """Return what a program's arguments mean; None if nothing is known about them."""
    if program != "git":
        return all_programs().get(plain_name(program))
    return describe_program(
        f"{_GIT_RUNS} {_GIT_SHORT.get(verb, '')}",
        _GIT_WRITES,
        words=_GIT_WORDS.get(verb, ""),
        text=_GIT_TEXT,
        operands=_GIT_OPERANDS.get(verb, ("any",)),
        instead="-e -f" if verb == "grep" else "",
    )
