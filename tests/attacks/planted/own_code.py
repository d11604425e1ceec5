"""Attempts of commands to replace what Ferrule itself runs from.

Ferrule is installed in `backend/.venv` of the workspace, which the link `current` leads to, too.
A row is its name and a script. Afterwards every file of the environment must be what it was, at
the path that it had, and nothing must have been added.
"""

from __future__ import annotations

_RENAME = (
    "import ctypes, sys; "
    "print(ctypes.CDLL(None, use_errno=True).renameat2(-100, b'{}', -100, b'{}', {}))"
)
_EVIL = "mkdir -p evil/bin && echo evil > evil/bin/rg && chmod +x evil/bin/rg"

ATTEMPTS: tuple[tuple[str, str], ...] = (
    ("write-program", "echo evil > backend/.venv/bin/rg"),
    ("append-program", "echo evil >> backend/.venv/bin/rg"),
    ("truncate", "truncate -s 0 backend/.venv/bin/rg"),
    ("move-over-program", f"{_EVIL}; mv -f evil/bin/rg backend/.venv/bin/rg"),
    ("remove-program", "rm -f backend/.venv/bin/rg"),
    ("replace-python", "rm -f backend/.venv/bin/python; ln -s /bin/true backend/.venv/bin/python"),
    ("new-program", "echo evil > backend/.venv/bin/new"),
    ("new-module", "echo evil > backend/.venv/lib/python3/site-packages/yaml.py"),
    ("change-module", "echo evil >> backend/.venv/lib/python3/site-packages/module.py"),
    ("path-file", "echo import os > backend/.venv/lib/python3/site-packages/x.pth"),
    ("compiled", "mkdir backend/.venv/lib/python3/site-packages/__pycache__"),
    ("configuration", "echo 'home = /evil' > backend/.venv/pyvenv.cfg"),
    ("mode", "chmod 777 backend/.venv/bin/rg backend/.venv"),
    ("touch", "touch -d 2001-01-01 backend/.venv/bin/rg"),
    ("rename-environment", "mv backend/.venv backend/old"),
    ("rename-then-make", f"{_EVIL}; mv backend/.venv backend/old; mv evil backend/.venv"),
    ("rename-above", f"{_EVIL}; mv backend b2; mkdir backend; mv evil backend/.venv"),
    ("rename-above-and-link", f"{_EVIL}; mv backend b2; mkdir backend; ln -s ../evil backend/.venv"),
    ("exchange-above", f"mkdir -p other/.venv; python3 -c \"{_RENAME.format('backend', 'other', 2)}\""),
    (
        "exchange-environment",
        f"{_EVIL}; python3 -c \"{_RENAME.format('backend/.venv', 'evil', 2)}\"",
    ),
    ("remove-environment", "rm -rf backend/.venv"),
    ("remove-above", "rm -rf backend"),
    ("link-over", "ln -sfn /tmp backend/.venv"),
    ("hard-link", "ln backend/.venv/bin/rg name && echo evil > name"),
    ("hard-link-module", "ln backend/.venv/lib/python3/site-packages/module.py n.py && echo x > n.py"),
    ("by-descriptor", "exec 7< backend/.venv/bin/rg; echo evil > /proc/self/fd/7"),
    ("by-working-folder", "cd backend/.venv/bin && echo evil > ./rg"),
    ("by-root", "echo evil > /proc/self/root$PWD/backend/.venv/bin/rg"),
    ("unmount", "umount backend/.venv; echo evil > backend/.venv/bin/rg"),
    ("remount", "mount -o remount,rw,bind backend/.venv; echo evil > backend/.venv/bin/rg"),
    ("bind-over", f"{_EVIL}; mount --bind evil backend/.venv; echo evil > backend/.venv/bin/rg"),
    ("link-removed-and-made", f"{_EVIL}; rm -f current; ln -s evil current"),
    ("link-replaced", f"{_EVIL}; ln -s evil next; mv -fT next current"),
    ("link-becomes-folder", f"{_EVIL}; rm -f current; mv evil current"),
    ("link-moved", f"{_EVIL}; mv current old; mkdir current; cp -r evil/bin current"),
    ("through-the-link", "echo evil > current/bin/rg"),
)  # fmt: skip
