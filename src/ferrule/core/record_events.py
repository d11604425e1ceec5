"""Events that the machine ignores: records for readers of a journal (`events` has all kinds)."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal

from .value_class import frozen
from .vocabulary import ApprovalChoice, Refuser, SearchSide


@frozen
class CallConfined:
    """The protections applied to a program that a call starts.

    `sandbox` is the backend; `none` means that nothing confines the program. `shown` lists what the
    programs of the session see of the machine, each with the reason; empty while it is the same as
    before.
    """

    kind: ClassVar[str] = "call.confined"
    call_id: str
    sandbox: str
    enforced: tuple[str, ...] = ()
    not_enforced: tuple[str, ...] = ()
    program: str = ""
    shown: tuple[str, ...] = ()


@frozen
class FilesSeen:
    """The state of the paths that a call may write, `before` or `after` it ran (`when`).

    `states` are in the form of `engine.rewind.states`.
    """

    kind: ClassVar[str] = "call.files"
    call_id: str
    when: Literal["before", "after"]
    paths: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


@frozen
class WorkspaceKept:
    """Files of a workspace were kept, so that the session can go on elsewhere.

    These paths are not as they were kept before; `states` are in the form of
    `engine.rewind.states`, with `link:` and `repository:` besides. `place` is an id of the folder.
    """

    kind: ClassVar[str] = "workspace.kept"
    place: str
    paths: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


@frozen
class ConsentAnswered:
    """A person's answer to a question that came up while a tool ran.

    The question is about a missing protection of the sandbox, or comes from a server. Fields are
    those of `PersonAnswered`; `question` is the text that the person saw.
    """

    kind: ClassVar[str] = "consent.answered"
    call_id: str
    tool: str
    question: str
    choice: ApprovalChoice
    digest: str = ""
    grant: str = ""
    by: str = ""
    note: str = ""
    refused_by: Refuser | Literal[""] = ""


@frozen
class SessionArchived:
    """A session was moved out of this journal into a file.

    `head` is the hash of its last event, number `events`. `sha256` is the hash of the file;
    `number` the key that the session had in the journal.
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
    """A search for deferred tools.

    `id` is the id of the call; `name` is `tool_search_tool_` and the strategy. `query` holds all
    arguments of the search; `mode` says who searched: `native` (the provider) or `client`.
    """

    kind: ClassVar[str] = "tool_search_query"
    id: str
    name: str
    query: dict[str, Any] = field(default_factory=dict[str, Any])
    strategy: str = ""
    mode: SearchSide = "client"


@frozen
class ToolSearchResult:
    """What a search for tools found, best first.

    The model has the `promoted` tools from its next turn on. Names are full names. The tools that a
    session has discovered are those of these events, in their order.
    """

    kind: ClassVar[str] = "tool_search_result"
    tool_use_id: str
    tool_references: tuple[str, ...] = ()
    promoted: tuple[str, ...] = ()
    strategy: str = ""
    mode: SearchSide = "client"
