"""Attempts of commands to replace what Ferrule itself runs from.

Ferrule is installed in `backend/.venv` of the workspace, which the link `current` leads to, too.
A row is its name, a script, and what it did to the code before. Afterwards every file of the environment must be what it was, at
the path that it had, and nothing must have been added.
"""

from __future__ import annotations

from . import FAILED, Row

_RENAME = (
    "import ctypes, sys; "
    "print(ctypes.CDLL(None, use_errno=True).renameat2(-100, b'{}', -100, b'{}', {}))"
)
_EVIL = "mkdir -p evil/bin && echo evil > evil/bin/rg && chmod +x evil/bin/rg"

ATTEMPTS: tuple[Row, ...] = (
    ("write-program", "echo evil > backend/.venv/bin/rg", FAILED),
    ("append-program", "echo evil >> backend/.venv/bin/rg", FAILED),
    ("truncate", "truncate -s 0 backend/.venv/bin/rg", FAILED),
    ("move-over-program", f"{_EVIL}; mv -f evil/bin/rg backend/.venv/bin/rg", FAILED),
    ("remove-program", "rm -f backend/.venv/bin/rg", FAILED),
    ("replace-python", "rm -f backend/.venv/bin/python; ln -s /bin/true backend/.venv/bin/python", FAILED),
    ("new-program", "echo evil > backend/.venv/bin/new", FAILED),
    ("new-module", "echo evil > backend/.venv/lib/python3/site-packages/yaml.py", FAILED),
    ("change-module", "echo evil >> backend/.venv/lib/python3/site-packages/module.py", FAILED),
    ("path-file", "echo import os > backend/.venv/lib/python3/site-packages/x.pth", FAILED),
    ("compiled", "mkdir backend/.venv/lib/python3/site-packages/__pycache__", FAILED),
    ("configuration", "echo 'home = /evil' > backend/.venv/pyvenv.cfg", FAILED),
    ("mode", "chmod 777 backend/.venv/bin/rg backend/.venv", FAILED),
    ("touch", "touch -d 2001-01-01 backend/.venv/bin/rg", FAILED),
    ("rename-environment", "mv backend/.venv backend/old", FAILED),
    ("rename-then-make", f"{_EVIL}; mv backend/.venv backend/old; mv evil backend/.venv", FAILED),
    ("rename-above", f"{_EVIL}; mv backend b2; mkdir backend; mv evil backend/.venv", FAILED),
    ("rename-above-and-link", f"{_EVIL}; mv backend b2; mkdir backend; ln -s ../evil backend/.venv", FAILED),
    ("exchange-above", f"mkdir -p other/.venv; python3 -c \"{_RENAME.format('backend', 'other', 2)}\"", FAILED),
    (
        "exchange-environment",
        f"{_EVIL}; python3 -c \"{_RENAME.format('backend/.venv', 'evil', 2)}\"",
        FAILED,
    ),
    ("remove-environment", "rm -rf backend/.venv", FAILED),
    ("remove-above", "rm -rf backend", FAILED),
    ("link-over", "ln -sfn /tmp backend/.venv", FAILED),
    ("hard-link", "ln backend/.venv/bin/rg name && echo evil > name", FAILED),
    ("hard-link-module", "ln backend/.venv/lib/python3/site-packages/module.py n.py && echo x > n.py", FAILED),
    ("by-descriptor", "exec 7< backend/.venv/bin/rg; echo evil > /proc/self/fd/7", FAILED),
    ("by-working-folder", "cd backend/.venv/bin && echo evil > ./rg", FAILED),
    ("by-root", "echo evil > /proc/self/root$PWD/backend/.venv/bin/rg", FAILED),
    ("unmount", "umount backend/.venv; echo evil > backend/.venv/bin/rg", FAILED),
    ("remount", "mount -o remount,rw,bind backend/.venv; echo evil > backend/.venv/bin/rg", FAILED),
    ("bind-over", f"{_EVIL}; mount --bind evil backend/.venv; echo evil > backend/.venv/bin/rg", FAILED),
    ("link-removed-and-made", f"{_EVIL}; rm -f current; ln -s evil current", FAILED),
    ("link-replaced", f"{_EVIL}; ln -s evil next; mv -fT next current", FAILED),
    ("link-becomes-folder", f"{_EVIL}; rm -f current; mv evil current", FAILED),
    ("link-moved", f"{_EVIL}; mv current old; mkdir current; cp -r evil/bin current", FAILED),
    ("through-the-link", "echo evil > current/bin/rg", FAILED),
)  # fmt: skip
