"""Write `src/ferrule/permissions/command_analysis/option_tables.json`: the options of programs, from the
programs' own help.

`make lab NAME=options` runs it. A program that is not on the PATH keeps the row that is checked in; what no
help says is written down in `DOCUMENTED`, from the program's documentation. An option is written
`-o,--output=FILE`: its spellings, then `=` and the name of the value it must have, or `?` and the
one it may have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

TABLES = (
    Path(__file__).resolve().parents[1]
    / "src/ferrule/permissions/command_analysis/option_tables.json"
)

GETOPT = """basename cat cmp comm cut date df diff dirname du egrep fgrep file grep head join ls man md5sum
    mktemp nice nl nohup paste sed seq sha256sum shuf sort split stat stdbuf tac tail tar tee time timeout
    touch tr truncate uniq wc wget xargs column cp mv rm mkdir ln chmod"""
"""Programs that read options with getopt: its messages say which options there are and which take
values.
"""

HELP = """make gawk rsync zip tree rg fd ag jq yq curl less ncat gh xxd pytest ruff docker bat patch python node
    mypy flake8 pylint bandit tox nox pyright twine sphinx-build sqlfluff eslint jest vitest mocha rollup
    vite stylelint nodemon nm objdump iconv sqlite3 psql gdb ctest clang-format codespell
    pre-commit"""
SUBCOMMANDS = {
    "docker": """build compose_logs compose_ps compose_up cp create exec images inspect logs ps pull push
        run stats top version volume_ls network_ls""",
    "cargo": "bench build check clean clippy doc fetch fmt install metadata run test tree update",
    "pip": "check config download freeze index install list show uninstall wheel",
    "ruff": "check format rule",
    "uv": "add build lock pip_list pip_install pip_show remove run sync tree venv version",
    "gh": "issue_list issue_view pr_checks pr_diff pr_list pr_view repo_view run_list run_view",
    "coverage": "annotate combine debug erase html json lcov report run xml",
    "pre-commit": "run",
    "mkdocs": "build serve",
    "poetry": "check env_info install lock run show",
    "pdm": "info install list run",
    "pipenv": "run",
    "hatch": "run",
}
ASKED = {"curl": ("--help", "all"), "ag": ("--help",), "less": ("--help",), "xxd": ("-h",)}
ASKED |= {"pylint": ("--long-help",), "zip": ("-h2",)}
NAMES = {"fd": "fdfind", "bat": "batcat"}
"""Programs under the name that Debian gives them."""

GIT_VERBS = """add am annotate apply archive blame branch bundle cat-file check-attr check-ignore checkout
    cherry cherry-pick clean clone commit config count-objects describe diff diff-files diff-index diff-tree
    fetch for-each-ref format-patch fsck gc grep init log ls-files ls-remote ls-tree merge merge-base mv
    name-rev notes pull push range-diff rebase reflog remote reset restore rev-list rev-parse revert rm
    shortlog show show-branch show-ref sparse-checkout stash status switch symbolic-ref tag update-index var
    version whatchanged worktree write-tree"""
MANUAL = """log diff show shortlog rev-list reflog blame stash format-patch diff-tree whatchanged"""
"""Verbs whose `-h` leaves most options out: their manual page has them."""

GO_TOPICS = {
    "build": ("build",),
    "vet": ("build", "vet"),
    "list": ("build", "list"),
    "run": ("build", "run"),
}
GO_MORE = "-vettool=PROG -json -c -i -o=FILE -C=DIR -m -f=FORMAT -u -e -deps -find -test -export"
GO_TOPICS |= {"test": ("build", "test", "testflag"), "mod": ("mod tidy",), "fmt": ("fmt",)}

_GIT_DIFF = """
    -p,-u,--patch -s,--no-patch -U,--unified=N --output-indicator-new=CHAR --output-indicator-old=CHAR
    --output-indicator-context=CHAR --raw --patch-with-raw --patch-with-stat --indent-heuristic --minimal
    --patience --histogram --anchored=TEXT --diff-algorithm=NAME --stat?WIDTH --stat-width=N
    --stat-name-width=N --stat-count=N --stat-graph-width=N --compact-summary --numstat --shortstat
    -X,--dirstat?PARAM --cumulative --dirstat-by-file?PARAM --summary -z --name-only --name-status
    --submodule?FORMAT --color?WHEN --color-moved?MODE --no-color-moved --color-moved-ws=MODE
    --word-diff?MODE --word-diff-regex=REGEX --color-words?REGEX --no-renames --rename-empty --check
    --ws-error-highlight=KIND --full-index --binary --abbrev?N -B,--break-rewrites?N -M,--find-renames?N
    -C,--find-copies?N --find-copies-harder -D,--irreversible-delete -l=N --diff-filter=FILTER -S=STRING
    -G=REGEX --find-object=OBJECT --pickaxe-all --pickaxe-regex -O=FILE --skip-to=FILE --rotate-to=FILE
    -R --relative?PATH -a,--text --ignore-cr-at-eol --ignore-space-at-eol -b,--ignore-space-change
    -w,--ignore-all-space --ignore-blank-lines -I,--ignore-matching-lines=REGEX --inter-hunk-context=N
    -W,--function-context --exit-code --quiet --ignore-submodules?WHEN --src-prefix=PREFIX
    --dst-prefix=PREFIX --no-prefix --default-prefix --line-prefix=PREFIX --ita-invisible-in-index
    --ita-visible-in-index --cached --staged --merge-base -c --cc -m --remerge-diff --diff-merges=FORMAT
    --no-diff-merges -t -q --base --ours --theirs -0 -1 -2 -3"""
_GIT_LOG = """
    -S=STRING -G=REGEX -O=FILE -L=RANGE -n,--max-count=N -l=N --count --no-merges --merges --reverse
    --decorate?FORMAT --branches?PATTERN --tags?PATTERN --remotes?PATTERN --glob=PATTERN
    --exclude-hidden=SECTION --ancestry-path?COMMIT --no-walk?HOW --do-walk --pretty?FORMAT
    --format=FORMAT --notes?REF --no-notes --show-notes?REF --show-linear-break?BARRIER"""
_CARGO_BUILD = """-p,--package=SPEC --workspace --all --exclude=SPEC --lib --bins --bin=NAME --examples
    --example=NAME --tests --test=NAME --benches --bench=NAME --all-targets -F,--features=FEATURES
    --all-features --no-default-features -r,--release --profile=NAME --target=TRIPLE -j,--jobs=N
    --keep-going --message-format=FORMAT --ignore-rust-version --locked --offline --frozen --fix
    --allow-dirty --allow-staged --allow-no-vcs --no-deps --timings -q,--quiet -v,--verbose --color=WHEN"""
_CARGO_NEXTEST = """-P --cargo-profile=NAME --test-threads=N --no-capture,--nocapture --run-ignored=HOW
    --partition=PART -E,--filterset,--filter-expr=EXPR --retries=N --no-fail-fast --fail-fast --max-fail=N
    --status-level=LEVEL --final-status-level=LEVEL --failure-output=WHEN --success-output=WHEN --no-run
    --no-tests=ACTION --hide-progress-bar --show-progress=HOW --list-type=TYPE"""
_GIT_SIGN = "-S,--gpg-sign?KEY --verify"

DOCUMENTED = {
    "nc": "-4 -6 -b -C -c -D -d -e=PROGRAM -F -h -I=LENGTH -i=SECONDS -k -l -M=TTL -m=TTL -N -n"
    " -O=LENGTH -P=USER -p=PORT -q=SECONDS -r -S -s=HOST -T=KEYWORD -t -U -u -V=TABLE -v "
    "-W=NUMBER -w=SECONDS"
    " -X=PROTOCOL -x=HOST -Z -z",
    "find": "-H -L -P -D=OPTIONS -O1 -O2 -O3 -amin=N -anewer=FILE -atime=N -cmin=N -cnewer=FILE "
    "-context=PATTERN -ctime=N"
    " -daystart -delete -d -depth -empty -exec=COMMAND -execdir=COMMAND -executable -false "
    "-files0-from=FILE -fls=FILE"
    " -follow -fprint=FILE -fprint0=FILE -fprintf=FILE -fstype=TYPE -gid=N -group=NAME -help "
    "-ilname=PATTERN"
    " -iname=PATTERN -inum=N -ipath=PATTERN -iregex=PATTERN -iwholename=PATTERN -links=N "
    "-lname=PATTERN -ls"
    " -maxdepth=N -mindepth=N -mmin=N -mount -mtime=N -name=PATTERN -newer=FILE "
    "-newermt=DATE -newerat=DATE"
    " -newerct=DATE -newerBt=DATE -nogroup -noignore_readdir_race -ignore_readdir_race "
    "-noleaf -nouser -not -a -and -o"
    " -or -ok=COMMAND -okdir=COMMAND -path=PATTERN -perm=MODE -print -print0 -printf=FORMAT "
    "-prune -quit -readable"
    " -regex=PATTERN -regextype=TYPE -samefile=FILE -size=N -true -type=C -uid=N -used=N -user=NAME"
    " -version --version --help -warn -nowarn -wholename=PATTERN -writable -xdev -xtype=C",
    "mawk": "-F=FS -v=ASSIGNMENT -f=FILE -W=OPTION",
    "yarn": "--cwd=DIR --use-yarnrc=FILE --json --silent --offline --frozen-lockfile --production"
    " --ignore-scripts --modules-folder=DIR --cache-folder=DIR --verbose --no-progress --mutex=TYPE"
    " --script-shell=PROGRAM --global-folder=DIR --prefix=DIR -s -v --version --help",
    "pnpm": "-C,--dir=DIR -r,--recursive --filter=PATTERN -F=PATTERN --script-shell=PROGRAM --silent "
    "-s"
    " --reporter=NAME --frozen-lockfile --prod -P --dev -D -w,--workspace-root --parallel --stream"
    " --no-bail --if-present --aggregate-output --color --no-color --loglevel=LEVEL "
    "--version -v --help -h",
    "scp": "-3 -4 -6 -A -B -C -c=CIPHER -D=PROGRAM -F=FILE -i=FILE -J=HOST -l=LIMIT -O -o=OPTION "
    "-P=PORT"
    " -p -q -R -r -S=PROGRAM -s -T -v -X=OPTION",
    "openssl": "-in=FILE -out=FILE -inform=FORMAT -outform=FORMAT -noout -text -subject -issuer -dates"
    " -fingerprint -serial -modulus -pubkey -pubin -pubout -enddate -startdate -purpose "
    "-hash -email"
    " -connect=HOST -servername=NAME -showcerts -brief -sha1 -sha256 -sha512 -md5 -d -e -a "
    "-A -base64 -hex"
    " -CAfile=FILE -CApath=DIR -verify -check -checkend=SECONDS -nocert -nocrl",
    "cargo clippy": _CARGO_BUILD,
    "cargo nextest": _CARGO_BUILD,
    "cargo nextest run": f"{_CARGO_BUILD} {_CARGO_NEXTEST}",
    "cargo nextest list": f"{_CARGO_BUILD} {_CARGO_NEXTEST}",
    "sqlite3": "-header -noheader",
    "docker compose up": """-d,--detach --build --force-recreate --no-deps --no-recreate --no-build
    --no-start --remove-orphans --scale=SCALE -V,--renew-anon-volumes --wait --wait-timeout=N
    -t,--timeout=N --quiet-pull --pull=POLICY --abort-on-container-exit --exit-code-from=SERVICE
    --attach=SERVICE --no-attach=SERVICE --no-color --no-log-prefix --timestamps -w,--watch -y,--yes""",
    "docker compose build": "--no-cache --pull -q,--quiet --progress=TYPE --build-arg=ARG -m,--memory=N",
    "docker compose down": "--remove-orphans --rmi=TYPE -t,--timeout=N --dry-run",
    "docker compose stop": "-t,--timeout=N",
    "docker compose restart": "-t,--timeout=N --no-deps",
    "docker compose pull": "-q,--quiet --ignore-pull-failures --include-deps --policy=POLICY",
    "docker compose config": "-q,--quiet --services --images --profiles --hash=SERVICE --format=FORMAT",
    "java": "-version --version -help --help -h",
    "jq": "-c,--compact-output -n,--null-input -e,--exit-status -s,--slurp -r,--raw-output "
    "-R,--raw-input"
    " -C,--color-output -M,--monochrome-output -S,--sort-keys --tab --indent=N -j,--join-output"
    " -a,--ascii-output --stream --seq --unbuffered -f,--from-file=FILE -L=DIR --arg=NAME+VALUE"
    " --argjson=NAME+VALUE --slurpfile=NAME+FILE --rawfile=NAME+FILE --argfile=NAME+FILE --args"
    " --jsonargs -h,--help --version --build-configuration --raw-output0 --stream-errors",
    "git": "-v,--version -h,--help -C=PATH -c=NAME --exec-path?PATH --html-path --man-path "
    "--info-path"
    " -p,--paginate -P,--no-pager --no-replace-objects --bare --git-dir=PATH --work-tree=PATH"
    " --namespace=NAME --super-prefix=PATH --config-env=NAME --literal-pathspecs --glob-pathspecs"
    " --noglob-pathspecs --icase-pathspecs --no-optional-locks --list-cmds=GROUP --attr-source=TREE"
    " --no-lazy-fetch --no-advice",
    "git stash": "-p,--patch -u,--include-untracked -a,--all -k,--keep-index --no-keep-index -q,--quiet"
    " -m,--message=MESSAGE --pathspec-from-file=FILE --pathspec-file-nul --index -S,--staged --stat"
    " --oneline",
    "git remote": "-v,--verbose -t=BRANCH -m=MASTER -f --tags --no-tags --mirror?KIND -d,--delete -a,--auto"
    " -n -p,--prune --dry-run --push --add --all --progress",
    "git worktree": "-f,--force -b=BRANCH -B=BRANCH -d,--detach --checkout --no-checkout --lock "
    "--reason=STRING"
    " --guess-remote --track --orphan -q,--quiet --porcelain -z -v,--verbose -n,--dry-run "
    "--expire=TIME",
    "git bundle": "-q,--quiet --progress --all-progress --version=N",
    "git notes": "-f,--force -m=MESSAGE -F=FILE -c=OBJECT -C=OBJECT --ref=NAME --stdin --allow-empty -v -q",
    "git log": _GIT_LOG + _GIT_DIFF,
    **dict.fromkeys(("git diff-files", "git diff-index", "git diff-tree"), _GIT_DIFF),
    **dict.fromkeys(("git am", "git cherry-pick", "git merge", "git rebase"), _GIT_SIGN),
    **dict.fromkeys(("git revert", "git push"), _GIT_SIGN),
    "git commit": f"{_GIT_SIGN} -u,--untracked-files?MODE --allow-empty --allow-empty-message",
    "git pull": f"{_GIT_SIGN} -e,--edit --summary --log?N --rebase?WAY --recurse-submodules?HOW --prefetch",
    "git blame": "-M?N -C?N",
    "git annotate": "--reverse --first-parent --encoding=NAME --date=FORMAT -M?N -C?N -h",
    "git branch": "-vv",
    "git describe": "--dirty?MARK --broken?MARK",
    "git for-each-ref": "--color?WHEN --merged?OBJECT --no-merged?OBJECT --contains?OBJECT"
    " --no-contains?OBJECT",
    "git format-patch": f"{_GIT_DIFF} --attach?BOUNDARY --inline?BOUNDARY --thread?STYLE --base?COMMIT",
    "git grep": "--color?WHEN",
    "git ls-files": "--abbrev?N",
    "git ls-tree": "--abbrev?N",
    "git range-diff": f"{_GIT_DIFF} --notes?REF --no-notes",
    "git rev-parse": "--short?N --abbrev-ref?MODE --branches?PATTERN --tags?PATTERN --remotes?PATTERN"
    " --glob=PATTERN --path-format=FORMAT --show-object-format?WHERE --since=DATE --after=DATE"
    " --until=DATE --before=DATE",
    "git shortlog": "--format?FORMAT -w?WIDTH -n,--numbered --max-count=N --branches?PATTERN --tags?PATTERN"
    " --remotes?PATTERN",
    "git show-ref": "--hash?N --abbrev?N --exclude-existing?PATTERN",
    "git status": "--renames --find-renames?N",
    "zip": """-0 -1 -2 -3 -4 -5 -6 -7 -8 -9 -@,--names-stdin -$,--volume-label -A,--adjust-sfx
    -b,--temp-path=DIR -B,--binary? -c,--entry-comments -d,--delete -db,--display-bytes
    -dc,--display-counts -dd,--display-dots -dg,--display-globaldots -ds,--dot-size=SIZE
    -du,--display-usize -dv,--display-volume -D,--no-dir-entries -DF,--difference-archive -e,--encrypt
    -E,--longest-as-ext -f,--freshen -F,--fix -FF,--fixfix -FI,--fifo -FS,--filesync -g,--grow -h,--help
    -h2,--more-help -i,--include? -I,--no-image -j,--junk-paths -J,--junk-sfx -k,--DOS-names -l,--to-crlf
    -la,--log-append -lf,--logfile-path=FILE -li,--log-info -ll,--from-crlf -L,--license -m,--move
    -MM,--must-match -n,--suffixes=SUFFIXES -nw,--no-wild -o,--latest-time -O,--output-file=FILE -p,--paths
    -P,--password=TEXT -q,--quiet -r,--recurse-paths -R,--recurse-patterns -s,--split-size=SIZE
    -sb,--split-bell -sc,--show-command -sd,--show-debug -sf,--show-files -so,--show-options
    -sp,--split-pause -su,--show-unicode -sU,--show-just-unicode -sv,--split-verbose -t,--from-date=DATE
    -T,--test -TT,--unzip-command=COMMAND -tt,--before-date=DATE -u,--update -U,--copy-entries -UN,--unicode=MODE
    -v,--verbose -V,--VMS-portable -w,--VMS-versions -ws,--wild-stop-dirs -x,--exclude?
    -X,--strip-extra -y,--symlinks -z,--archive-comment -Z,--compression-method=NAME""",
    "pytest": """--cov?PATH --cov-report=TYPE --cov-config=FILE --no-cov --no-cov-on-fail --cov-fail-under=MIN
    --cov-append --cov-branch --cov-precision=N --cov-context=NAME --cov-reset --timeout=SECONDS
    --timeout-method=NAME --timeout-disable-debugger-detection --session-timeout=SECONDS --reruns=N
    --reruns-delay=SECONDS --only-rerun=REGEX --rerun-except=REGEX --count=N --repeat-scope=SCOPE
    --randomly-seed=SEED --randomly-dont-reorganize --randomly-dont-reset-seed --disable-socket
    --allow-hosts=HOSTS --allow-unix-socket --force-enable-socket --benchmark-only --benchmark-skip
    --benchmark-disable --benchmark-enable --benchmark-sort=COL --benchmark-columns=LABELS
    --benchmark-warmup?KIND --benchmark-min-rounds=N --benchmark-max-time=SECONDS --benchmark-min-time=SECONDS
    --benchmark-compare?NUM --benchmark-group-by=LABEL --benchmark-name=FORMAT --benchmark-verbose
    --benchmark-quiet --reuse-db --create-db --no-migrations,--nomigrations --migrations --headed
    --browser=NAME --slowmo=MS --base-url=URL --snapshot-update --snapshot-warn-unused --testmon
    --forked --isort --flake8 --mypy --black --pylint --picked? --fail-slow=SECONDS --durations-path=PATH
    --splits=N --group=N -p=NAME --sw-reset --test-group-count=N --random-order --random-order-seed=SEED""",
    "mysql": "-e,--execute=TEXT -h,--host=HOST -P,--port=PORT -u,--user=NAME -p,--password?TEXT -D,--database=NAME"
    " -t,--table -N,--skip-column-names -B,--batch -s,--silent -v,--verbose -r,--raw -E,--vertical -H,--html"
    " -X,--xml -S,--socket=PATH --protocol=NAME -V,--version -?,--help -A,--no-auto-rehash -C,--compress"
    " -n,--unbuffered -q,--quick -f,--force -w,--wait --connect-timeout=SECONDS --ssl --ssl-mode=MODE",
    "python": "-b -B -c=TEXT -d -E -h,--help -i -I -m=MODULE -O -OO -P -q -R -s -S -u -v -V,--version"
    " -W=FILTER -x -X=OPTION --check-hash-based-pycs=MODE --help-all --help-env --help-xoptions",
    "nm": "-f,--format=FORMAT -t,--radix=RADIX",
    "docker compose": "-f,--file=FILE -p,--project-name=NAME --profile=NAME --project-directory=DIR"
    " --env-file=FILE --ansi=WHEN --compatibility --dry-run --parallel=N --progress=TYPE",
    "docker compose ps": "-a,--all --filter=FILTER --format=FORMAT --no-trunc --orphans -q,--quiet --services"
    " --status=STATUS",
    "docker compose logs": "-f,--follow --index=N --no-color --no-log-prefix --since=TIME -n,--tail=N"
    " -t,--timestamps --until=TIME",
    "less": "-o,--log-file=FILE -O,--LOG-FILE=FILE -k,--lesskey-file=FILE --lesskey-src=FILE"
    " --lesskey-content=TEXT -p,--pattern=PATTERN -P,--prompt=PROMPT -t,--tag=TAG "
    "-T,--tag-file=FILE"
    " -D,--color=SPEC -x,--tabs=N -n,--line-numbers -N,--LINE-NUMBERS -R,--RAW-CONTROL-CHARS "
    "-i -I -S -F -X -M",
    "gawk": "-f,--file=FILE -F,--field-separator=FS -v,--assign=ASSIGNMENT -b,--characters-as-bytes"
    " -c,--traditional -C,--copyright -d,--dump-variables?FILE -D,--debug?FILE -e,--source=PROGRAM"
    " -E,--exec=FILE -g,--gen-pot -h,--help -i,--include=FILE -I,--trace -l,--load=FILE "
    "-L,--lint?VALUE"
    " -M,--bignum -N,--use-lc-numeric -n,--non-decimal-data -o,--pretty-print?FILE -O,--optimize"
    " -p,--profile?FILE -P,--posix -r,--re-interval -s,--no-optimize -S,--sandbox "
    "-t,--lint-old -V,--version"
    " -W=OPTION",
    "ag": "-A,--after?LINES -B,--before?LINES -C,--context?LINES -c,--count -f,--follow "
    "-F,--fixed-strings"
    " -G=PATTERN -g=PATTERN -i,--ignore-case -l -L -m,--max-count=N -n -o "
    "-p,--path-to-ignore=FILE -Q,--literal"
    " -r -R -s -S -t -u -U -v -w -z,--search-zip -0 -a --pager=COMMAND --nopager --ignore=PATTERN",
    "seq": "-f,--format=FORMAT -s,--separator=STRING -w,--equal-width --help --version",
}
"""What no help says, or not in a form that can be read: from the manual pages of the programs."""
DOCUMENTED |= {
    f"git {verb}": DOCUMENTED["git log"]
    for verb in ("show", "diff", "reflog", "rev-list", "whatchanged")
}

DOCUMENTED["find"] += "".join(f" -newer{x}{y}=FILE" for x in "aBcm" for y in "aBcm")

OPTION = re.compile(r"(--?(?:\[no-\])?[A-Za-z0-9?@#:.][\w.:\-]*(?:\[no-\])?)(.*)", re.DOTALL)


def run(*words: str, at: str = "/") -> str:
    """Return what a program prints, both outputs together; empty if it takes too long."""
    environment = {**os.environ, "LC_ALL": "C", "COLUMNS": "200", "MANWIDTH": "200", "PAGER": "cat"}
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
            env=environment,
            cwd=at,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    return re.sub(r".\x08", "", text)


STRICT = re.compile(r"(-\S|--[\w\[\]\-]+)(\[?=?<[^>]+>\]?|\[=[^\]]+\]| <[^>]+>)?(, |$)")


def read_help(text: str, *, strict: bool = False) -> Iterator[str]:
    """Yield the options of a help text, one token each; `strict` leaves out lines that hold more
    than that.
    """
    for line in text.expandtabs().splitlines():
        stripped = line.strip()
        if len(line) - len(line.lstrip()) > 12:  # a description that goes on
            continue
        if not stripped.startswith("-") or re.match(r"-{3,}|-\d+\.?$|- ", stripped):
            continue
        # less: `-e  -E  ....  --quit-at-eof  --QUIT-AT-EOF`
        if re.search(r" \.\.\.+ ", stripped):
            stripped = re.sub(r"\s+\.\.\.+\s+|\s{2,}", ", ", stripped)
        stripped = re.sub(r",\s+-", ", -", stripped)
        stripped = re.sub(r"\{([^}]*)\}", "VALUE", stripped)
        stripped = re.sub(r"(-\S) +(--\w)", r"\1, \2", stripped)
        head = re.split(r"\s{2,}", stripped)[0]
        if not strict:
            yield from read_head(head)
        elif STRICT.sub("", head) == "":
            for piece in head.split(", "):
                yield from read_head(piece)


def read_head(head: str) -> Iterator[str]:
    """Yield one token for the spellings at the start of a line, if they are some."""
    names: list[str] = []
    value = ""
    optional = False
    for piece in re.split(r",\s*(?=-)| \| | or (?=-)|/(?=-)", head):
        match = OPTION.fullmatch(piece.strip())
        if match is None:
            continue
        name, rest = match.groups()
        if re.fullmatch(r"-\d.*", name) and len(name) > 2:
            continue
        glued = re.fullmatch(r"(--?[\w\-]+)(<.*)", piece.strip())
        if glued:
            name, rest = glued.groups()
        no = "[no-]" in name
        name = name.replace("[no-]", "").rstrip(".")
        names.append(name)
        if no:
            names.append(name.replace("--", "--no-", 1))
        wanted = re.match(r"(\[=?|=| )?\s*<?([^\s>\]=|;,]+)", rest) if rest.strip() else None
        if wanted:
            value = value or re.sub(r"[^\w:.\-]", "", wanted.group(2)) or "VALUE"
            optional = optional or (wanted.group(1) or "").startswith("[") or rest.startswith("[")
    if names:
        yield ",".join(dict.fromkeys(names)) + (("?" if optional else "=") + value if value else "")


def probe(program: str, told: list[str]) -> Iterator[str]:
    """Yield the options of a getopt program, as getopt's own messages describe them.

    `--=x` fits all long options, so all are listed as possibilities. What the help says of them is
    their grouping and what their values are called.
    """
    groups = {name: token for token in told for name in split_token(token)[0]}
    with tempfile.TemporaryDirectory() as folder:
        listed = re.findall(
            r"'(--[\w\-]+)'", run(program, "--=x", at=folder).partition("possibilities")[2]
        )
        letters = [f"-{letter}" for letter in string.ascii_letters + string.digits]
        arities = {
            name: arity(program, name, folder) for name in (*dict.fromkeys(listed), *letters)
        }
    done = set[str]()
    for name, kind in arities.items():
        if kind is None or name in done:
            continue
        names, value = split_token(groups.get(name, name))
        for wanted in ("", "=", "?"):
            alike = [
                other
                for other in (name, *names)
                if arities.get(other) == wanted and other not in done
            ]
            if alike:
                done.update(alike)
                yield ",".join(dict.fromkeys(alike)) + (
                    wanted + (value[1:] or "VALUE") if wanted else ""
                )


def arity(program: str, name: str, folder: str) -> str | None:
    """Return `` for an option without a value, `=` or `?` for one that needs or may have one; None
    if unknown.
    """
    said = run(program, name, at=folder)
    if re.search(
        r"(invalid|unrecognized|unknown) option|not an option|option not recognized", said
    ):
        return None
    if "requires an argument" in said:
        return "="
    if name.startswith("--"):
        return "" if "doesn't allow an argument" in run(program, f"{name}=x", at=folder) else "?"
    # A letter that may have a value takes the rest of its word: then no other letter of it is
    # refused.
    return (
        ""
        if re.search(
            r"(invalid|unrecognized|unknown) option", run(program, f"{name}\x01", at=folder)
        )
        else "?"
    )


def split_token(token: str) -> tuple[list[str], str]:
    """Return the spellings of a token, and `=NAME`, `?NAME` or nothing."""
    match = re.fullmatch(r"((?:-\?|[^=?])+)([=?].*)?", token)
    return (match.group(1).split(","), match.group(2) or "") if match else ([], "")


def merge(*sources: Iterable[str]) -> str:
    """Join tokens: the first that names an option decides about its value."""
    known: dict[str, str] = {}
    kept: list[str] = []
    for token in (token for source in sources for token in source):
        names, value = split_token(token)
        fresh = [name for name in names if name not in known]
        known |= dict.fromkeys(fresh, token)
        if fresh:
            kept.append(",".join(fresh) + value)
    return " ".join(sorted(kept, key=str.lower))


def version(program: str) -> str:
    """Return the first line that a program says of its version."""
    for option in ("--version", "version", "-V", "-v"):
        said = run(program, option).strip().splitlines()
        if said and re.search(r"\d\.\d", said[0]):
            return re.sub(r"\s*(\(.*?pc-linux| from /).*", "", said[0])[:60]
    return ""


def tables() -> dict[str, dict[str, str]]:
    """All tables that the programs on this machine and the documentation give."""
    found: dict[str, dict[str, str]] = {}
    for program in GETOPT.split():
        if not shutil.which(program):
            continue
        told = list(read_help(run(program, "--help")))
        found[program] = row(program, "getopt", merge(probe(program, told)))
    for program in HELP.split():
        name = program if shutil.which(program) else NAMES.get(program, program)
        if shutil.which(name):
            told = read_help(run(name, *ASKED.get(program, ("--help",))))
            written = DOCUMENTED.get(program, "").split()
            found[program] = row(name, "help", merge(written, told))
    for program, verbs in SUBCOMMANDS.items():
        if not shutil.which(program):
            continue
        general = [*DOCUMENTED.get(program, "").split(), *read_help(run(program, "--help"))]
        found[program] = row(program, "help", merge(general))
        for verb in verbs.split():
            words = verb.split("_")
            told = read_help(run(program, *words, "--help"))
            key = " ".join((program, *words))
            written = DOCUMENTED.get(key, "").split()
            found[key] = row(program, "help", merge(written, told, general))
    found |= git_tables()
    found |= go_tables()
    found |= npm_table()
    for program, options in DOCUMENTED.items():
        if program not in found:
            found[program] = {
                "version": "",
                "source": "documentation",
                "options": merge(options.split()),
            }
    return found


def row(program: str, source: str, options: str) -> dict[str, str]:
    """Return one row of the data file."""
    return {"version": version(program), "source": source, "options": options}


def git_tables() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of git's verbs: what `-h`, the completion and the manual say."""
    if not shutil.which("git"):
        return
    told_version = version("git")
    manuals = MANUAL.split()
    for verb in GIT_VERBS.split():
        told = list(read_help(run("git", verb, "-h")))
        completed = run("git", verb, "--git-completion-helper-all").split()
        if "usage:" in completed or "fatal:" in completed or "error:" in completed:
            completed = []
        listed = [f"{word}VALUE" if word.endswith("=") else word for word in completed]
        listed = [word for word in listed if word.startswith("--") and len(word) > 2]
        pages = []
        for page in {verb, "log" if verb in manuals else verb}:
            pages.append(
                run("man", "-P", "cat", f"git-{page}") if page in manuals or not told else ""
            )
        manual = [token for page in pages for token in read_help(page, strict=True)]
        written = DOCUMENTED.get(f"git {verb}", "").split()
        options = merge(written, told, listed, manual)
        yield f"git {verb}", {"version": told_version, "source": "help", "options": options}


def go_tables() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of go's verbs. One dash or two: `go` takes both."""
    if not shutil.which("go"):
        return
    for verb, topics in GO_TOPICS.items():
        told = [line for topic in topics for line in run("go", "help", *topic.split()).splitlines()]
        heads = [line.strip() for line in told if re.match(r"\t-\w", line)]
        tokens = [token for head in heads for token in read_head(head.replace("'", ""))]
        yield f"go {verb}", row("go", "help", merge(tokens, GO_MORE.split()))


def npm_table() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the row of npm: its settings are its options, and its own module lists them with their
    types.
    """
    if not (shutil.which("npm") and shutil.which("node")):
        return
    roots = [line for line in run("npm", "root", "-g").splitlines() if line.startswith("/")]
    module = f"{roots[0]}/npm/node_modules/@npmcli/config/lib/definitions"
    script = (
        f"const d=require('{module}');console.log(JSON.stringify([Object.entries(d.definitions).map"
    )
    script += "(([k,v])=>[k,v.typeDescription]),Object.entries(d.shorthands)]))"
    said = [line for line in run("node", "-e", script).splitlines() if line.startswith("[[")]
    settings, shorthands = json.loads(said[0])
    tokens = []
    short = {target[0].removeprefix("--"): name for name, target in shorthands if len(target) == 1}
    for name, kind in settings:
        names = f"-{short[name]},--{name}" if name in short else f"--{name}"
        value = "" if "Boolean" in kind else "=PATH" if "Path" in kind else "=VALUE"
        tokens.append(f"{names},--no-{name}" if not value else names + value)
    tokens += [f"-{name}" if len(name) < 2 else f"--{name}" for name, _ in shorthands]
    yield "npm", row("npm", "help", merge(tokens))


def main() -> None:
    """Write the data file; rows of programs that are not here stay as they are."""
    kept = json.loads(TABLES.read_text()) if TABLES.exists() else {}
    made = tables()
    found = {**kept, **made}
    lines = [f" {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    TABLES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    left = sorted(name for name in kept if name not in made)
    print(f"{len(found)} tables; kept as they were: {', '.join(left) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
