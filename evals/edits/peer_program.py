"""Run by another program's Python: edits texts with that program's editor. Reads and writes JSON lines.

    python peer_program.py aider-blocks < cases > answers

A case has `before`, `edits` (pairs), `v4a` and `diff`. An answer has `text`, what the editor made,
and `failed`, whether it reported a failure; what it had made by then counts as made.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

FILE = Path("f")


def aider_blocks(case):
    from aider.coders.editblock_coder import DEFAULT_FENCE, do_replace

    text, failed = case["before"], False
    for old, new in case["edits"]:
        made = do_replace("f", text, old, new, DEFAULT_FENCE)
        failed = failed or not made
        text = made or text
    return text, failed


def aider_diff(case):
    from aider.coders import udiff_coder

    text, failed = case["before"], False
    for _, hunk in udiff_coder.find_diffs(f"```diff\n{case['diff']}```\n"):
        hunk = udiff_coder.normalize_hunk(hunk)
        if not hunk:
            continue
        try:
            made = udiff_coder.do_replace("f", text, hunk)
        except Exception:  # noqa: BLE001  boundary: an ambiguous hunk is an exception there
            made = None
        failed = failed or not made
        text = made or text
    return text, failed


def codex(case):
    from codex_apply_patch import apply_patch

    FILE.write_bytes(case["before"].encode())
    try:
        apply_patch(case["v4a"])
        failed = False
    except Exception:  # noqa: BLE001  boundary: whatever the editor raises is its refusal
        failed = True
    return FILE.read_bytes().decode(), failed


def deepagents(case):
    from deepagents.backends.utils import perform_string_replacement

    text, failed = case["before"], False
    for old, new in case["edits"]:
        made = perform_string_replacement(text, old, new)
        failed = failed or isinstance(made, str)
        text = text if isinstance(made, str) else made[0]
    return text, failed


EDITORS = {
    "aider-blocks": aider_blocks,
    "aider-diff": aider_diff,
    "codex": codex,
    "deepagents": deepagents,
}

if __name__ == "__main__":
    edit = EDITORS[sys.argv[1]]
    cases = [json.loads(line) for line in sys.stdin]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        FILE.touch()
        answers = sys.stdout
        sys.stdout = sys.stderr  # editors print
        for case in cases:
            try:
                text, failed = edit(case)
            except Exception as error:  # noqa: BLE001  boundary: what it raises is its refusal
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                text, failed = case["before"], True
            answers.write(json.dumps({"text": text, "failed": failed}) + "\n")
        answers.flush()
        os.chdir("/")
