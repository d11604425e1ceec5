"""Tool calls through pydantic-ai: one request a line on standard input, its calls a line on output.

python pydantic_ai_calls.py http://127.0.0.1:8080/v1 auto
"""

import asyncio
import json
import sys

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, SystemPromptPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition


async def answer(model, row, choice):
    """Return the calls that the model makes for a request."""
    tools = [
        ToolDefinition(
            name=one["name"],
            description=one["description"],
            parameters_json_schema=one["parameters"],
        )
        for one in row["functions"]
    ]
    messages = [
        ModelRequest(parts=[SystemPromptPart(row["system"]), UserPromptPart(row["request"])])
    ]
    reply = await model_request(
        model,
        messages,
        model_settings={"temperature": 0.0, "max_tokens": 256, "timeout": 300.0},
        model_request_parameters=ModelRequestParameters(
            function_tools=tools, allow_text_output=choice == "auto"
        ),
    )
    calls = [part for part in reply.parts if isinstance(part, ToolCallPart)]
    return [[call.tool_name, call.args_as_json_str()] for call in calls]


async def main():
    url, choice = sys.argv[1:]
    model = OpenAIChatModel("small", provider=OpenAIProvider(base_url=url, api_key="none"))
    for line in sys.stdin:
        try:
            made = {"calls": await answer(model, json.loads(line), choice)}
        except Exception as error:  # noqa: BLE001  what the framework raises is its answer
            made = {"calls": [], "error": f"{type(error).__name__}: {error}"[:200]}
        sys.stdout.write(json.dumps(made) + "\n")
        sys.stdout.flush()


asyncio.run(main())
