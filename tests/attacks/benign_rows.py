"""Ordinary work that must go on unchanged inside the sandbox, as data.

Each row is run in a copy of the same project, once by a plain shell and once confined: exit status,
output and the files that are there afterwards must be the same. `<python>` is an interpreter,
`<packages>` its installed packages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """`script` for bash, `says` must be in its output. `differs`: outputs hold times or sizes, only
    `says` is compared.
    """

    id: str
    script: str
    says: str
    differs: bool = False


WORK: tuple[Work, ...] = (
    Work(
        "pytest",
        "PYTHONPATH=<packages> <python> -m pytest -q -p no:cacheprovider test_sums.py",
        "2 passed",
        differs=True,
    ),
    Work("unittest", "<python> -m unittest -q test_unit 2>&1", "OK", differs=True),
    Work("make", "make -s && ./hello", "hello from C"),
    Work("make-parallel", "make -s -j4 many && ls *.o | wc -l", "12"),
    Work(
        "gcc-link",
        "gcc -c hello.c -o h.o && gcc h.o -o h && ./h && nm h | grep -c main",
        "hello from C",
    ),
    Work(
        "gcc-shared",
        (
            'gcc -shared -fPIC -o libx.so hello.c && <python> -c "import ctypes; '
            "ctypes.CDLL('./libx.so').main()\""
        ),
        "hello from C",
    ),
    Work("git-status", "git status --short; git log --oneline | wc -l", "1"),
    Work(
        "git-commit",
        "echo more >> README.md && git add -A . && git commit -q -m second && git log --format=%s",
        "second",
    ),
    Work(
        "git-identity",
        (
            "unset GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL; echo "
            "more >> README.md && git commit -q -a -m mine && git log -1 --format='by %an "
            "<%ae>, %cn "
            "<%ce>'"
        ),
        "by ",
    ),
    Work(
        "git-branch",
        (
            "git switch -q -c topic && echo t > t && git add t && git commit -q -m t && git switch "
            "-q main && git merge -q topic && ls t"
        ),
        "t",
    ),
    Work(
        "git-stash",
        "echo x >> README.md && git stash -q && git stash pop -q && git diff --stat",
        "1 file changed",
    ),
    Work(
        "git-tracked-secret",
        (
            "git ls-files .env.example; git status --short; echo x >> README.md; git commit "
            "-q -a -m "
            "with; git add -A; git stash; git log --format=%s"
        ),
        ".env.example",
    ),
    Work(
        "git-cherry-pick",
        (
            "git switch -q -c topic && echo t > t && git add t && git commit -q -m t && git switch "
            "-q main && git cherry-pick topic > log && rm log && ls t"
        ),
        "t",
    ),
    Work(
        "git-cherry-pick-several",
        (
            "git switch -q -c topic && for n in 1 2; do echo $n > t$n; git add t$n; git commit -q "
            "-m t$n; done; git switch -q main && git cherry-pick main..topic > log; rm log; ls t?"
        ),
        "t2",
    ),
    Work(
        "git-revert",
        (
            "echo x >> README.md && git commit -q -a -m x && git revert --no-edit HEAD > log && rm "
            "log && git log -1 --format=%s"
        ),
        'Revert "x"',
    ),
    Work(
        "git-bisect-run",
        (
            "for n in 1 2 3 4; do echo $n > n; git add n; git commit -q -m n$n; done; git bisect "
            "start HEAD HEAD~4 > log; git bisect run sh -c 'test $(cat n) -lt 3' > log; git show "
            "-s --format=%s refs/bisect/bad; git bisect reset 2> log; rm log"
        ),
        "n3",
    ),
    Work(
        "git-apply",
        (
            "echo x >> README.md && git diff > p && git checkout -q README.md && git apply p && rm p "
            "&& git diff --stat"
        ),
        "1 file changed",
    ),
    Work("git-tag", "git tag v1 && git describe --tags", "v1"),
    Work("git-diff", "sed -i s/Project/Other/ README.md && git diff", "+# Other"),
    Work("git-blame", "git blame -s README.md", "# Project"),
    Work(
        "git-elsewhere",
        (
            'cd "$(mktemp -d)" && git init -q -b main . && git commit -q --allow-empty -m x && git '
            "log --format=%s"
        ),
        "x",
    ),
    Work(
        "git-worktree-diff",
        "git grep -n Project -- README.md && git ls-files | wc -l",
        "README.md:1",
    ),
    Work(
        "venv-offline-pip",
        (
            "<python> -m venv --without-pip v && PYTHONPATH=<packages> <python> -m pip --python "
            "v/bin/python install -q --no-index --no-deps --disable-pip-version-check --find-links "
            "wheels tiny && v/bin/python -c 'import tiny; print(tiny.word)'"
        ),
        "a tiny word",
    ),
    Work(
        "venv-certificates",
        (
            "<python> -m venv --without-pip v && mkdir -p "
            "v/lib/python3/site-packages/certifi && cp "
            "public.crt v/lib/python3/site-packages/certifi/cacert.pem && cat "
            "v/lib/python3/site-packages/certifi/cacert.pem"
        ),
        "BEGIN CERTIFICATE",
    ),
    Work("public-certificates", "cat certs/cacert.pem", "BEGIN CERTIFICATE"),
    Work(
        "test-key",
        (
            "openssl genpkey -algorithm ed25519 -out test.key && openssl pkey -in test.key "
            "-noout && "
            "openssl req -x509 -key test.key -subj /CN=x -out test.pem -days 1 && openssl x509 -in "
            "test.pem -noout -subject"
        ),
        "CN = x",
        differs=True,
    ),
    Work(
        "ssh-key",
        "ssh-keygen -q -t ed25519 -N '' -f made_key && ssh-keygen -y -f made_key | cut -d' ' -f1",
        "ssh-ed25519",
        differs=True,
    ),
    Work("node", "node -e 'console.log(require(\"./lib.js\").double(21))'", "42"),
    Work("node-test", "node --test lib.test.js", "# pass 1", differs=True),
    Work(
        "node-workers",
        (
            "node -e 'new "
            '(require("worker_threads").Worker)("require(\\"worker_threads\\").parentPort.postMessage(7)",{eval:true}).on("message",m=>console.log(m))\''
        ),
        "7",
    ),
    Work(
        "node-files",
        (
            "node -e 'const "
            'f=require("fs");f.mkdirSync("d/e",{recursive:true});f.writeFileSync("d/e/f","x");f.renameSync("d/e/f","d/g");f.symlinkSync("g","d/l");console.log(f.readFileSync("d/l")+"")\''
        ),
        "x",
    ),
    Work("npm-script", "npm run -s double", "42"),
    Work(
        "npm-install-local",
        (
            "npm install --offline --no-audit --no-fund --silent ./local && node -p "
            "'require(\"local-package\")'"
        ),
        "local",
        differs=True,
    ),
    Work(
        "loopback-server",
        (
            '<python> -c "import http.server,threading,urllib.request as '
            "u\ns=http.server.HTTPServer(('127.0.0.1',0),http.server.SimpleHTTPRequestHandler); "
            "threading.Thread(target=s.serve_forever,daemon=True).start()\nprint(u.urlopen(f'http://127.0.0.1:{s.server_port}/README.md').read())\" "
            "2>/dev/null"
        ),
        "# Project",
    ),
    Work(
        "multiprocessing",
        (
            "<python> -c 'import multiprocessing as m; "
            'print(m.get_context("fork").Pool(3).map(abs, [-1, 2, -3]))\''
        ),
        "[1, 2, 3]",
    ),
    Work(
        "shared-memory",
        (
            "<python> -c 'from multiprocessing import shared_memory as s; "
            "m=s.SharedMemory(create=True,size=9); m.buf[0]=7; o=s.SharedMemory(m.name); "
            "print(o.buf[0]); o.close(); m.close(); m.unlink()'"
        ),
        "7",
    ),
    Work(
        "pseudo-terminal",
        (
            '<python> -c \'import pty; pty.spawn(["sh","-c","test -t 1 && echo terminal"])\' < '
            "/dev/null"
        ),
        "terminal",
    ),
    Work(
        "sqlite",
        (
            "<python> -c \"import sqlite3; d=sqlite3.connect('x.db'); d.execute('pragma "
            "journal_mode=wal'); d.execute('create table t(a)'); d.execute('insert into t "
            "values(5)'); d.commit(); print(*d.execute('select a from t'))\""
        ),
        "(5,)",
    ),
    Work("temporary-files", "f=$(mktemp) && echo kept > $f && cat $f && rm $f", "kept"),
    Work("here-document", "cat <<END\nhere $((1+1))\nEND", "here 2"),
    Work("process-substitution", "diff <(echo a) <(echo a) && echo same", "same"),
    Work("fifo", "mkfifo p && (echo through > p &) && cat p", "through"),
    Work("jobs", "sleep 0.01 & wait $! && echo waited", "waited"),
    Work("trap", "trap 'echo trapped' USR1; kill -USR1 $$; echo after", "trapped"),
    Work(
        "archive",
        "tar -czf t.tgz README.md lib.js && mkdir x && tar -xzf t.tgz -C x && ls x",
        "lib.js",
    ),
    Work(
        "zip",
        "<python> -m zipfile -c t.zip README.md && <python> -m zipfile -l t.zip | grep -c README",
        "1",
    ),
    Work("links", "ln -s README.md l && ln README.md h && readlink l && stat -c %h h", "2"),
    Work("modes", "umask 027; touch m; mkdir d; stat -c %a m d; chmod 711 d; stat -c %a d", "640"),
    Work("rename-folder", "mkdir -p a/b && touch a/b/c && mv a z && find z | sort", "z/b/c"),
    Work("awk-sort-uniq", "printf 'b\\na\\nb\\n' | sort | uniq -c | awk '{print $2,$1}'", "b 2"),
    Work("sed-in-place", "sed -i s/Project/Thing/ README.md && cat README.md", "# Thing"),
    Work(
        "find-exec",
        "find . -maxdepth 1 -name '*.js' -exec wc -l {} + | tail -1 | awk '{print $2}'",
        "total",
    ),
    Work("compile-python", "<python> -m compileall -q test_sums.py && ls __pycache__ | wc -l", "1"),
    Work("time-zone", "TZ=UTC date -d @0 +%Y", "1970"),
    Work("who", 'test "$(id -u)" = "$UID" && echo same', "same"),
    Work(
        "proc", "cat /proc/self/comm && test -r /proc/cpuinfo && nproc > /dev/null && echo ok", "ok"
    ),
    Work("random", "head -c 8 /dev/urandom | wc -c", "8"),
    Work(
        "devices",
        "head -q -c 2 /dev/zero /dev/full /dev/random /dev/urandom /dev/null | wc -c; "
        "echo x >/dev/null && echo x >/dev/zero && ! echo x 2>/dev/null >/dev/full",
        "8",
    ),
    Work(
        "deep-folders", "mkdir -p $(printf 'd%.0s/' {1..40}) && find . -depth -name d | wc -l", "40"
    ),
)
