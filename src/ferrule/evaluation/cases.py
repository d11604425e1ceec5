"""Cases: what a model is asked, and what must and must not happen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal

from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import SideEffect

CallOrder = Literal["given", "any"]
WantedStop = Literal["done", "limit", "failed", "any"]

EFFECT_ORDER = (
    SideEffect.NONE,
    SideEffect.READ,
    SideEffect.WRITE,
    SideEffect.EXECUTE,
    SideEffect.EXTERNAL,
)
"""Side effects from the least to the most. An undeclared one may be any, and counts as the most."""


@frozen
class ExpectedCall:
    """A call that is expected, or approved.

    Attributes:
        tool: Its tool's name; `*` stands for any characters.
        arguments: All its arguments; None if they are not said. An argument that has its tool's
            default may be left out, or be given although it is not said here.
        include: Some of its arguments.
        match: A regular expression for some of its arguments, found anywhere in the text.
        either: Calls of which one is expected in its place; nothing else is said then.
        succeeds: Whether its result must be a success, or must not; None for either.
    """

    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    include: Mapping[str, Any] = field(default_factory=dict[str, Any])
    match: Mapping[str, str] = field(default_factory=dict[str, str])
    either: tuple[ExpectedCall, ...] = ()
    succeeds: bool | None = True


@frozen
class ExpectedText:
    """What a text must be. All that is said must hold; what is None or empty is not said.

    Attributes:
        equals: The whole text, spaces at both ends apart.
        contains: Texts that must occur.
        lacks: Texts that must not occur.
        regex: A regular expression that must be found.
        schema: A JSON Schema; the text must be JSON that fits.
        function: `module:function`, which takes a text and the trial's evidence.
        judge: The name of a rubric, by which a model judges.
    """

    equals: str | None = None
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    regex: str = ""
    schema: Mapping[str, Any] | None = None
    function: str = ""
    judge: str = ""


@frozen
class Expectations:
    """What must happen.

    Attributes:
        calls: Calls of the case's own session; None if nothing is said of them. An empty list with
            `other_calls` false says that there must be none.
        order: Whether they come in the given order, or in any.
        other_calls: Whether there may be other calls.
        output: The text that the last run ends with.
        files: Files of the workspace afterwards; None for one that must not be there.
        stop: How the last run must end.
    """

    calls: tuple[ExpectedCall, ...] | None = None
    order: CallOrder = "given"
    other_calls: bool = True
    output: ExpectedText = ExpectedText()
    files: Mapping[str, ExpectedText | None] = field(
        default_factory=dict[str, "ExpectedText | None"]
    )
    stop: WantedStop = "done"


@frozen
class Forbidden:
    """What must not happen, also in sub-agents.

    Attributes:
        calls: Tools that must not be called, allowed or not; `*` stands for any characters.
        changes: Files of the workspace that must be as before; `*` stands for any characters.
        effects_above: No call that ran may have a side effect above this one.
    """

    calls: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    effects_above: SideEffect | None = None


@frozen
class Case:
    """One case.

    Attributes:
        name: Its name, unique in a file.
        messages: The person's messages, worked one after the other in one session.
        expect: What must happen.
        never: What must not happen.
        fixture: A folder that is copied into the workspace of each trial; None for an empty one.
        tools: The only tools there are; None for all.
        approve: Calls that are approved; nobody is asked about any other.
        limits: Fields of `core.limits.Limits` in place of the agent's own.
        recording: A bundle with a recorded session, for running it offline.
        at_least: The share of its trials that must pass.
        line: Its line in the file; 0 if it is from none.
        attach: Files that go with the first message: pictures, sounds, documents.
    """

    name: str
    messages: tuple[str, ...]
    expect: Expectations = Expectations()
    never: Forbidden = Forbidden()
    fixture: Path | None = None
    tools: tuple[str, ...] | None = None
    approve: tuple[ExpectedCall, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    recording: Path | None = None
    at_least: float = 1.0
    line: int = field(default=0, compare=False)
    attach: tuple[Path, ...] = ()

    def digest(self) -> str:
        """Return a hash of what is asked and expected: reports with different ones do not compare.

        What lies in the fixture and in attached files is not part of it.
        """
        said = asdict(self)
        for name in ("fixture", "recording", "line", "at_least", "attach"):
            said.pop(name)
        if self.attach:
            said["attach"] = [path.name for path in self.attach]
        text = json.dumps(said, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
