"""One library, run after run, in an environment of its own: `python -m outputs.worker NAME URL`.

Reads a line of JSON per run, `{"type": N, "manner": M, "mode": MODE, "stream": false}`, and answers
with one: `{"end": "right"}`, or what happened instead. Its lines begin with `@@`, as libraries print
what they like.

Ends: `right`; `wrong value`; `no value` where there must be one; `value` where an error must be (such
as a value that was cut and looked whole); `not taken` if the library refuses the type.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from outputs.manners import MANNERS
from outputs.types_asked import ASKED

RETRIES = 2
"""How often an answer goes back to the model, in every library."""


class NotTaken(Exception):
    """The library refuses the type, or has no such mode."""


class Library(Protocol):
    """A library that is compared."""

    async def run(self, asked_type: Any, prompt: str, mode: str, *, stream: bool) -> Any:
        """Return the output of a run. Raises whatever the library raises, or NotTaken."""
        ...


class Ferrule:
    """Ferrule itself, over the same socket."""

    def __init__(self, url: str) -> None:
        from ferrule.models.openai.chat import OpenAIChat

        self._model = OpenAIChat("m", base_url=url, api_key="none")

    async def close(self) -> None:
        """Close the connections."""
        await self._model.close()

    async def run(self, asked_type: Any, prompt: str, mode: str, *, stream: bool) -> Any:
        from ferrule import Agent, PartialOutput, Storage

        options: Any = {"output_mode": mode, "storage": Storage(journal=":memory:")}
        agent: Any = Agent(self._model, output_type=asked_type, output_retries=RETRIES, **options)
        if not stream:
            return (await agent.run(prompt)).output
        last: Any = None
        async for item in agent.stream(prompt):
            if isinstance(item, PartialOutput):
                last = item
        return last.output


class PydanticAI:
    """Pydantic AI: native, tool and prompted outputs; it has no mode for a grammar."""

    def __init__(self, url: str) -> None:
        from pydantic_ai import NativeOutput, PromptedOutput, StructuredDict, ToolOutput
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=url, api_key="none")
        self._model: Any = OpenAIChatModel("gpt-4o", provider=provider)
        self._of_schema: Any = StructuredDict
        self._modes: dict[str, Callable[..., Any]] = {
            "schema": NativeOutput,
            "tool": lambda one: (
                [ToolOutput(part) for part in one] if isinstance(one, list) else ToolOutput(one)
            ),
            "prompt": PromptedOutput,
        }

    async def run(self, asked_type: Any, prompt: str, mode: str, *, stream: bool) -> Any:
        from pydantic_ai import Agent

        if mode not in self._modes:
            raise NotTaken(mode)
        try:
            if isinstance(asked_type, dict):
                asked_type = self._of_schema(asked_type)
            kind = self._modes[mode](asked_type)
            retries: Any = {"output": RETRIES}
            agent: Any = Agent(self._model, output_type=kind, retries=retries)
        except Exception as error:
            raise NotTaken(str(error)) from error
        if not stream:
            return (await agent.run(prompt)).output
        async with agent.run_stream(prompt) as result:
            return await result.get_output()


class Instructor:
    """Instructor: JSON Schema, tools, and JSON in Markdown; whole answers only."""

    def __init__(self, url: str) -> None:
        import instructor
        import openai

        modes = instructor.Mode
        chosen = {"schema": modes.JSON_SCHEMA, "tool": modes.TOOLS, "prompt": modes.MD_JSON}
        client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        self._clients: dict[str, Any] = {
            name: instructor.from_openai(client, mode=mode) for name, mode in chosen.items()
        }

    async def run(self, asked_type: Any, prompt: str, mode: str, *, stream: bool) -> Any:
        from typing import Union

        if mode not in self._clients or stream or isinstance(asked_type, dict):
            raise NotTaken(mode)
        if isinstance(asked_type, list):
            asked_type = Union[tuple(asked_type)]  # noqa: UP007  made when it runs
        try:
            return await self._clients[mode].chat.completions.create(
                model="gpt-4o",
                response_model=asked_type,
                max_retries=RETRIES + 1,
                messages=[{"role": "user", "content": prompt}],
            )
        except TypeError as error:
            # Raised before a request: "response_model must be a subclass of pydantic.BaseModel".
            raise NotTaken(str(error)) from error


LIBRARIES: dict[str, Callable[[str], Library]] = {
    "ferrule": Ferrule,
    "pydantic-ai": PydanticAI,
    "instructor": Instructor,
}


def _to_plain(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, fallback=str)
    if isinstance(value, set):
        return sorted(plain)
    if isinstance(plain, dict):
        return {name: one for name, one in plain.items() if one is not None}
    return plain


def judge(output: Any, number: int, manner: int) -> str:
    """Return how a run ended that gave a value."""
    asked = ASKED[number]
    # By what is in it: libraries return subclasses of the type, and records for typed dicts.
    same = _to_plain(output) == _to_plain(asked.value)
    if not same:
        if os.environ.get("OUTPUTS_SHOW"):
            sys.stderr.write(f"{asked.name}, {MANNERS[manner].name}: {output!r:.200}\n")
        return "wrong value"
    return "right" if MANNERS[manner].end == "value" else "value"


async def play(library: Library, run: dict[str, Any], mark: str) -> str:
    """Return how a run ended."""
    number, manner = run["type"], run["manner"]
    prompt = f"go [[run={mark};type={number};manner={manner};mode={run['mode']}]]"
    try:
        async with asyncio.timeout(60):
            output = await library.run(
                ASKED[number].type, prompt, run["mode"], stream=run["stream"]
            )
    except NotTaken:
        return "not taken"
    except Exception as error:  # noqa: BLE001  boundary: whatever a library raises ends its run
        if MANNERS[manner].end != "value":
            return "right"
        if os.environ.get("OUTPUTS_SHOW"):
            sys.stderr.write(f"{mark}: {type(error).__name__}: {str(error)[:300]}\n")
        return "no value"
    return judge(output, number, manner)


async def main(name: str, url: str) -> None:
    """Serve runs until standard input ends."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    logging.disable()
    library = LIBRARIES[name](url)
    count = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        run = json.loads(line)
        count += 1
        end = await play(library, run, f"{name}-{count}")
        report.write("@@" + json.dumps({"end": end}) + "\n")
        report.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
