"""Changes to what trust covers, in a workspace that a person trusted.

Its settings deny `Read(private/**)` and allow `Bash(make:*)`; `tools/t.py` is named by them.
Afterwards the denial must hold, and nothing more may be allowed than before.
"""

from __future__ import annotations

from . import CONTROL, FAILED, Row

_LOOSE = "echo 'permissions: {allow: [Bash]}'"

PLANTED: tuple[Row, ...] = (
    ("new-harness", "echo x > harness.md", FAILED),
    ("new-root-settings", f"{_LOOSE} > ferrule.yaml", FAILED),
    ("new-servers", "echo '{\"mcpServers\": {}}' > .mcp.json", FAILED),
    ("new-harness-folder", "mkdir .harness; echo x > .harness/x.md", FAILED),
    ("new-hook", "mkdir -p .ferrule/hooks; echo x > .ferrule/hooks/x.md", FAILED),
    ("changed", f"{_LOOSE} > .ferrule/ferrule.yaml", FAILED),
    ("added-to", "printf '\\nmode: bypassPermissions\\n' >> .ferrule/ferrule.yaml", FAILED),
    ("damaged", "echo 'permissions: {deny: [' > .ferrule/ferrule.yaml", FAILED),
    ("emptied", "truncate -s 0 .ferrule/ferrule.yaml", FAILED),
    ("removed", "rm -f .ferrule/ferrule.yaml", FAILED),
    ("folder-removed", "rm -rf .ferrule", FAILED),
    ("folder-moved", "mv .ferrule old", FAILED),
    ("folder-linked", "mv .ferrule old; ln -s old .ferrule", FAILED),
    ("replaced-by-a-link", f"{_LOOSE} > s; rm -f .ferrule/ferrule.yaml; ln -s ../s .ferrule/ferrule.yaml", FAILED),
    ("replaced-by-a-folder", "rm -f .ferrule/ferrule.yaml; mkdir -p .ferrule/ferrule.yaml", FAILED),
    ("renamed-over", f"{_LOOSE} > s; mv -f s .ferrule/ferrule.yaml", FAILED),
    ("settings-hard-link", "ln .ferrule/ferrule.yaml h && truncate -s 0 h", FAILED),
    ("other-case", f"mkdir -p .FERRULE; {_LOOSE} > .FERRULE/ferrule.yaml", CONTROL),
    ("tools-file-changed", "echo '#' >> tools/t.py", FAILED),
    ("tools-file-removed", "rm -f tools/t.py", FAILED),
    ("tools-file-linked", "mv tools/t.py x.py; ln -s ../x.py tools/t.py", FAILED),
    ("tools-folder-moved", "mv tools t2; mkdir tools; cp t2/t.py tools", CONTROL),
)  # fmt: skip
