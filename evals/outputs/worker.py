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
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from outputs.manners import MANNERS
from outputs.types_asked import ASKED

RETRIES = 2
"""How often an answer goes back to the model, in every library."""


class NotTaken(Exception):
    """The library refuses the type, or has no such mode."""


class Library(Protocol):
    """A library that is compared."""

    def prepare(self, asked_type: Any, mode: str) -> Any:
        """Return what runs of a type and a mode share. Raises NotTaken."""
        ...

    async def run(self, prepared: Any, prompt: str, *, stream: bool) -> Any:
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

    def prepare(self, asked_type: Any, mode: str) -> Any:
        from ferrule import Agent, Storage

        options: Any = {"output_mode": mode, "storage": Storage(journal=":memory:")}
        return Agent(self._model, output_type=asked_type, output_retries=RETRIES, **options)

    async def run(self, prepared: Any, prompt: str, *, stream: bool) -> Any:
        from ferrule import PartialOutput

        agent = prepared
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

    def prepare(self, asked_type: Any, mode: str) -> Any:
        from pydantic_ai import Agent

        if mode not in self._modes:
            raise NotTaken(mode)
        try:
            if isinstance(asked_type, dict):
                asked_type = self._of_schema(asked_type)
            kind = self._modes[mode](asked_type)
            retries: Any = {"output": RETRIES}
            return Agent(self._model, output_type=kind, retries=retries)
        except Exception as error:
            raise NotTaken(str(error)) from error

    async def run(self, prepared: Any, prompt: str, *, stream: bool) -> Any:
        if not stream:
            return (await prepared.run(prompt)).output
        async with prepared.run_stream(prompt) as result:
            return await result.get_output()


class Instructor:
    """Instructor: JSON Schema, tools, and JSON in Markdown; streamed by `create_partial`."""

    def __init__(self, url: str) -> None:
        import instructor
        import openai

        modes = instructor.Mode
        chosen = {"schema": modes.JSON_SCHEMA, "tool": modes.TOOLS, "prompt": modes.MD_JSON}
        client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        self._clients: dict[str, Any] = {
            name: instructor.from_openai(client, mode=mode) for name, mode in chosen.items()
        }

    def prepare(self, asked_type: Any, mode: str) -> Any:
        from typing import Union

        if mode not in self._clients or isinstance(asked_type, dict):
            raise NotTaken(mode)
        if isinstance(asked_type, list):
            asked_type = Union[tuple(asked_type)]  # noqa: UP007  made when it runs
        return asked_type, self._clients[mode].chat.completions

    async def run(self, prepared: Any, prompt: str, *, stream: bool) -> Any:
        asked_type, completions = prepared
        asked: dict[str, Any] = {
            "model": "gpt-4o",
            "response_model": asked_type,
            "max_retries": RETRIES + 1,
            "messages": [{"role": "user", "content": prompt}],
        }
        try:
            if not stream:
                return await completions.create(**asked)
            return await _take_last(completions.create_partial(**asked))
        except TypeError as error:
            # Raised before a request: "response_model must be a subclass of pydantic.BaseModel".
            raise NotTaken(str(error)) from error
        except AttributeError as error:
            # The same for what is to be streamed and is no model.
            if "model_fields" not in str(error):
                raise
            raise NotTaken(str(error)) from error


async def _take_last(values: AsyncIterator[Any]) -> Any:
    """Return the last of the values that arrive: the whole one. Raises ValueError if none does."""
    last: Any = _NOTHING
    async for value in values:
        last = value
    if last is _NOTHING:
        raise ValueError("no value arrived")
    return last


_NOTHING = object()


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


class Prepared:
    """What the runs of each type and mode share, made when the first of them begins."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: dict[tuple[int, str], Any] = {}

    def find(self, number: int, mode: str) -> Any:
        """Return what runs share. Raises NotTaken."""
        if (number, mode) not in self._made:
            try:
                made = self.library.prepare(ASKED[number].type, mode)
            except NotTaken as refusal:
                made = refusal
            self._made[(number, mode)] = made
        found = self._made[(number, mode)]
        if isinstance(found, NotTaken):
            raise found
        return found


async def play(prepared: Prepared, run: dict[str, Any], mark: str) -> str:
    """Return how a run ended."""
    number, manner = run["type"], run["manner"]
    prompt = f"go [[run={mark};type={number};manner={manner};mode={run['mode']}]]"
    try:
        async with asyncio.timeout(60):
            shared = prepared.find(number, run["mode"])
            output = await prepared.library.run(shared, prompt, stream=run["stream"])
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
    prepared = Prepared(LIBRARIES[name](url))
    count = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        run = json.loads(line)
        count += 1
        end = await play(prepared, run, f"{name}-{count}")
        report.write("@@" + json.dumps({"end": end}) + "\n")
        report.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
