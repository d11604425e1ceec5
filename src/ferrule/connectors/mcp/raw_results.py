"""Results as a server sent them: what is wrong in a part of one costs that part.

The protocol library refuses a whole result for one entry or block that does not have the protocol's
form, also after a call that had its effect. `make_dispatcher` keeps each result as it came
(`collect_results`), and takes bad tools out of a list before the library reads it, with reasons.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.json_values import list_or_empty, mapping_or_empty
from ferrule.core.value_class import mutable

LEFT_OUT = "ferrule/leftOut"
"""The member of a tool that says why it was taken out of the list."""


@mutable
class RawResults:
    """What came for the requests of one context.

    Attributes:
        last: The last result.
        refused: Tools that do not have the protocol's form.
    """

    last: Mapping[str, Any] | None = None
    refused: list[dict[str, Any]] | None = None


_results: contextvars.ContextVar[RawResults | None] = contextvars.ContextVar(
    "ferrule_mcp_results", default=None
)


def collect_results() -> RawResults:
    """Return what is filled with the results of requests from here on, in this context."""
    found = RawResults()
    _results.set(found)
    return found


def make_dispatcher(read: Any, write: Any) -> Any:
    """Return the library's dispatcher of requests, with results kept as they came."""
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    class RawDispatcher(JSONRPCDispatcher[Any]):
        version = "2025-11-25"
        """The version of the protocol that was agreed on."""

        async def send_raw_request(self, method: str, *args: Any, **more: Any) -> dict[str, Any]:
            result = await super().send_raw_request(method, *args, **more)
            found = _results.get()
            if found is not None:
                found.last = result
                if method == "tools/list":
                    result, found.refused = sort_out_tools(result, self.version)
            return result

    return RawDispatcher(read, write)


def sort_out_tools(
    result: Mapping[str, Any], version: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a list of tools with those that have the protocol's form, and the others.

    A schema without a type is one of an object: arguments are nothing else.
    """
    good: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for entry in list_or_empty(result.get("tools")):
        tool = dict(mapping_or_empty(entry))
        schema = tool.get("inputSchema")
        if isinstance(schema, Mapping) and "type" not in schema:
            tool["inputSchema"] = {"type": "object", **schema}
        problem = _find_problem({**result, "tools": [tool]}, version)
        if problem:
            refused.append({"name": str(tool.get("name", "")), LEFT_OUT: problem})
        else:
            good.append(tool)
    return {**result, "tools": good}, refused


def _find_problem(listed: Mapping[str, Any], version: str) -> str:
    """Return why the one tool of a list does not have the protocol's form, or ""."""
    from mcp_types import ListToolsResult
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    try:
        validate_server_result("tools/list", version, dict(listed))
        ListToolsResult.model_validate(listed, by_name=False)
    except ValidationError as error:
        of_tool = [one for one in error.errors() if "tools" in one["loc"]]
        if not of_tool:
            return ""  # it is about the list, which the library judges
        first = of_tool[0]
        place = ".".join(str(part) for part in first["loc"][2:])
        return f"its definition is not valid: {place or 'it'}: {first['msg']}"
    except RecursionError:
        return "its definition is nested too deeply"
    return ""
