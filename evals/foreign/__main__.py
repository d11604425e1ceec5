"""`make lab NAME=foreign ARGS="PART [NAME …] [-v]"`: all parts, one part, or some rows of one."""

from __future__ import annotations

import sys

from . import hooks, openapi, setups, skills

PARTS = {
    "hooks": hooks.try_packages,
    "skills": skills.try_skills,
    "openapi": openapi.try_documents,
    "setups": setups.try_setups,
}

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "-v"]
    parts = [PARTS[words[0]]] if words else list(PARTS.values())
    failures = [part(words[1:], verbose="-v" in sys.argv) for part in parts]
    sys.exit(1 if any(failures) else 0)
