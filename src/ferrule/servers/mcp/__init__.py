"""Serve tools to MCP clients, in both versions of the protocol, over standard streams and HTTP.

Modules: `artifacts`, `blocks`, `client`, `client_approvals`, `command`, `handlers`, `http`,
`messages`, `offers`, `peer`, `plain_calls`, `plain_lines`, `requests`, `results`, `server`,
`sessions`, `stdio`, `tool_list`.
"""

from .blocks import Block, audio, embed_content, image, link, text
from .client import Client, client_of, elicitation, roots, sampling
from .offers import Offers, Prompt, PromptArgument, Resource, Template
from .server import McpServer

__all__ = [
    "Block",
    "Client",
    "McpServer",
    "Offers",
    "Prompt",
    "PromptArgument",
    "Resource",
    "Template",
    "audio",
    "client_of",
    "elicitation",
    "embed_content",
    "image",
    "link",
    "roots",
    "sampling",
    "text",
]
