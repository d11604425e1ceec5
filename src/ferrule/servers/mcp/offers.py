"""What a program serves beside its tools: prompts, resources, templates and completion.

Tools are the agent's; they pass its gate and are journaled. What is here is text that the program
itself hands out: nothing is asked and nothing is journaled, so these functions should only read.
Placeholders in templates are single words, `{id}`, each standing for what lies between two slashes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ferrule.core.value_class import frozen

from .blocks import Block, contents, text

Content = str | bytes
Messages = str | Sequence[Mapping[str, Any]]
Complete = Callable[[Mapping[str, Any], str, str], "Sequence[str] | Awaitable[Sequence[str]]"]
"""Called with the reference (the protocol's `ref/prompt` or `ref/resource`), the name of the
argument and what was typed; returns values.
"""

MAX_COMPLETIONS = 100
"""Most values of a completion, set by the protocol."""


@frozen
class PromptArgument:
    """An argument of a prompt; its value is text."""

    name: str
    description: str = ""
    required: bool = True


@frozen
class Prompt:
    """A prompt.

    `get` takes the client (`client.Client`) and the arguments by keyword, and returns text (one
    message of the user) or messages: `{"role": "user" | "assistant", "content": block}`. It may be
    async, and may ask the client.
    """

    name: str
    description: str
    get: Callable[..., Messages | Awaitable[Messages]]
    arguments: tuple[PromptArgument, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the prompt as in `prompts/list`."""
        taken = [
            {"name": one.name, "description": one.description, "required": one.required}
            for one in self.arguments
        ]
        return {"name": self.name, "description": self.description, "arguments": taken}

    def find_problems(self, given: Mapping[str, str]) -> list[str]:
        """Return a problem for each missing required argument and each unknown one."""
        known = {one.name for one in self.arguments}
        lacking = [
            f"`{one.name}` is missing"
            for one in self.arguments
            if one.required and one.name not in given
        ]
        return lacking + [f"unknown argument `{name}`" for name in given if name not in known]


@frozen
class Resource:
    """A resource. `read` returns text or bytes, and may be async."""

    uri: str
    name: str
    read: Callable[[], Content | Awaitable[Content]]
    description: str = ""
    media_type: str = "text/plain"

    def to_json(self) -> dict[str, Any]:
        """Return the resource as in `resources/list`."""
        return {
            "uri": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": self.media_type,
        }

    async def contents(self) -> dict[str, Any]:
        """Return the content as in `resources/read`."""
        return contents(self.uri, await resolve(self.read()), self.media_type)


@frozen
class Template:
    """Resources whose addresses follow a pattern. `read` takes the placeholders by keyword."""

    uri_template: str
    name: str
    read: Callable[..., Content | Awaitable[Content]]
    description: str = ""
    media_type: str = "text/plain"

    def to_json(self) -> dict[str, Any]:
        """Return the template as in `resources/templates/list`."""
        about = {"name": self.name, "description": self.description, "mimeType": self.media_type}
        return {"uriTemplate": self.uri_template, **about}

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the placeholders, or None for another address."""
        parts = re.split(r"\{(\w+)\}", self.uri_template)
        pattern = "".join(
            f"(?P<{one}>[^/]+)" if at % 2 else re.escape(one) for at, one in enumerate(parts)
        )
        found = re.fullmatch(pattern, uri)
        return (
            None
            if found is None
            else {name: unquote(value) for name, value in found.groupdict().items()}
        )

    async def contents(self, uri: str, places: Mapping[str, str]) -> dict[str, Any]:
        """Return the content as in `resources/read`."""
        return contents(uri, await resolve(self.read(**places)), self.media_type)


@dataclass(slots=True)
class Offers:
    """Everything served beside tools.

    The lists may change while the server runs; `McpServer.notify_changed` tells clients. `logging`
    says that tools log to clients (`client.Client.log`).
    """

    prompts: list[Prompt] = field(default_factory=list[Prompt])
    resources: list[Resource] = field(default_factory=list[Resource])
    templates: list[Template] = field(default_factory=list[Template])
    complete: Complete | None = None
    logging: bool = False

    def prompt(self, name: str) -> Prompt | None:
        """Return the prompt of this name."""
        return next((one for one in self.prompts if one.name == name), None)

    async def read(self, uri: str) -> dict[str, Any] | None:
        """Return the contents of a resource, or None if nothing here has this address."""
        for resource in self.resources:
            if resource.uri == uri:
                return await resource.contents()
        for template in self.templates:
            if (places := template.match(uri)) is not None:
                return await template.contents(uri, places)
        return None

    async def complete_argument(
        self, reference: Mapping[str, Any], name: str, typed: str
    ) -> dict[str, Any]:
        """Return the completion as in `completion/complete`."""
        values = (
            list(await resolve(self.complete(reference, name, typed)))
            if self.complete is not None
            else []
        )
        more = len(values) > MAX_COMPLETIONS
        return {
            "completion": {
                "values": values[:MAX_COMPLETIONS],
                "total": len(values),
                "hasMore": more,
            }
        }


def to_messages(said: Messages) -> list[dict[str, Any]]:
    """Return the messages of a prompt in the protocol's JSON."""
    if isinstance(said, str):
        return [{"role": "user", "content": text(said)}]
    return [dict(one) for one in said]


async def resolve(value: Any) -> Any:
    """Return a value, or the result of an awaitable."""
    return await value if inspect.isawaitable(value) else value


__all__ = [
    "Block",
    "Complete",
    "Content",
    "Messages",
    "Offers",
    "Prompt",
    "PromptArgument",
    "Resource",
    "Template",
    "resolve",
    "to_messages",
]
