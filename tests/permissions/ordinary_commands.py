"""Ordinary commands of a developer's day, with what a person expects of each, as data.

`RULES` is what a developer has allowed over time. A row says what the gate decides, in which mode, and why a person
expects that: `allow` names the rule that decides, `ask` and `deny` name words of the reason that is shown. The
expectations were written before the code was asked.
"""

from __future__ import annotations

from dataclasses import dataclass

RULES = tuple(
    f"Bash({prefix}:*)"
    for prefix in (
        *(
            "cut",
            "tr",
            "awk",
            "sed",
            "grep",
            "sort",
            "uniq",
            "find",
            "head",
            "tail",
            "wc",
            "cat",
            "ls",
            "echo",
        ),
        *("printf", "diff", "jq", "tar", "curl", "stat", "file", "du", "basename", "dirname", "test", "rg"),
        *("cd", "pwd", "date", "tree", "less", "xxd", "nl", "paste", "comm", "join", "column", "tee out"),
        *("make", "npm test", "npm run", "npm ls", "npm view", "npm outdated", "node --version"),
        *("uv sync", "uv run pytest", "uv pip list", "cargo build", "cargo test", "cargo check"),
        *("cargo clippy", "go test", "go build", "go vet", "go list", "docker ps", "docker images"),
        *("docker logs", "docker inspect", "docker compose ps", "pytest", "python -m pytest", "ruff check"),
        *("ruff format", "pyright", "pip list", "pip show", "which", "sha256sum", "cmp", "seq", "sleep"),
        *("git status", "git diff", "git log", "git show", "git branch", "git rev-parse", "git ls-files"),
        *("git blame", "git grep", "git shortlog", "git describe", "git tag", "git remote", "git stash"),
        *("git reflog", "git fetch", "git add", "git commit", "git config --get", "git ls-remote"),
        *("git cat-file", "git merge-base", "git worktree list", "git archive", "git for-each-ref"),
    )
)
DENIED = ("Edit(locked/**)", "Edit(pyproject.toml)")


@dataclass(frozen=True, slots=True)
class Ordinary:
    """`expect` is the verdict; `says` is the rule for `allow` and words of the reason for the others."""

    command: str
    expect: str
    says: str
    why: str
    mode: str = "default"


def _allowed(rule: str, why: str, *commands: str) -> list[Ordinary]:
    return [Ordinary(command, "allow", f"Bash({rule}:*)", why) for command in commands]


_TEXT = "a delimiter, a pattern or a program is text, whatever stands in it"
_READS = "it reads files of the workspace and prints"
_STAYS = "it comes back to where it was, in the workspace"

ORDINARY: tuple[Ordinary, ...] = (
    # ---- text, which is no path
    *_allowed("cut", _TEXT, "cut -d/ -f1 a", "cut -d / -f 2- a b", "cut --delimiter=/ --fields=1,3 a", "cut -c1-80 a", "cut -d: -f1 --output-delimiter=/ a"),
    *_allowed("tr", _TEXT, "tr / _", "tr -d '/'", "tr -s '/' '\\n'", "tr '[:lower:]' '[:upper:]'", "tr -cd '[:print:]'", "tr .. --"),
    *_allowed("awk", _TEXT, "awk -F/ '{print $1}' a", "awk -F / '{print $NF}' a", "awk '/foo/ {print $2}' a", "awk -F: '{s+=$3} END {print s}' a", "awk 'NR%3==1' a", "awk -v x=/api '$0 ~ x' a", "awk '$1 == \"/\" {print $2}' a"),
    *_allowed("sed", _TEXT, "sed -e '/^$/d' a", "sed '/^#/d' a", "sed -n '/start/,/end/p' a", "sed 's/foo/bar/g' a", "sed 's|/usr/local|/opt|' a", "sed -n 5,10p a", "sed -E 's/^[ ]+//' a", "sed -e 's/a/b/' -e '/x/d' a", "sed --expression='/^$/d' a", "sed '$d' a", "sed 1d a"),
    *_allowed("grep", _TEXT, "grep -e /api -r src", "grep -rn /api src", "grep -E '/(v1|v2)/users' -r src", "grep -c / a", "grep -A 3 -B 3 /etc/hosts README.md", "grep --include='*.py' -rn TODO .", "grep -rn --exclude-dir=node_modules /api .", "grep -v '^//' a.c", "grep -oE 'https?://[^ ]+' README.md", "grep -rnw . -e TODO", "grep --color=auto -i error log.txt", "grep -m 1 -e ../lib -r src"),
    *_allowed("rg", _TEXT, "rg /api src", "rg -n --glob '!*.min.js' /users", "rg -e /api -e /v1 src", "rg -t py 'def main'", "rg -A3 TODO src", "rg --files src", "rg -F '../' src"),
    *_allowed("sort", _TEXT, "sort -t/ a", "sort -t / -k 2,2n a", "sort --field-separator=/ --key=3 a", "sort -u a b", "sort -rn a", "sort -h -k1,1 a"),
    *_allowed("uniq", _READS, "uniq -c a", "uniq -d a", "uniq -f 1 a"),
    *_allowed("paste", _TEXT, "paste -sd/ a", "paste -d / a b"),
    *_allowed("column", _TEXT, "column -t -s / a"),
    *_allowed("join", _TEXT, "join -t / a b"),
    *_allowed("jq", _TEXT, "jq . a.json", "jq -r '.items[] | .path + \"/\" + .name' a.json", "jq '.a / 2' a.json", "jq --arg p /api '.[$p]' a.json", "jq -c 'map(select(.url | startswith(\"/v1\")))' a.json", "jq --indent 2 -S . a.json"),
    *_allowed("echo", _TEXT, "echo /etc/passwd", "echo ../x", "echo -n done"),
    *_allowed("printf", _TEXT, "printf '%s/%s\\n' a b"),
    *_allowed("basename", _TEXT, "basename src/a/b.py .py"),
    *_allowed("date", _TEXT, "date +%Y/%m/%d", "date -u", "date -d '2 days ago' +%F"),
    *_allowed("seq", _TEXT, "seq -s / 1 5"),
    # ---- files of the workspace
    *_allowed("head", _READS, "head -n 20 README.md", "head -20 README.md", "head -c 100 a"),
    *_allowed("tail", _READS, "tail -n +5 a", "tail -f log.txt"),
    *_allowed("cat", _READS, "cat README.md src/main.py", "cat -n a", "cat /work/project/README.md", "cat ./src/../README.md"),
    *_allowed("ls", _READS, "ls -la src", "ls", "ls -1 src/*.py"),
    *_allowed("wc", _READS, "wc -l src/*.py"),
    *_allowed("diff", _READS, "diff -u a b", "diff -r src lib", "diff -y --suppress-common-lines a b"),
    *_allowed("tree", _READS, "tree -L 2 src", "tree -I node_modules"),
    *_allowed("du", _READS, "du -sh src"),
    *_allowed("file", _READS, "file a.bin"),
    *_allowed("less", _READS, "less README.md", "less -N README.md"),
    *_allowed("xxd", _READS, "xxd a.bin", "xxd -l 64 a.bin"),
    *_allowed("find", _READS, "find . -name '*.py'", "find src -type f -size +500k", "find . -path './node_modules' -prune -o -name '*.js' -print", "find . -name '*.py' -not -path '*/site-packages/*'", "find . -path '/api/*'", "find . -mtime -1 -maxdepth 3", "find . -regex '.*/test_.*' -print0", "find . -iname '*.md' -newer README.md"),
    *_allowed("tar", _READS, "tar -tf a.tar", "tar tzf a.tgz", "tar -tvf a.tar.gz"),
    # ---- several commands
    *_allowed("cd", _STAYS, "cd docs && make html && cd ..", "cd docs && make html && cd .. && make test", "cd src && ls && cd ../docs && ls", "cd a/b && ls && cd ../.. && ls", "cd docs && make html && cd .. && git status", "(cd docs && make html) && cat README.md", "cd src && cat ../README.md", "cd /work/project && ls", "cd docs && grep -rn ../img . && cd .."),
    *_allowed("find", _READS, "find . -name '*.py' | sort", "find . -name '*.log' | wc -l"),
    *_allowed("cat", _READS, "cat a | cut -d/ -f2 | sort | uniq -c | sort -rn | head -5", "cat a.json | jq '.[0].name'"),
    *_allowed("grep", _READS, "grep -rl TODO src | head", "grep -c x a || echo none"),
    *_allowed("git log", _READS, "git log --format=%an | sort | uniq -c | sort -rn"),
    *_allowed("git diff", _READS, "git diff --name-only main | grep -E '^src/'"),
    *_allowed("curl", "a page is fetched and printed", "curl -s https://api.example.com/v1/users | jq '.items[] | .id'"),
    # ---- git, reading
    *_allowed("git status", _READS, "git status", "git status -sb", "git status --porcelain=v2"),
    *_allowed("git diff", _READS, "git diff", "git diff --stat HEAD~3", "git diff main...HEAD -- src", "git diff --cached --name-only", "git diff origin/main..feature/x", "git diff -U10 a.py", "git diff --word-diff", "git diff -S/api"),
    *_allowed("git log", _TEXT, "git log --oneline -20", "git log --graph --all --decorate", "git log -p src/main.py", "git log --grep=/api/v1", "git log --author='A B' --since='2 weeks ago'", "git log --format='%h %ad/%an' --date=short", "git log -S /etc/hosts", "git log -G '/v[12]/' -- src", "git log ..origin/main", "git log -L 1,20:src/main.py", "git log --pretty=format:'%H' -n 1", "git log --follow -- README.md", "git log -1"),
    *_allowed("git show", _READS, "git show HEAD", "git show HEAD:README.md", "git show --stat HEAD~1", "git show v1.0:src/main.py"),
    *_allowed("git branch", _READS, "git branch", "git branch -a", "git branch --show-current", "git branch -vv", "git branch --merged main", "git branch -r --contains HEAD"),
    *_allowed("git rev-parse", _READS, "git rev-parse HEAD", "git rev-parse --abbrev-ref HEAD", "git rev-parse --show-toplevel"),
    *_allowed("git ls-files", _READS, "git ls-files", "git ls-files -m -o --exclude-standard", "git ls-files '*.py'"),
    *_allowed("git blame", _READS, "git blame -L 10,20 src/main.py", "git blame -w README.md"),
    *_allowed("git grep", _TEXT, "git grep -n /api", "git grep -e /api -- src", "git grep -l TODO", "git grep -i --count x"),
    *_allowed("git shortlog", _READS, "git shortlog -sn"),
    *_allowed("git describe", _READS, "git describe --tags --always"),
    *_allowed("git tag", _READS, "git tag", "git tag -l 'v1.*'", "git tag --sort=-creatordate"),
    *_allowed("git remote", _READS, "git remote -v", "git remote show origin", "git remote get-url origin"),
    *_allowed("git stash", _READS, "git stash list", "git stash show -p"),
    *_allowed("git reflog", _READS, "git reflog", "git reflog show main", "git reflog -5"),
    *_allowed("git config --get", _READS, "git config --get user.name"),
    *_allowed("git ls-remote", _READS, "git ls-remote --heads origin"),
    *_allowed("git merge-base", _READS, "git merge-base main HEAD"),
    *_allowed("git cat-file", _READS, "git cat-file -p HEAD"),
    *_allowed("git for-each-ref", _TEXT, "git for-each-ref --format='%(refname)/%(objectname)' refs/heads"),
    *_allowed("git worktree list", _READS, "git worktree list"),
    *_allowed("git fetch", "the rule says fetch", "git fetch origin", "git fetch --all --tags"),
    *_allowed("git add", "the rule says add", "git add -A", "git add src/main.py"),
    *_allowed("git commit", _TEXT, "git commit -m 'Serve /api/v1'", "git commit -am 'Fix ../x'", "git commit --message='Use /etc/hosts' -q"),
    # ---- builds, tests, packages
    *_allowed("make", "the rule says make", "make", "make test", "make -j4 build", "make -j 4 all", "make -C docs html", "make -n install"),
    *_allowed("npm test", "the rule says test", "npm test", "npm test -- --watch=false", "npm test -- src/a.test.js"),
    *_allowed("npm run", "the rule says run", "npm run build", "npm run lint -- --fix", "npm run -s dev"),
    *_allowed("npm ls", _READS, "npm ls --depth=0"),
    *_allowed("npm view", _READS, "npm view react version"),
    *_allowed("npm outdated", _READS, "npm outdated --json"),
    *_allowed("uv sync", "the rule says sync", "uv sync", "uv sync --all-extras"),
    *_allowed("uv run pytest", "the rule says pytest", "uv run pytest -q tests/permissions", "uv run pytest -x -k 'not slow'"),
    *_allowed("uv pip list", _READS, "uv pip list"),
    *_allowed("cargo build", "the rule says build", "cargo build --release", "cargo build -p core"),
    *_allowed("cargo test", "the rule says test", "cargo test", "cargo test parser::tests -- --nocapture"),
    *_allowed("cargo check", "the rule says check", "cargo check --workspace --all-targets"),
    *_allowed("cargo clippy", "the rule says clippy", "cargo clippy -- -D warnings"),
    *_allowed("go test", "the rule says test", "go test ./...", "go test -v -run 'TestA/sub' ./pkg/...", "go test -race -count=1 -timeout 30s ./..."),
    *_allowed("go build", "the rule says build", "go build ./...", "go build -v ./cmd/app"),
    *_allowed("go vet", "the rule says vet", "go vet ./..."),
    *_allowed("go list", _READS, "go list -m all", "go list -f '{{.Dir}}/{{.Name}}' ./..."),
    *_allowed("docker ps", _READS, "docker ps -a", "docker ps --filter status=running --format '{{.Names}}/{{.Image}}'"),
    *_allowed("docker images", _READS, "docker images"),
    *_allowed("docker logs", _READS, "docker logs --tail 100 -f web"),
    *_allowed("docker inspect", _READS, "docker inspect web"),
    *_allowed("docker compose ps", _READS, "docker compose ps"),
    *_allowed("pytest", "the rule says pytest", "pytest", "pytest -q tests/permissions", "pytest -x -k 'a and not b'", "pytest tests/test_a.py::test_b -vv", "pytest --lf --maxfail=1", "pytest -m 'not slow' --durations=10"),
    *_allowed("python -m pytest", "the rule says pytest", "python -m pytest -q"),
    *_allowed("ruff check", "the rule says check", "ruff check .", "ruff check --fix src"),
    *_allowed("ruff format", "the rule says format", "ruff format --check ."),
    *_allowed("pyright", "the rule says pyright", "pyright src"),
    *_allowed("pip list", _READS, "pip list --outdated"),
    *_allowed("pip show", _READS, "pip show pytest"),
    # ---- the web
    *_allowed("curl", "a page is fetched and printed", "curl https://example.com/a/b", "curl -sSfL https://example.com", "curl -s -H 'Accept: application/json' https://example.com/v1", "curl -I https://example.com", "curl --silent --fail --max-time 10 https://example.com", "curl -s 'http://localhost:8080/health?x=/a'", "curl -w '%{http_code}/%{time_total}' -s https://example.com"),
    # ---- asked about: it does more than the rule says
    Ordinary("rm -rf build", "ask", "no rule allows", "nothing allows to delete"),
    Ordinary("sed -i s/a/b/ a", "ask", "no rule allows", "a file is changed in place"),
    Ordinary("find . -name '*.pyc' -delete", "ask", "no rule allows", "files are deleted"),
    Ordinary("find . -name '*.py' -exec grep -l x {} +", "ask", "no rule allows", "find starts a program"),
    Ordinary("find . -name '*.py' | xargs grep -n TODO", "ask", "no rule allows `xargs grep -n TODO`", "which names reach grep is known only when it runs"),
    Ordinary("sort -o a a", "ask", "no rule allows", "a file is written"),
    Ordinary("uniq a b", "ask", "no rule allows", "the second name is written"),
    Ordinary("xxd -r a.hex a.bin", "ask", "no rule allows", "the second name is written"),
    Ordinary("tar -xzf a.tgz", "ask", "no rule allows", "files are replaced"),
    Ordinary("curl -o page.html https://example.com", "ask", "no rule allows", "a file is written"),
    Ordinary("curl -X POST -d '{\"a\": 1}' https://example.com/v1", "ask", "no rule allows", "data leaves"),
    Ordinary("curl -X DELETE https://example.com/v1/1", "ask", "no rule allows", "something elsewhere is deleted"),
    Ordinary("git branch -D topic", "ask", "no rule allows", "a branch is deleted"),
    Ordinary("git tag -d v1", "ask", "no rule allows", "a tag is deleted"),
    Ordinary("git stash clear", "ask", "no rule allows", "kept work is lost"),
    Ordinary("git stash drop", "ask", "no rule allows", "kept work is lost"),
    Ordinary("git reflog expire --expire=now --all", "ask", "no rule allows", "the way back is lost"),
    Ordinary("git remote add up https://example.com/x.git", "ask", "no rule allows", "the configuration changes"),
    Ordinary("git push origin main", "ask", "no rule allows", "nothing allows to push"),
    Ordinary("git checkout -- .", "ask", "no rule allows", "work is lost"),
    Ordinary("git -C ../other status", "deny", "outside the workspace", "another project"),
    Ordinary("git archive --output=a.tar HEAD", "ask", "no rule allows", "a file is written"),
    Ordinary("npm install left-pad", "ask", "no rule allows", "nothing allows to install"),
    Ordinary("npm run build --script-shell=./x", "ask", "no rule allows", "another shell runs the scripts"),
    Ordinary("go test -exec=./x ./...", "ask", "no rule allows", "another program runs the tests"),
    Ordinary("make -f other.mk", "ask", "no rule allows", "another file says what is made"),
    Ordinary("make SHELL=./x", "ask", "no rule allows", "another shell runs the recipes"),
    Ordinary("docker run -it alpine sh", "ask", "what `docker` runs", "a shell in a container reads what nobody has seen"),
    Ordinary("python script.py", "ask", "no rule allows", "nothing allows to run scripts"),
    Ordinary("ls > files.txt", "ask", "no rule allows to write `files.txt`", "a file is written"),
    Ordinary("cat $FILE", "ask", "no rule allows", "which file is known only when it runs"),
    Ordinary("cd docs; make html; cd ..", "ask", "could lie outside the workspace", "if the first `cd` fails, the last one leaves"),
    Ordinary("cd docs && git log", "ask", "no rule allows `git log`", "hooks and settings of another folder"),
    # ---- refused: it leaves the workspace, or a rule says no
    Ordinary("cat /etc/hosts", "deny", "`/etc/hosts` lies outside the workspace", "a file outside"),
    Ordinary("ls ~", "deny", "lies outside the workspace", "a folder outside"),
    Ordinary("cd .. && ls", "deny", "`..` lies outside the workspace", "a folder outside"),
    Ordinary("cd docs && cat ../../secret.txt", "deny", "`../../secret.txt` lies outside the workspace", "a file outside"),
    Ordinary("tail -f /var/log/syslog", "deny", "`/var/log/syslog` lies outside the workspace", "a file outside"),
    Ordinary("grep -rn x /etc", "deny", "`/etc` lies outside the workspace", "files outside"),
    Ordinary("grep -f /etc/passwd a", "deny", "`/etc/passwd` lies outside the workspace", "patterns from a file outside"),
    Ordinary("cut -d: -f1 /etc/passwd", "deny", "`/etc/passwd` lies outside the workspace", "a file outside"),
    Ordinary("awk -F: '{print $1}' /etc/passwd", "deny", "`/etc/passwd` lies outside the workspace", "a file outside"),
    Ordinary("sort -T /tmp a", "deny", "`/tmp` lies outside the workspace", "files are written outside"),
    Ordinary("cat .env", "deny", "`.env`", "a secret"),
    Ordinary("grep KEY .env", "deny", "`.env`", "a secret"),
    Ordinary("sort -o pyproject.toml a", "deny", "Edit(pyproject.toml)", "a rule says no"),
    Ordinary("uniq a locked/b", "deny", "Edit(locked/**)", "a rule says no"),
    Ordinary("xxd -r a locked/b", "deny", "Edit(locked/**)", "a rule says no"),
    # ---- other modes
    Ordinary("git log -3", "deny", "mode plan", "a plan runs nothing", "plan"),
    Ordinary("rm -rf build", "deny", "dontAsk does not ask", "nobody is asked", "dontAsk"),
    Ordinary("cut -d/ -f1 a", "allow", "Bash(cut:*)", "a rule allows it", "dontAsk"),
    Ordinary("rm -rf build", "ask", "no rule allows", "edits are not commands", "acceptEdits"),
    Ordinary("rm -rf build", "allow", "", "all that is left is allowed", "bypassPermissions"),
    Ordinary("tr / _ < a", "allow", "Bash(tr:*)", "a rule allows it", "bypassPermissions"),
    Ordinary("cat /etc/hosts", "deny", "lies outside the workspace", "no mode lifts it", "bypassPermissions"),
    Ordinary("cut -d/ -f1 a", "allow", "Bash(cut:*)", "a rule allows it", "auto"),
)  # fmt: skip
