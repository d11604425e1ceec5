"""What a command could try in the further folders that a person opened: `<library>` to be read,
`<shared>` to be written too.

Secret and reserved names are out of reach there as they are in the workspace.
"""

from __future__ import annotations

_READERS = (
    ("cat", "cat {}"),
    (
        "folder-descriptor",
        (
            "<python> -c 'import os,sys; p=sys.argv[1]; d=os.open(os.path.dirname(p),os.O_PATH); "
            "print(os.read(os.open(os.path.basename(p),0,dir_fd=d),999))' {}"
        ),
    ),
    ("link", "ln -s {} a-link; cat a-link"),
    ("link-folder", 'ln -s "$(dirname {})" a-folder; cat a-folder/"$(basename {})"'),
    ("self-root", "cat /proc/self/root{}"),
    ("copy", "cp {} taken.txt"),
    ("find", 'find "$(dirname {})" -type f -name "$(basename {})" -exec cat \'{{}}\' +'),
)

_TARGETS = (
    ("read-env", "<library>/.env"),
    ("read-key", "<library>/keys/site.key"),
    ("read-pem", "<library>/keys/site.pem"),
    ("read-settings", "<library>/.ferrule/settings.yaml"),
    ("read-git-config", "<library>/.git/config"),
    ("read-linked", "<library>/linked.txt"),
    ("write-env", "<shared>/.env"),
    ("write-key", "<shared>/deep/er/id_rsa"),
    ("write-settings", "<shared>/.ferrule/settings.yaml"),
    ("write-agents", "<shared>/agents/harvey.yaml"),
    ("write-git-config", "<shared>/.git/config"),
    ("write-linked", "<shared>/linked.txt"),
)

_OTHERS = (
    ("move-then-read", "mv <shared>/.env <shared>/plain.txt && cat <shared>/plain.txt"),
    (
        "move-folder-then-read",
        "mv <shared>/deep <shared>/shallow && cat <shared>/shallow/er/id_rsa",
    ),
    ("hard-link-then-read", "ln <shared>/.env <shared>/plain.txt && cat <shared>/plain.txt"),
    ("append-secret", "echo x >> <shared>/.env"),
    ("truncate-key", ": > <shared>/deep/er/id_rsa"),
    ("remove-secret", "rm -f <shared>/.env"),
    ("replace-secret", "echo x > x && mv -f x <shared>/.env"),
    ("change-settings", "echo x >> <shared>/.ferrule/settings.yaml"),
    ("new-settings", "mkdir -p <shared>/.ferrule && echo x > <shared>/.ferrule/new.yaml"),
    ("change-git-config", "git -C <shared> config core.pager evil; echo x >> <shared>/.git/config"),
    ("new-hook", "mkdir -p <shared>/.git/hooks; echo x > <shared>/.git/hooks/pre-commit"),
    (
        "new-repository-hook",
        "git init -q <shared>/new; echo x > <shared>/new/.git/hooks/post-commit",
    ),
    ("mode-of-secret", "chmod 777 <shared>/.env"),
    ("write-library", "echo x > <library>/new.txt"),
    ("change-library", "echo x >> <library>/notes.txt"),
    ("library-hook", "mkdir -p <library>/.git/hooks && echo x > <library>/.git/hooks/pre-commit"),
    ("archive", "tar -cf - -C <library> . 2>/dev/null | tar -xOf - 2>/dev/null"),
    ("search", "grep -rs KEY <library> <shared>"),
)


def _rows() -> tuple[tuple[str, str], ...]:
    """Each target in three of the ways of reading, and the others."""
    rows: list[tuple[str, str]] = []
    for number, (target, path) in enumerate(_TARGETS):
        for step in (0, 2, 3):
            method, script = _READERS[(number + step) % len(_READERS)]
            rows.append((f"{target}-{method}", script.format(*[path] * script.count("{}"))))
    return (*rows, *_OTHERS)


OPENED = _rows()
