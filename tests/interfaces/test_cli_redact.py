"""`ferrule sessions export --redact`: a session for the eyes of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEY = "ghp_" + "a1B2" * 9


def test_an_export_for_others_holds_no_secrets_and_what_the_person_added_to_them(
    ferrule: Callable[..., Any], folder: Path, own_folders: Path
) -> None:
    script = folder.parent / "talk.json"
    script.write_text(json.dumps([{"say": f"the key is {KEY}, the badge EMP-123456"}]))
    config = own_folders / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "ferrule.yaml").write_text("redaction:\n  patterns: ['EMP-\\d{6}']\n")
    assert ferrule("run", "--model", f"scripted:{script}", "go").code == 0
    (session,) = json.loads(ferrule("sessions", "list", "--json").out)
    for kind in ("markdown", "spmd", "jsonl"):
        plain = ferrule("sessions", "export", session["session"], "--format", kind).out
        shown = ferrule("sessions", "export", session["session"], "--format", kind, "--redact").out
        assert KEY in plain
        assert KEY not in shown
        assert "EMP-123456" not in shown
        assert "the key is [redacted sha256:" in shown
