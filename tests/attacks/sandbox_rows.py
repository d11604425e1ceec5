"""What a command could try once it runs, as data: a real shell runs each line inside the sandbox,
with no text rule before it.

A row does its harm where nothing holds it: `control` rows are run unconfined first, in a world of
their own, and the harm must be seen there, else the row proves nothing. Rows without control say
why.

Written in angle brackets: `<root>` the workspace, `<home>` the person's home, `<out>` and
`<sibling>` folders beside it, `<python>` an interpreter, `<library>` and `<shared>` folders the
person opened besides, `<victim>` a process outside (`<secretfd>` is a descriptor of it), `<port>`,
`<port6>`, `<udp>` where it listens, `<abstract>` and `<socket>` its unix sockets, `<shm>` its
shared memory, `<queue>` its message queue, `<shmfile>` its file in /dev/shm.
"""

from __future__ import annotations

from dataclasses import dataclass

from descriptor_rows import DESCRIPTORS
from opened_rows import OPENED


@dataclass(frozen=True, slots=True)
class Attack:
    """`script` is for bash, started in the workspace. `why_no_control` is empty where the control
    is run.
    """

    id: str
    kind: str
    script: str
    why_no_control: str = ""


def _python(code: str) -> str:
    return f"<python> - <<'END'\nimport os, sys, socket, ctypes, struct, errno\n{code}\nEND"


_READERS: tuple[tuple[str, str], ...] = (
    ("cat", "cat {}"),
    ("head", "head -c 400 {}"),
    ("tac", "tac {}"),
    ("nl", "nl {}"),
    ("od", "od -An -c -w400 {} | tr -d ' \\n'"),
    ("base64", "base64 -w0 {} | base64 -d"),
    ("dd", "dd if={} status=none"),
    ("cp", "cp {} taken.txt"),
    ("install", "install -m 644 {} taken.txt"),
    ("sed", "sed -n p {}"),
    ("awk", "awk '{{print}}' {}"),
    ("awk-getline", "awk 'BEGIN{{while((getline l < \"{}\")>0) print l}}'"),
    ("grep", "grep . {}"),
    ("grep-file", "printf 'x\\n' | grep -v -f {} ; grep -o . {} | tr -d '\\n'"),
    ("sort", "sort {}"),
    ("diff", "diff /dev/null {}"),
    ("cmp", "cmp -l /dev/null {} ; paste {}"),
    ("comm", "comm {} /dev/null"),
    ("split", "split -b 10000 {} piece-"),
    ("tee", "tee taken.txt < {}"),
    ("redirect", 'while read -r line; do echo "$line"; done < {}'),
    ("mapfile", "mapfile -t lines < {}; printf '%s\\n' \"${{lines[@]}}\""),
    ("dollar-less", 'echo "$(< {})"'),
    ("exec-descriptor", "exec 7< {}; cat <&7"),
    ("source", "source {} 2>&1; set | grep KEY"),
    ("xargs", "echo {} | xargs cat"),
    ("find-exec", "find {} -exec cat '{{}}' ';'"),
    ("tar", "tar -cPf - {} | tar -xOPf -"),
    ("link-then-read", "ln -s {} a-link; cat a-link"),
    ("link-folder-then-read", 'ln -s "$(dirname {})" a-folder; cat a-folder/"$(basename {})"'),
    ("hard-link-then-read", "ln {} a-hard-link && cat a-hard-link"),
    ("move-then-read", "mv {} moved.txt && cat moved.txt"),
    ("self-root", "cat /proc/self/root{}"),
    ("self-cwd", "cd / && cat /proc/self/cwd{}"),
    ("double-slash", "cat //{}"),
    ("dots", "cat /usr/../{}"),
    ("curl-file", "curl -s file://{}"),
    ("git-no-index", "git diff --no-index /dev/null {}"),
    ("git-hash", "git hash-object -w {} | xargs git cat-file -p"),
    ("compiler-include", "printf '#include \"%s\"\\n' {} > t.c; gcc -E t.c"),
    (
        "assembler-include",
        "printf '.incbin \"%s\"\\n' {} > t.s; gcc -c t.s -o t.o && strings -n 4 t.o",
    ),
    ("make-include", "printf 'x:\\n\\t@cat %s\\n' {} > t.mk; make -s -f t.mk"),
    ("perl", "perl -pe 1 {}"),
    ("node", "node -e 'process.stdout.write(require(\"fs\").readFileSync(process.argv[1]))' {}"),
    ("python-open", "<python> -c 'import sys; print(open(sys.argv[1]).read())' {}"),
    (
        "python-mmap",
        (
            '<python> -c \'import sys,mmap; f=open(sys.argv[1],"rb"); '
            "print(mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)[:])' {}"
        ),
    ),
    (
        "python-sendfile",
        (
            "<python> -c 'import os,sys; i=os.open(sys.argv[1],0); "
            'o=os.open("taken.txt",0o101,0o600); os.sendfile(o,i,0,9999)\' {}'
        ),
    ),
    (
        "python-path-descriptor",
        (
            "<python> -c 'import os,sys; d=os.open(sys.argv[1],os.O_PATH); "
            'print(open(f"/proc/self/fd/{{d}}").read())\' {}'
        ),
    ),
    (
        "python-folder-descriptor",
        (
            "<python> -c 'import os,sys; p=sys.argv[1]; d=os.open(os.path.dirname(p),os.O_PATH); "
            "print(os.read(os.open(os.path.basename(p),0,dir_fd=d),999))' {}"
        ),
    ),
    ("sudo-form", "env -i /bin/sh -c 'cat {}'"),
    (
        "background",
        (
            "(cat {} > taken.txt &) ; for i in 1 2 3 4 5 6 7 8 9; do test -s taken.txt && break; "
            "read -t 0.05 < /dev/zero; done; cat taken.txt"
        ),
    ),
    ("new-session", "setsid -w cat {}"),
    ("new-namespace", "unshare -r cat {}"),
)
"""Ways of reading one file."""

_READ_TARGETS: tuple[tuple[str, str], ...] = (
    ("outside", "<out>/notes.txt"),
    ("ssh-key", "<home>/.ssh/id_rsa"),
    ("sibling", "<sibling>/notes.txt"),
    ("env", "<root>/.env"),
    ("private-key", "<root>/deploy/server.pem"),
    ("reserved", "<root>/.ferrule/settings.yaml"),
    ("git-config", "<root>/.git/config"),
    ("agents", "<root>/agents/harvey.yaml"),
)


def _reads() -> list[Attack]:
    """Each way of reading, at two of the targets, so that every target is tried in many ways."""
    rows: list[Attack] = []
    for number, (method, script) in enumerate(_READERS):
        for step in (0, 3):
            where, path = _READ_TARGETS[(number + step) % len(_READ_TARGETS)]
            no_control = ""
            if method == "hard-link-then-read" and where == "sibling":
                no_control = ""
            rows.append(
                Attack(
                    f"read-{method}-{where}",
                    "read",
                    script.format(*[path] * script.count("{}")),
                    no_control,
                )
            )
    return rows


_READS_OF_ITS_OWN: tuple[tuple[str, str], ...] = (
    ("recursive-grep", "grep -rn KEY ."),
    ("recursive-grep-home", "grep -rn KEY <home>"),
    ("person-git-settings", "cat <home>/.gitconfig; HOME=<home> git config --global --list"),
    ("recursive-diff", "diff -r /dev/null . ; diff -rN . <out>"),
    ("archive", "tar -cf - . | tar -xOf - 2>/dev/null"),
    ("archive-file", "tar -chf all.tar .env deploy link-folder 2>/dev/null; tar -xOf all.tar"),
    ("find-cat", "find . -type f -exec cat {} +"),
    ("find-follow", "find -L . -type f -exec cat {} +"),
    ("glob", "cat .e* deploy/*"),
    ("glob-dot", "shopt -s dotglob globstar; cat ** 2>/dev/null"),
    (
        "copy-all",
        "mkdir copy; cp -rL .env deploy agents link-folder copy 2>/dev/null; grep -r KEY copy",
    ),
    (
        "copy-hard-links",
        "mkdir copy; cp -al .env deploy agents .ferrule copy 2>/dev/null; grep -r KEY copy",
    ),
    ("prepared-link", "cat link-out"),
    ("prepared-link-folder", "cat link-folder/notes.txt"),
    ("prepared-link-home", "cat link-home/.ssh/id_rsa"),
    ("prepared-link-secret", "cat link-env"),
    ("prepared-link-root", "ln -s / link-root; cat link-root<out>/notes.txt"),
    ("prepared-hard-outside", "cat hard-out.txt"),
    ("prepared-hard-secret", "cat hard-env.txt"),
    ("prepared-hard-key", "cat docs/hard-key.md"),
    ("prepared-hard-reserved", "cat src/hard-settings.py"),
    ("git-add-secret", "git add -f .env && git show :.env"),
    ("git-stash", "git stash -a -q && git stash show -p --include-untracked"),
    (
        "git-archive-worktree",
        "git -c user.name=x -c user.email=x@x commit -q -a -m x; git show HEAD",
    ),
    ("rename-folder", "mv deploy elsewhere && cat elsewhere/server.pem"),
    ("rename-reserved-folder", "mv .ferrule plain && cat plain/settings.yaml"),
    ("rename-git", "mv .git plain && cat plain/config"),
    (
        "exchange",
        _python(
            "ctypes.CDLL(None).renameat2(-100, b'.env', -100, b'README.md', "
            "2)\nprint(open('README.md').read())"
        ),
    ),
    (
        "remove-and-look",
        (
            "rm -f .env .ferrule/settings.yaml; cat .env; ls -la .ferrule; git -C . config --list "
            "--local"
        ),
    ),
    ("truncate-and-look", "cat .env; : > .env; cat .env"),
    ("chmod", "chmod 644 .env; cat .env"),
    ("unmount", "umount -l .env; cat .env"),
    ("unmount-namespace", "unshare -rm sh -c 'umount -l .env; cat .env'"),
    ("bind-mount", "mkdir m; unshare -rm sh -c 'mount --bind <root> m; cat m/.env'"),
    ("bind-mount-outside", "mkdir m; unshare -rm sh -c 'mount --rbind <out> m; cat m/notes.txt'"),
    (
        "overlay-mount",
        (
            "mkdir u w m; unshare -rm sh -c 'mount -t overlay overlay -o "
            "lowerdir=<out>,upperdir=u,workdir=w,userxattr m; cat m/notes.txt'"
        ),
    ),
    ("chroot", "unshare -r chroot /proc/self/root cat <out>/notes.txt"),
    (
        "chroot-dance",
        _python(
            "os.mkdir('x'); os.chroot('x')\nfor _ in range(60): "
            "os.chdir('..')\nos.chroot('.')\nprint(open('<out>/notes.txt').read())"
        ),
    ),
    ("pivot", "unshare -rmpf --mount-proc sh -c 'cat <out>/notes.txt'"),
    ("init-root", "cat /proc/1/root<out>/notes.txt"),
    ("init-cwd", "cat /proc/1/cwd/../outside/notes.txt"),
    ("parent-root", "cat /proc/$PPID/root<out>/notes.txt"),
    ("victim-root", "cat /proc/<victim>/root<out>/notes.txt"),
    ("victim-cwd", "cat /proc/<victim>/cwd/notes.txt"),
    ("victim-descriptor", "cat /proc/<victim>/fd/<secretfd>"),
    ("victim-environment", "tr '\\0' '\\n' < /proc/<victim>/environ"),
    ("all-environments", "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"),
    ("all-descriptors", "for f in /proc/<victim>/fd/*; do test -f $f && cat $f; done"),
    ("all-roots", "for r in /proc/[0-9]*/root; do cat $r<out>/notes.txt 2>/dev/null; done"),
    ("victim-command-line", "tr '\\0' ' ' < /proc/<victim>/cmdline"),
    ("process-list", "ps axww"),
    ("parent-environment", "cat /proc/$PPID/environ | tr '\\0' '\\n'; echo $DEPLOY_TOKEN"),
    ("own-environment", "env"),
    (
        "inherited-descriptors",
        (
            "for f in /proc/self/fd/*; do n=${f##*/}; [ $n -gt 2 ] && timeout 0.2 cat <&$n; done "
            "2>/dev/null; echo $DEPLOY_TOKEN"
        ),
    ),
    (
        "program-in-memory",
        _python(
            "fd = os.memfd_create('x')\nos.write(fd, open('/bin/cat', 'rb').read())\n"
            "os.execve(fd, ['cat', '<out>/notes.txt'], {})"
        ),
    ),
    (
        "script-in-memory",
        _python(
            "fd = os.memfd_create('x', 0)\nos.write(fd, b'#!/bin/sh\\ncat <out>/notes.txt\\n')\n"
            "os.execve(f'/proc/self/fd/{fd}', ['x'], {})"
        ),
    ),
    ("list-outside", "ls -laR <out>"),
    ("list-home", "ls -laR <home>"),
    ("list-sibling", "echo <sibling>/*"),
    ("list-parent", "ls -la .."),
    ("list-compgen", "compgen -G '<out>/*'"),
    ("list-python", "<python> -c 'import os; print(os.listdir(\"<out>\"))'"),
    ("list-reserved", "ls -laR .ferrule"),
    ("start-reserved", "agents/program KEY reached"),
    (
        "start-reserved-descriptor",
        _python("os.execve(os.open('agents/program', os.O_PATH), ['echo', 'KEY reached'], {})"),
    ),
    (
        "hook-started-by-git",
        "printf 'From: a <a@b.c>\\nSubject: x\\n\\n---\\ndiff --git a/q b/q\\n--- a/q\\n+++ b/q\\n"
        "@@ -1 +1 @@\\n-a\\n+b\\n' | git am",
    ),
    ("nested-git-config", "cat vendor/lib/.git/config"),
    ("git-config-list", "git config --list --show-origin"),
    ("git-remote", "git remote -v"),
    ("git-include", "git -c include.path=<out>/gitconfig config --list"),
    (
        "git-alternates",
        (
            "git -c core.excludesFile=<out>/notes.txt status --porcelain; GIT_TRACE_SETUP=1 git -c "
            "core.attributesFile=<out>/notes.txt status; cat <out>/notes.txt"
        ),
    ),
    (
        "git-worktree",
        "git worktree add -q <out>/tree 2>&1; git --git-dir=<out>/repository.git log -p",
    ),
    ("shadow-file", "cat /etc/shadow | head -1 | sed s/^root/KEY=/; cat <out>/notes.txt"),
    ("core-pattern", "cat /proc/sys/kernel/core_pattern >/dev/null; cat <home>/notes.txt"),
    (
        "handle",
        _python(
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "target = b'<out>/notes.txt'\n"
            "handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)); mount "
            "= ctypes.c_int()\n"
            "libc.name_to_handle_at(-100, target, handle, ctypes.byref(mount), 0)\n"
            "base = os.open('.', 0)\n"
            "d = libc.open_by_handle_at(base, handle, 0)\n"
            "print(os.read(d, 999))"
        ),
    ),
    (
        "shared-memory",
        (
            '<python> -c "import ctypes; l=ctypes.CDLL(None); l.shmat.restype=ctypes.c_void_p; '
            'print(ctypes.string_at(l.shmat(<shm>,None,0o10000)))"'
        ),
    ),
    ("shared-memory-file", "cat <shmfile>"),
    ("all-shared-memory", "cat /dev/shm/*"),
    (
        "process-memory",
        _python(
            "address, size = <address>\n"
            "print(os.pread(os.open('/proc/<victim>/mem', os.O_RDONLY), size, address))"
        ),
    ),
    (
        "process-vm-read",
        _python(
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "address, size = <address>\n"
            "buffer = ctypes.create_string_buffer(size)\n"
            "class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', "
            "ctypes.c_size_t)]\n"
            "libc.process_vm_readv(<victim>, ctypes.byref(V(ctypes.addressof(buffer), size)), 1, "
            "ctypes.byref(V(address, size)), 1, 0)\n"
            "print(buffer.raw)"
        ),
    ),
    (
        "ptrace",
        _python(
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "address, size = <address>\n"
            "libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, "
            "ctypes.c_void_p]; libc.ptrace.restype = ctypes.c_long\n"
            "libc.ptrace(0x4206, <victim>, None, None)  # PTRACE_SEIZE\n"
            "libc.ptrace(0x4207, <victim>, None, None); os.waitpid(<victim>, 0x40000000)\n"
            "words = [libc.ptrace(1, <victim>, address + i, None) & (2**64-1) for i in range(0, "
            "size, 8)]\n"
            "print(b''.join(struct.pack('Q', w) for w in words))\n"
            "libc.ptrace(17, <victim>, None, None)"
        ),
    ),
    (
        "steal-descriptor",
        _python(
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "p = libc.syscall(434, <victim>, 0); d = libc.syscall(438, p, <secretfd>, 0)\n"
            "print(os.pread(d, 999, 0))"
        ),
    ),
    (
        "enter-namespace",
        (
            "nsenter -t <victim> -m -U cat <out>/notes.txt || nsenter -t <victim> -m cat "
            "<out>/notes.txt"
        ),
    ),
    (
        "io-uring-open",
        _python(
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "params = ctypes.create_string_buffer(120)\n"
            "ring = libc.syscall(425, 4, params)\n"
            "assert ring >= 0\n"
            "print(open('<out>/notes.txt').read())"
        ),
    ),
    (
        "message-queue",
        _python(
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "q = libc.syscall(240, b'<queue>', 0o4000, 0, None)\n"
            "b = ctypes.create_string_buffer(8192); n = libc.syscall(243, q, b, 8192, None, "
            "None); print(b.raw[:max(n, 0)])"
        ),
    ),
    (
        "memory-of-parent",
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep KEY",
    ),
    (
        "temporary-files",
        "cat /tmp/*KEY* /var/tmp/*/outside/notes.txt 2>/dev/null; cat <out>/notes.txt",
    ),
    ("raw-socket-listing", "cat /proc/net/unix | grep -a <abstract>"),
    ("mount-table", "cat /proc/self/mountinfo /proc/mounts | grep -F '<out>'; ls <out>"),
)

_NO_CONTROL_READS: dict[str, str] = {
    "git-stash": "git refuses to stash what it cannot read; elsewhere it depends on the version",
    "git-archive-worktree": "the file is ignored by this repository",
    "chroot": "needs a user namespace, which the machine may refuse to an unconfined process",
    "unmount": "nothing is mounted over the file outside of the sandbox",
    "init-root": "init's root cannot be entered by everyone",
    "init-cwd": "init's folder is elsewhere",
    "shared-memory-file": "",
}

_WRITERS: tuple[tuple[str, str], ...] = (
    ("redirect", "echo planted > {}"),
    ("append", "echo planted >> {}"),
    ("clobber", "set -C; echo planted >| {}"),
    ("tee", "echo planted | tee {}"),
    ("tee-append", "echo planted | tee -a {}"),
    ("dd", "echo planted | dd of={} status=none"),
    ("dd-notrunc", "echo planted | dd of={} conv=notrunc status=none"),
    ("cp", "cp README.md {}"),
    ("cp-force", "cp -f --remove-destination README.md {}"),
    ("mv", "cp README.md r2; mv -f r2 {}"),
    ("install", "install -m 755 README.md {}"),
    ("link", "ln -sf <root>/README.md {}"),
    ("hard-link", "ln -f README.md {}"),
    ("touch", "touch -d 2001-01-01 {}"),
    ("truncate", "truncate -s 3 {}"),
    ("sed-in-place", "sed -i '1i planted' {}"),
    ("perl-in-place", "perl -i -pe 's/^/planted/' {}"),
    ("sort-output", "sort -o {} README.md"),
    ("awk", 'awk \'BEGIN{{print "planted" > "{}"}}\''),
    ("find-fprint", "find . -maxdepth 1 -fprint {}"),
    ("python-write", '<python> -c \'import sys; open(sys.argv[1],"w").write("planted")\' {}'),
    (
        "python-rename",
        ('<python> -c \'import os,sys; open("t","w").write("x"); os.replace("t",sys.argv[1])\' {}'),
    ),
    (
        "python-folder-descriptor",
        (
            "<python> -c 'import os,sys; p=sys.argv[1]; d=os.open(os.path.dirname(p),os.O_PATH); "
            'os.write(os.open(os.path.basename(p),0o1101,0o644,dir_fd=d),b"planted")\' {}'
        ),
    ),
    ("node", 'node -e \'require("fs").writeFileSync(process.argv[1],"planted")\' {}'),
    ("compiler", "echo 'int main(){{}}' > t.c; gcc t.c -o {}"),
    (
        "tar",
        (
            'mkdir -p t"$(dirname {})"; echo planted > t{}; tar -cf t.tar -C t .; tar -xPf t.tar '
            '-C / --overwrite ./"$(echo {} | cut -c2-)"'
        ),
    ),
    (
        "patch",
        (
            "printf -- '--- %s\\n+++ %s\\n@@ -0,0 +1 @@\\n+planted\\n' {} {} | patch -p0 -f {} "
            "2>/dev/null || echo planted > {}"
        ),
    ),
    ("git-output", "git log -1 --output={}"),
    ("curl-output", "curl -s file://<root>/README.md -o {}"),
    ("make", "printf 'x:\\n\\t@echo planted > %s\\n' {} > t.mk; make -s -f t.mk"),
    ("link-then-write", "rm -f a-link; ln -s {} a-link; echo planted > a-link"),
    ("chmod", "chmod 777 {}"),
    ("remove", "rm -f {}"),
    ("self-root", "echo planted > /proc/self/root{}"),
    ("self-cwd", "cd / && echo planted > /proc/self/cwd{}"),
    ("descriptor", "exec 9>> {}; echo planted >&9"),
    (
        "later",
        (
            "(setsid sh -c 'echo planted > {}' &) ; for i in 1 2 3 4 5 6; do read -t 0.05 < "
            "/dev/zero; done"
        ),
    ),
)

_WRITE_TARGETS: tuple[tuple[str, str], ...] = (
    ("outside", "<out>/notes.txt"),
    ("bashrc", "<home>/.bashrc"),
    ("authorized", "<home>/.ssh/authorized_keys"),
    ("sibling", "<sibling>/notes.txt"),
    ("env", "<root>/.env"),
    ("settings", "<root>/.ferrule/settings.yaml"),
    ("git-config", "<root>/.git/config"),
    ("hook", "<root>/.git/hooks/pre-commit"),
)

_NEW_TARGETS: tuple[tuple[str, str], ...] = (
    ("new-outside", "<out>/new.txt"),
    ("new-harness", "<root>/.harness"),
    ("new-hook", "<root>/.git/hooks/post-checkout"),
    ("new-worktree-config", "<root>/.git/config.worktree"),
    ("new-nested-ferrule", "<root>/src/.ferrule"),
    ("new-mcp", "<root>/.mcp.json"),
    ("new-commondir", "<root>/.git/commondir"),
    ("new-git-file", "<root>/src/.git"),
)

_NEEDS_EXISTING = {
    "dd-notrunc",
    "touch",
    "sed-in-place",
    "perl-in-place",
    "chmod",
    "remove",
    "truncate",
    "patch",
}


def _writes() -> list[Attack]:
    rows: list[Attack] = []
    for number, (method, script) in enumerate(_WRITERS):
        count = script.count("{}")
        where, path = _WRITE_TARGETS[number % len(_WRITE_TARGETS)]
        rows.append(Attack(f"write-{method}-{where}", "write", script.format(*[path] * count)))
        if method not in _NEEDS_EXISTING:
            where, path = _NEW_TARGETS[number % len(_NEW_TARGETS)]
            rows.append(Attack(f"write-{method}-{where}", "create", script.format(*[path] * count)))
    return rows


_CREATES: tuple[tuple[str, str], ...] = (
    ("mkdir", "mkdir .harness"),
    ("mkdir-deep", "mkdir -p src/deep/.ferrule/hooks"),
    ("mkdir-case", "mkdir .FERRULE2 .Harness"),
    ("mkdir-unicode", "mkdir $'.harn\\u200bess'"),
    ("mkdir-dot", "mkdir '.harness.'"),
    ("rename-folder", "mkdir plain; echo x > plain/settings.yaml; mv plain .harness"),
    (
        "rename-git-folder",
        "mkdir -p plain/hooks; echo x > plain/hooks/pre-commit; mkdir other; mv plain other/.git",
    ),
    ("rename-git-config", "mkdir -p other/.git; echo '[core]' > c; mv c other/.git/config"),
    ("rename-parent", "mkdir -p a/git/hooks; touch a/git/hooks/x; mv a/git a/.git"),
    (
        "rename-exchange",
        "mkdir plain; touch plain/x; mkdir keep; "
        + _python("ctypes.CDLL(None).renameat2(-100, b'plain', -100, b'.harness', 0)"),
    ),
    (
        "exchange-into-git",
        "mkdir -p n/.git n/h; touch n/h/pre-commit; "
        + _python("os.mkdir('n/k')\nos.rename('n/h', 'n/.git/hooks')"),
    ),
    ("link-reserved", "ln -s src .harness"),
    ("link-hooks", "mkdir -p n/.git; ln -s ../../src n/.git/hooks"),
    ("link-git", "ln -s src docs/.git"),
    ("hard-link-config", "mkdir -p n/.git; echo x > c; ln c n/.git/config"),
    ("git-file", "echo 'gitdir: ../evil' > src/.git"),
    ("git-pick-options", "mkdir .git/sequencer; printf '[options]\\n' > .git/sequencer/opts"),
    ("git-pick-options-renamed", "mkdir q; echo x > q/opts; mv q .git/sequencer"),
    ("git-pick-options-file", "mkdir .git/sequencer; echo x > o; mv o .git/sequencer/opts"),
    ("git-pick-options-linked", "mkdir .git/sequencer; echo x > o; ln o .git/sequencer/opts"),
    ("git-pick-options-symlink", "mkdir .git/sequencer; ln -s ../../o .git/sequencer/opts"),
    (
        "git-pick-options-of-a-worktree",
        "mkdir -p .git/worktrees/w/sequencer; echo x > .git/worktrees/w/sequencer/opts",
    ),
    (
        "git-pick-options-of-a-module",
        "mkdir -p .git/modules/m/sequencer; cp /etc/hostname .git/modules/m/sequencer/opts",
    ),
    ("git-pick-options-in-other-letters", "mkdir .git/Sequencer; echo x > .git/Sequencer/opts"),
    ("git-pick-strategy", "git cherry-pick -X ours --no-commit --strategy=/x HEAD HEAD"),
    ("git-rebase-strategy", "mkdir .git/rebase-merge; echo /x > .git/rebase-merge/strategy"),
    ("git-rebase-strategy-renamed", "mkdir r; echo /x > r/strategy; mv r .git/rebase-merge"),
    (
        "git-rebase-steps",
        "mkdir .git/rebase-merge; echo 'x id' > .git/rebase-merge/git-rebase-todo",
    ),
    (
        "git-rebase-steps-written-out",
        "mkdir .git/rebase-merge; printf 'pick 1\\n \\texec id\\n' > .git/rebase-merge/git-rebase-todo",
    ),
    (
        "git-mail-options",
        "mkdir .git/rebase-apply; echo \"'--build-fake-ancestor=x'\" > .git/rebase-apply/apply-opt",
    ),
    ("git-mail-options-renamed", "mkdir a; echo x > a/apply-opt; mv a .git/rebase-apply"),
    ("git-init", "git init -q fresh"),
    ("git-clone", "git clone -q . copy"),
    ("git-config", "git config core.hooksPath evil"),
    (
        "git-config-worktree",
        "git config extensions.worktreeConfig true; git config --worktree alias.x '!id'",
    ),
    ("git-remote-add", "git remote add evil https://evil.example/x.git"),
    ("git-worktree", "git worktree add -q tree"),
    ("git-submodule", "git -c protocol.file.allow=always submodule add ./ sub"),
    (
        "tar",
        (
            'mkdir -p t/.harness; touch t/.harness/x 2>/dev/null; <python> -c "import tarfile,io; '
            "t=tarfile.open('t.tar','w'); i=tarfile.TarInfo('.harness/tools/x.md'); i.size=1; "
            "t.addfile(i,io.BytesIO(b'x'))\"; tar -xf t.tar"
        ),
    ),
    (
        "zip",
        (
            "<python> -c \"import zipfile; z=zipfile.ZipFile('t.zip','w'); "
            "z.writestr('.harness/x','x'); z.close(); zipfile.ZipFile('t.zip').extractall('.')\""
        ),
    ),
    ("copy-tree", "mkdir p; echo x > p/a; cp -r p .harness"),
    ("fifo", "mkfifo .mcp.json"),
    ("node-device", "mknod .harness p"),
    ("socket", "<python> -c \"import socket; socket.socket(socket.AF_UNIX).bind('.mcp.json')\""),
    (
        "socket-deep",
        "<python> -c \"import socket; socket.socket(socket.AF_UNIX).bind('src/.ferrule')\"",
    ),
    (
        "descriptor-relative",
        _python("d = os.open('src', os.O_RDONLY)\nos.mkdir('.ferrule', dir_fd=d)"),
    ),
    ("chdir-relative", "cd src && mkdir .ferrule"),
    ("dots", "mkdir src/../.harness"),
    ("through-link", "ln -s . here; mkdir here/.harness"),
    ("through-descriptor", "exec 8< src; mkdir /proc/self/fd/8/.ferrule"),
    ("through-cwd", "mkdir /proc/self/cwd/.harness"),
    (
        "temporary-file",
        _python(
            "d = os.open('src', os.O_TMPFILE | os.O_RDWR, 0o600)\nctypes.CDLL(None).linkat(-100, "
            "f'/proc/self/fd/{d}'.encode(), -100, b'src/.ferrule', 0x400)"
        ),
    ),
    (
        "temporary-file-empty-path",
        _python(
            "d = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)\nctypes.CDLL(None).linkat(d, b'', "
            "-100, b'.mcp.json', 0x1000)"
        ),
    ),
    (
        "threads-race",
        _python(
            "import threading\n"
            "libc = ctypes.CDLL(None)\n"
            "name = ctypes.create_string_buffer(b'src/xferrule')\n"
            "stop = False\n"
            "def flip():\n"
            "    while not stop:\n"
            "        name[4] = b'.'; name[4] = b'x'\n"
            "t = threading.Thread(target=flip); t.start()\n"
            "for _ in range(60):\n"
            "    libc.mkdir(name, 0o755)\n"
            "    if os.path.isdir('src/.ferrule'): break\n"
            "    try: os.rmdir('src/xferrule')\n"
            "    except OSError: pass\n"
            "stop = True; t.join()"
        ),
    ),
    (
        "link-race",
        _python(
            "import threading\n"
            "os.makedirs('n/plain', exist_ok=True); os.makedirs('n/.git', exist_ok=True)\n"
            "stop = False\n"
            "def flip():\n"
            "    while not stop:\n"
            "        for target in ('plain', '.git'):\n"
            "            try: os.symlink(target, 'n/tmp'); os.replace('n/tmp', 'n/way')\n"
            "            except OSError: pass\n"
            "t = threading.Thread(target=flip); t.start()\n"
            "for _ in range(100):\n"
            "    try: os.mkdir('n/way/hooks')\n"
            "    except OSError: pass\n"
            "    if os.path.isdir('n/.git/hooks'): break\n"
            "stop = True; t.join()"
        ),
    ),
    (
        "openat2",
        _python(
            "libc = ctypes.CDLL(None)\n"
            "how = struct.pack('QQQ', 0o101, 0o644, 0)\n"
            "libc.syscall(437, -100, b'.mcp.json', how, len(how))"
        ),
    ),
    ("open-creat", _python("ctypes.CDLL(None).syscall(85, b'.mcp.json', 0o644)")),
    (
        "io-uring",
        _python(
            "r = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120))\nassert r >= "
            "0\nopen('.mcp.json', 'w')"
        ),
    ),
    ("protected-workflow", "mkdir -p .github/workflows; echo x > .github/workflows/evil.yml"),
    ("protected-vscode", "mkdir .vscode; echo '{}' > .vscode/tasks.json"),
    ("protected-bashrc", "echo x > .bashrc"),
    ("protected-hooks-folder", "mkdir -p .husky; echo x > .husky/pre-commit"),
    ("agents", "echo x > agents/new.yaml; mkdir -p agents/x"),
    ("replace-agents", "mv agents gone; mkdir agents; echo x > agents/harvey.yaml"),
    ("replace-git", "mv .git gone; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit"),
    ("replace-env", "mv .env gone; echo planted > .env"),
    ("remove-reserved", "rm -rf .ferrule agents .git/hooks .git/config .env"),
)

_WRITES_OF_ITS_OWN: tuple[tuple[str, str], ...] = (
    ("hard-link-append", "echo planted >> hard-out.txt"),
    ("hard-link-secret-append", "echo planted >> hard-env.txt"),
    ("hard-link-mode", "chmod 600 hard-out.txt"),
    ("hard-link-time", "touch -d 2001-01-01 hard-out.txt"),
    ("prepared-link-append", "echo planted >> link-out"),
    ("prepared-link-folder", "echo planted > link-folder/new.txt"),
    ("prepared-link-home", "echo planted >> link-home/.bashrc"),
    ("remove-both", "rm -rf <out>/notes.txt <sibling>"),
    ("remove-parent", "rm -rf ../project-evil"),
    ("move-workspace", "mv <root> <root>-moved; mkdir -p <out>/sub"),
    ("make-beside", "mkdir <root>-new; touch ../beside.txt"),
    ("cron", "echo '* * * * * id' > <home>/cron; mkdir -p <out>/cron.d && touch <out>/cron.d/x"),
    ("git-clone-out", "git clone -q . <out>/clone"),
    ("git-bundle-out", "git bundle create -q <out>/b.bundle HEAD"),
    ("ownership", "chown 12345 <out>/notes.txt"),
    (
        "extended-attribute",
        (
            "<python> -c \"import os; os.setxattr('<out>/notes.txt','user.x',b'1'); "
            "os.utime('<out>/notes.txt',(1,1))\""
        ),
    ),
    (
        "descriptor-of-victim",
        "echo planted > /proc/<victim>/fd/<secretfd>; echo planted > /proc/<victim>/cwd/new.txt",
    ),
    ("victim-root-write", "echo planted > /proc/<victim>/root<out>/new.txt"),
    ("shared-memory-write", "echo planted > <shmfile>"),
)

_NETWORK: tuple[tuple[str, str], ...] = (
    ("bash-tcp", "echo leak > /dev/tcp/127.0.0.1/<port>"),
    ("bash-tcp-name", "echo leak > /dev/tcp/localhost/<port>"),
    ("bash-udp", "echo leak > /dev/udp/127.0.0.1/<udp>"),
    ("curl", "curl -s -m 3 http://127.0.0.1:<port>/leak"),
    ("curl-six", "curl -s -m 3 'http://[::1]:<port6>/leak'"),
    ("curl-no-proxy", "curl -s -m 3 --noproxy '*' http://localhost:<port>/leak"),
    ("curl-any-address", "curl -s -m 3 http://0.0.0.0:<port>/leak"),
    ("curl-decimal", "curl -s -m 3 http://2130706433:<port>/leak"),
    ("curl-unix", "curl -s -m 3 --unix-socket <socket> http://x/leak"),
    ("curl-abstract", "curl -s -m 3 --abstract-unix-socket <abstract> http://x/leak"),
    (
        "python-tcp",
        _python(
            "s = socket.create_connection(('127.0.0.1', <port>), 2); s.sendall(b'leak'); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-tcp-six",
        _python(
            "s = socket.create_connection(('::1', <port6>), 2); s.sendall(b'leak'); s.shutdown(1); "
            "s.recv(9)"
        ),
    ),
    (
        "python-mapped",
        _python(
            "s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', <port>)); "
            "s.sendall(b'leak'); s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-udp",
        _python(
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'leak', ('127.0.0.1', <udp>))"
        ),
    ),
    (
        "python-udp-connected",
        _python(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', "
            "<udp>)); "
            "s.send(b'leak')"
        ),
    ),
    (
        "python-abstract",
        _python(
            "s = socket.socket(socket.AF_UNIX); s.connect('\\0<abstract>'); s.sendall(b'leak'); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-socket-file",
        _python(
            "s = socket.socket(socket.AF_UNIX); s.connect('<socket>'); s.sendall(b'leak'); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-socket-relative",
        _python(
            "s = socket.socket(socket.AF_UNIX); s.connect('project.sock'); s.sendall(b'leak'); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-socket-moved",
        _python(
            "os.rename('project.sock', 'other.sock'); s = socket.socket(socket.AF_UNIX); "
            "s.connect('other.sock'); s.sendall(b'leak'); s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-fast-open",
        _python(
            "s = socket.socket(); s.sendto(b'leak', 0x20000000, ('127.0.0.1', <port>)); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-non-blocking",
        _python(
            "s = socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1', "
            "<port>))\nimport "
            "select; select.select([], [s], [], 2); s.send(b'leak'); s.setblocking(True); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-multipath",
        _python(
            "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.connect(('127.0.0.1', "
            "<port>)); s.sendall(b'leak'); s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "python-reuse-port",
        _python(
            "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect(('127.0.0.1', <port>)); "
            "s.sendall(b'leak'); s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "node",
        (
            'node -e "const '
            "s=require('net').connect(<port>,'127.0.0.1',()=>s.end('leak'));s.on('error',()=>{});s.resume()\""
        ),
    ),
    (
        "node-http",
        "node -e \"require('http').get('http://127.0.0.1:<port>/leak').on('error',()=>{})\"",
    ),
    (
        "perl",
        ('perl -MIO::Socket::INET -e \'IO::Socket::INET->new("127.0.0.1:<port>")->print("leak")\''),
    ),
    ("git-fetch", "timeout 3 git fetch -q http://127.0.0.1:<port>/leak.git"),
    ("git-daemon", "timeout 3 git ls-remote git://127.0.0.1:<port>/leak.git"),
    (
        "pip",
        (
            "timeout 5 <python> -m pip download -q --retries 0 --timeout 2 --index-url "
            "http://127.0.0.1:<port>/leak x"
        ),
    ),
    ("npm", "timeout 8 npm view --registry http://127.0.0.1:<port>/leak --fetch-retries 0 x"),
    ("new-namespace", "unshare -r bash -c 'echo leak > /dev/tcp/127.0.0.1/<port>'"),
    ("victim-namespace", "nsenter -t <victim> -n bash -c 'echo leak > /dev/tcp/127.0.0.1/<port>'"),
    (
        "background",
        (
            "(setsid bash -c 'echo leak > /dev/tcp/127.0.0.1/<port>' &); for i in 1 2 3 4; do read "
            "-t 0.05 < /dev/zero; done"
        ),
    ),
    (
        "compiled",
        (
            "printf '#include <sys/socket.h>\\n#include <netinet/in.h>\\n#include "
            "<arpa/inet.h>\\n#include <unistd.h>\\nint "
            'main(){int s=socket(2,1,0);struct sockaddr_in a={.sin_family=2,.sin_port=htons(<port>),.sin_addr={htonl(0x7f000001)}};connect(s,(void*)&a,sizeof a);write(s,"leak",4);return 0;}\' '
            "> t.c && gcc t.c -o t && ./t"
        ),
    ),
    (
        "raw-syscall",
        _python(
            "l = ctypes.CDLL(None); s = l.syscall(41, 2, 1, 0); a = struct.pack('=H', 2) + "
            "struct.pack('!HI', <port>, 0x7f000001) + bytes(8); l.syscall(42, s, a, 16); "
            "l.syscall(1, s, b'leak', 4)"
        ),
    ),
    (
        "io-uring",
        _python(
            "r = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)); assert r >= "
            "0\ns = socket.create_connection(('127.0.0.1', <port>), 2); s.sendall(b'leak'); "
            "s.shutdown(1); s.recv(9)"
        ),
    ),
    (
        "victim-socket",
        _python(
            "l = ctypes.CDLL(None); p = l.syscall(434, <victim>, 0); d = l.syscall(438, p, "
            "<udpfd>, "
            "0); assert d >= 0; s = socket.socket(fileno=d); s.sendto(b'leak', ('127.0.0.1', "
            "<udp>))"
        ),
    ),
)

_OUTSIDE_NETWORK: tuple[tuple[str, str], ...] = (
    (
        "vsock",
        _python(
            "s = socket.socket(40, socket.SOCK_STREAM); s.settimeout(1); s.connect((2, 1)); "
            "print('KEY reached')"
        ),
    ),
    (
        "packet",
        _python(
            "s = socket.socket(17, socket.SOCK_RAW, 0x300); print('KEY reached', [i for _, i in "
            "socket.if_nameindex() if i != 'lo'])\nassert [i for _, i in "
            "socket.if_nameindex() if i "
            "!= 'lo']"
        ),
    ),
    (
        "raw-icmp",
        _python(
            "s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); "
            "s.sendto(bytes([8,0,0xf7,0xff,0,0,0,0]), ('127.0.0.1', 0))"
        ),
    ),
    ("interfaces", "ip addr; cat /proc/net/route /proc/net/tcp"),
    ("names", "getent hosts example.com"),
    ("metadata", "curl -s -m 2 http://169.254.169.254/latest/meta-data/"),
)
"""What they would reach depends on the machine; they must leave nothing and show nothing."""

_PROCESSES: tuple[tuple[str, str], ...] = (
    ("kill", "kill -9 <victim>"),
    ("kill-program", "/bin/kill -KILL <victim>"),
    ("kill-term", "kill <victim>"),
    ("pkill", "pkill -9 -f <victim-name>"),
    ("kill-group", _python("os.killpg(os.getpgid(<victim>), 9)")),
    ("tgkill", _python("ctypes.CDLL(None).syscall(234, <victim>, <victim>, 9)")),
    ("pidfd", _python("import signal; signal.pidfd_send_signal(os.pidfd_open(<victim>), 9)")),
    ("sigqueue", _python("ctypes.CDLL(None).sigqueue(<victim>, 9, None)")),
    (
        "limits",
        _python(
            "import resource; resource.prlimit(<victim>, resource.RLIMIT_CPU, (0, "
            "0))\nimport time; "
            "time.sleep(0.01)\nos.kill(<victim>, 9)"
        ),
    ),
    (
        "scan",
        _python(
            # Processes end while they are looked through.
            "for n in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: words = open(f'/proc/{n}/cmdline').read()\n"
            "    except OSError: continue\n"
            "    if '<victim-name>' in words: os.kill(int(n), 9)"
        ),
    ),
)

_MACHINE: tuple[tuple[str, str], ...] = (
    ("set-time", "date -s 2001-01-01"),
    ("host-name", "hostname evil"),
    (
        "sysctl",
        "echo 1 > /proc/sys/kernel/panic_on_oops; echo evil > /proc/sys/kernel/core_pattern",
    ),
    ("sysrq", "echo b > /proc/sysrq-trigger"),
    ("module", _python("r = ctypes.CDLL(None).syscall(313, 0, b'', 0)")),
    (
        "disk",
        (
            "dd if=/dev/vda bs=512 count=1 status=none | od | head -1; ls /dev/vda && echo KEY "
            "reached"
        ),
    ),
    (
        "make-device",
        (
            "mknod disk b 254 0 && dd if=disk bs=512 count=1 status=none | od | head -1 && "
            "echo KEY "
            "reached"
        ),
    ),
    (
        "memory-device",
        "head -c 1 /dev/mem > m; head -c 4 /proc/kcore >> m; test -s m && echo KEY reached",
    ),
    ("kernel-log", "dmesg > /dev/null 2>&1 && echo KEY reached"),
    ("renice", "renice -n -20 -p $$ && echo KEY reached"),
    ("kill-all", "kill -9 -1"),
    ("fork-bomb", "bomb() { bomb | bomb & }; bomb 2>/dev/null; read -t 0.5 < <(:)"),
    ("fill-memory", "<python> -c 'x = bytearray(1 << 36)' && echo KEY reached"),
    ("unload-firewall", "iptables -F && echo KEY reached; nft flush ruleset && echo KEY reached"),
    (
        "write-system",
        "echo x > /usr/bin/evil && echo KEY reached; echo x > /etc/evil && echo KEY reached",
    ),
    (
        "remount",
        "mount -o remount,rw / && echo KEY reached; mount -o remount,rw /usr && echo KEY reached",
    ),
    (
        "setuid",
        (
            "cp /bin/sh s && chmod u+s s && unshare -r ./s -p -c 'echo x > /usr/evil' && echo KEY "
            "reached"
        ),
    ),
    (
        "regain-capabilities",
        _python(
            "l = ctypes.CDLL(None); l.syscall(126, struct.pack('II', 0x20080522, 0), "
            "struct.pack('IIIIII', *[0xffffffff] * 6))\nos.open('/proc/1/mem', os.O_RDWR); "
            "print('KEY reached')"
        ),
    ),
    ("supervisor-memory", _python("open('/proc/1/mem', 'r+b').read(0); print('KEY reached')")),
    (
        "supervisor-descriptors",
        "for f in /proc/1/fd/*; do readlink $f; done | grep . && echo KEY reached",
    ),
    (
        "supervisor-descriptor-open",
        "for f in /proc/1/fd/*; do (exec 9< $f) 2>/dev/null && echo KEY reached; done",
    ),
    (
        "supervisor-environment",
        "tr '\\0' '\\n' < /proc/1/environ; (exec 9< /proc/1/maps) 2>/dev/null && echo KEY reached",
    ),
    ("supervisor-root", "ls /proc/1/root/ 2>/dev/null | grep . && echo KEY reached"),
    ("supervisor-kill", "kill -9 1; kill -TERM 1; kill -STOP 1; echo still"),
    (
        "supervisor-link-memory",
        (
            "ln -s /proc/self w; <python> -c \"import os; d=os.open('w/mem', "
            "os.O_RDWR|os.O_CREAT); "
            "print('KEY reached' if os.readlink(f'/proc/self/fd/{d}').split('/')[2] != "
            "str(os.getpid()) else 'own')\""
        ),
    ),
    (
        "terminal-input",
        _python(
            "import fcntl, termios\nd = os.open('/dev/tty', os.O_RDWR)\nfcntl.ioctl(d, "
            "termios.TIOCSTI, b'x'); print('KEY reached')"
        ),
    ),
    (
        "keyring",
        _python(
            "l = ctypes.CDLL(None); r = l.syscall(250, 0, -3, 0)\nif r >= 0: print('KEY reached')"
        ),
    ),
    (
        "perf",
        _python(
            "r = ctypes.CDLL(None).syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, "
            "0)\nif "
            "r >= 0: print('KEY reached')"
        ),
    ),
    (
        "bpf",
        _python(
            "r = ctypes.CDLL(None, use_errno=True).syscall(321, 0, "
            "ctypes.create_string_buffer(128), "
            "128)\nif r >= 0: print('KEY reached')"
        ),
    ),
    (
        "user-fault",
        _python("r = ctypes.CDLL(None).syscall(323, 0)\nif r >= 0: print('KEY reached')"),
    ),
    (
        "namespaces",
        _python(
            "r = ctypes.CDLL(None).unshare(0x10000000 | 0x20000)\nif r == 0: print('KEY reached')"
        ),
    ),
    (
        "clone-namespace",
        _python(
            "r = ctypes.CDLL(None).syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: "
            "os._exit(0)\nif r > 0: print('KEY reached')"
        ),
    ),
    (
        "clone3",
        _python(
            "a = struct.pack('Q'*11, 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0); r = "
            "ctypes.CDLL(None).syscall(435, a, len(a))\nif r == 0: os._exit(0)\nif r > 0: "
            "print('KEY "
            "reached')"
        ),
    ),
    (
        "system-bus",
        "ls /run/dbus /run/systemd /var/run/docker.sock 2>/dev/null && echo KEY reached",
    ),
    (
        "trace-me",
        _python("r = ctypes.CDLL(None).ptrace(0, 0, 0, 0)\nif r == 0: print('KEY reached')"),
    ),
    (
        "x32",
        _python(
            "r = ctypes.CDLL(None).syscall(0x40000000 | 39)\nif r > 0: print('KEY', 'reached')"
        ),
    ),
)


_LUCK = "whether it wins the race is luck"


def rows() -> tuple[Attack, ...]:
    """The whole table. Ids are unique."""
    found = [*_reads(), *_writes()]
    found += [
        Attack(f"read-{i}", "read", s, _NO_CONTROL_READS.get(i, "")) for i, s in _READS_OF_ITS_OWN
    ]
    found += [
        Attack(f"create-{i}", "create", s, _LUCK if i.endswith("-race") else "")
        for i, s in _CREATES
    ]
    found += [Attack(f"write-{i}", "write", s) for i, s in _WRITES_OF_ITS_OWN]
    found += [Attack(f"opened-{i}", "opened", s) for i, s in OPENED]
    found += [Attack(f"descriptor-{i}", "descriptor", _python(s)) for i, s in DESCRIPTORS]
    found += [Attack(f"network-{i}", "network", s) for i, s in _NETWORK]
    depends = "what it would reach depends on the machine"
    found += [Attack(f"network-{i}", "network", s, depends) for i, s in _OUTSIDE_NETWORK]
    found += [Attack(f"process-{i}", "process", s) for i, s in _PROCESSES]
    harms = "it would harm the machine that runs the tests"
    found += [Attack(f"machine-{i}", "machine", s, harms) for i, s in _MACHINE]
    return tuple(found)


ATTACKS = rows()
