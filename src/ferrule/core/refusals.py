"""Who refused a call: one word in the journal, the audit, the console and the command line.

A person refuses only what they were asked and said no to. Where nobody was there, or something
else decided in their place, that is recorded and shown instead.
"""

from __future__ import annotations

from typing import Literal

from .vocabulary import Refuser

_NAMES: dict[str, str] = {
    "nobody": "nobody, as no one was available to approve it",
    "rule": "a rule",
    "tool": "the tool",
    "limit": "a limit of the run",
    "mode": "the mode",
    "hook": "a hook",
    "sandbox": "the sandbox",
    "gate": "the gate",
    "error": "an error, as nobody could be asked",
}


def name_answerer(by: str, refused_by: Refuser | Literal[""]) -> str:
    """Return who answered a question, or why nobody did, as it follows `by` in a sentence."""
    return _NAMES.get(refused_by) or by or "a person"


def describe_denial(by: str, refused_by: Refuser | Literal[""], note: str) -> str:
    """Return why a call was denied; it says `denied by a person` only if a person did."""
    if note:
        return note
    if refused_by in ("", "person"):
        return "denied by a person" if refused_by or not by else f"denied by {by}"
    return f"denied by {_NAMES[refused_by]}"
