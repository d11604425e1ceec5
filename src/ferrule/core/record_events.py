"""Events that the machine does not act on: records of what calls met, for those who read a journal
(`events` has all kinds).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

from .frozen import frozen


@frozen
class CallConfined:
    """What holds a program that a call starts, as it was applied: `sandbox` is the mechanism
    (`none`: nothing holds it).
    """

    kind: ClassVar[str] = "call.confined"
    call_id: str
    sandbox: str
    enforced: tuple[str, ...] = ()
    not_enforced: tuple[str, ...] = ()
    program: str = ""


@frozen
class FilesSeen:
    """What paths that a call may write were, `when` it began (`before`) or ended (`after`):
    `states` as `engine.rewind.file_copies` says them.
    """

    kind: ClassVar[str] = "call.files"
    call_id: str
    when: str
    paths: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


@frozen
class ConsentAnswered:
    """A person's answer to what a tool asked while it worked: a gap in the sandbox, a server's
    question.

    The words are those of `PersonAnswered`; `question` is what they were told.
    """

    kind: ClassVar[str] = "consent.answered"
    call_id: str
    tool: str
    question: str
    choice: str
    digest: str = ""
    grant: str = ""
    by: str = ""
    note: str = ""


@frozen
class SessionArchived:
    """A session was moved out of this journal into a file. `head` is the hash of its last event,
    number `events`.

    `sha256` is the file's; `number` the key that the session had in the journal.
    """

    kind: ClassVar[str] = "session.archived"
    session: str
    events: int
    head: str
    file: str
    sha256: str = ""
    number: int = 0
    tenant: str = ""
    user: str = ""


@frozen
class ToolSearchQuery:
    """Deferred tools were searched. `id` is the call's; `name` is `tool_search_tool_` and the
    strategy.

    `query` holds all arguments of the search; `mode` says who searched: `native` (the provider) or
    `client`.
    """

    kind: ClassVar[str] = "tool_search_query"
    id: str
    name: str
    query: dict[str, Any] = field(default_factory=dict[str, Any])
    strategy: str = ""
    mode: str = "client"


@frozen
class ToolSearchResult:
    """What that search found, best first, and which of it the model has from its next question on
    (`promoted`).

    Names are full names. The tools a session has discovered are these events, in their order.
    """

    kind: ClassVar[str] = "tool_search_result"
    tool_use_id: str
    tool_references: tuple[str, ...] = ()
    promoted: tuple[str, ...] = ()
    strategy: str = ""
    mode: str = "client"
