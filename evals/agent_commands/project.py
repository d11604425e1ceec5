"""A small project with a history, which every command finds as it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

FILES = {
    "README.md": "# Demo\n\nA foo.\n",
    "pyproject.toml": '[project]\nname = "demo"\nversion = "0.1"\n',
    "package.json": '{"name": "demo", "scripts": {"test": "node test.js", "build": "true"}, '
    '"dependencies": {"left-pad": "1.3.0"}}\n',
    "Makefile": "all:\n\t@echo built\n\ntest:\n\t@echo PASS\n",
    "data.csv": "name,size\na,1\nb,2\n",
    "numbers.txt": "1\n2\n3\n",
    "list.txt": "b\na\nb\n",
    "a.txt": "1\n2\n",
    "b.txt": "2\n3\n",
    "commands.txt": "echo hi\n",
    "build.log": "done\n",
    "out.log": "done\n",
    "script.py": "print('script')\n",
    "package-lock.json": '{"name": "demo", "lockfileVersion": 3, "packages": {"": {"dependencies": '
    '{"left-pad": "1.3.0"}}, "node_modules/left-pad": {"version": "1.3.0", "resolved": '
    '"https://packages.example.com/left-pad-1.3.0.tgz"}}}\n',
    "node_modules/.bin/tsc": "#!/bin/sh\necho checked\n",
    "index.js": "console.log('x')\n",
    "hello.c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
    "src/app.py": "import os\n\n\ndef add(a, b):\n    return a + b  # foo\n",
    "src/util.py": "VALUE = 1  # TODO\n",
    "src/pkg/__init__.py": "",
    "tests/test_app.py": "def test_add():\n    assert 1 + 1 == 2\n",
    "scripts/check.sh": "#!/bin/sh\necho checked\n",
    "build/src.txt": "made\n",
    ".env": "KEY=secret\n",
    ".gitignore": "build/\nnode_modules/\n.env\n.venv/\n",
}


def make_project(root: Path) -> None:
    """Make the project with two commits."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("scripts/check.sh", "node_modules/.bin/tsc"):
        (root / name).chmod(0o755)
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "A Person"],
        ["config", "user.email", "person@example.com"],
        ["remote", "add", "origin", "https://git.example.com/demo.git"],
        ["add", "-A"],
        ["commit", "-q", "-m", "Begin"],
        ["commit", "-q", "--allow-empty", "-m", "Go on"],
        ["commit", "-q", "--allow-empty", "-m", "Go on further"],
    ):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    (root / "changes.patch").write_text(
        "--- a/README.md\n+++ b/README.md\n@@ -1,3 +1,3 @@\n # Demo\n \n-A foo.\n+A bar.\n"
    )


def restore(template: Path, root: Path) -> None:
    """Give the workspace the content of the template; the folder itself stays."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(template, root, symlinks=True, dirs_exist_ok=True)
