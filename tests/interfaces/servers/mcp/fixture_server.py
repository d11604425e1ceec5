"""A server for `@modelcontextprotocol/conformance`: what its scenarios call, as tools, prompts and
resources of an ordinary agent.

    python fixture_server.py FOLDER

Writes the address that it serves on to standard output. The suite brings no token, so one is put
into each request on its way to the HTTP guard; the HTTP guard's other rules hold.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule import tool
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.runtime.http.server import accepted_hosts, accepted_origins, bound_port, listen, serve
from ferrule.servers.mcp import (
    Client,
    McpServer,
    Offers,
    Prompt,
    PromptArgument,
    Resource,
    Template,
    audio,
    client_of,
    elicitation,
    embed_content,
    image,
    roots,
    sampling,
    text,
)
from ferrule.tools.context import Context
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool

TOKEN = "for-the-conformance-suite-only"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
WAV = (
    b"RIFF$\x00\x00\x00WAVEfmt "
    b"\x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"
)
PAUSE = 0.05
"""Seconds between two lines: the suite wants to see that they come one after another."""


def free(function: Any) -> Tool:
    """A tool that does nothing to the world."""
    return tool(function, side_effect="none", risk="safe")


@free
async def test_simple_text() -> str:
    """Say something."""
    return "This is a simple text response for testing."


@free
async def test_image_content(context: Context) -> None:
    """Show a picture."""
    client_of(context).show(image(PNG))


@free
async def test_audio_content(context: Context) -> None:
    """Play a sound."""
    client_of(context).show(audio(WAV))


@free
async def test_embedded_resource(context: Context) -> None:
    """Bring a resource along."""
    client_of(context).show(
        embed_content("test://embedded-resource", "This is an embedded resource content.")
    )


@free
async def test_multiple_content_types(context: Context) -> str:
    """Bring all kinds of content."""
    client = client_of(context)
    client.show(image(PNG))
    client.show(
        embed_content(
            "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
        )
    )
    return "Multiple content types test:"


@free
async def test_tool_with_logging(context: Context) -> str:
    """Log on the way."""
    client = client_of(context)
    client.log("info", "Tool execution started")
    await asyncio.sleep(PAUSE)
    client.log("info", "Tool processing data")
    await asyncio.sleep(PAUSE)
    client.log("info", "Tool execution completed")
    return "logged three lines"


@free
async def test_error_handling() -> str:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


@free
async def test_tool_with_progress(context: Context) -> str:
    """Say how far it is."""
    for step in ("begun", "half done", "done"):
        context.progress(step)
        await asyncio.sleep(PAUSE)
    return "said three times how far it was"


@free
async def test_sampling(prompt: str, context: Context) -> str:
    """Ask the client's model."""
    answer = (await client_of(context).ask(answer=sampling(prompt, 100)))["answer"]
    return f"LLM response: {answer['content']['text']}"


@free
async def test_elicitation(message: str, context: Context) -> str:
    """Ask the person at the client."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return (
        "User response: "
        f"{(await client_of(context).ask(answer=elicitation(message, fields)))['answer']}"
    )


async def form(context: Context, fields: Mapping[str, Mapping[str, Any]]) -> str:
    answer = (await client_of(context).ask(answer=elicitation("Please fill this in.", fields, [])))[
        "answer"
    ]
    return (
        f"Elicitation completed: action={answer['action']}, "
        f"content={json.dumps(answer.get('content', {}))}"
    )


@free
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask with defaults."""
    return await form(
        context,
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {
                "type": "string",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "default": True},
        },
    )


@free
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Ask for choices of all kinds."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{at}", "title": f"{at}. choice"} for at in (1, 2, 3)]
    return await form(
        context,
        {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["One", "Two", "Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    )


@free
async def test_reconnection(context: Context) -> str:
    """Let the connection go while it works."""
    await client_of(context).release()
    await asyncio.sleep(PAUSE)
    return "the client came back"


NAME = {"name": {"type": "string"}}


@free
async def test_input_required_result_elicitation(context: Context) -> str:
    """Ask for a name."""
    answer = (await client_of(context).ask(user_name=elicitation("What is your name?", NAME)))[
        "user_name"
    ]
    return f"Hello, {answer.get('content', {}).get('name')}!"


@free
async def test_input_required_result_sampling(context: Context) -> str:
    """Ask the client's model for a capital."""
    question = sampling("What is the capital of France?", 100)
    return str(
        (await client_of(context).ask(capital_question=question))["capital_question"]["content"]
    )


@free
async def test_input_required_result_list_roots(context: Context) -> str:
    """Ask for the client's folders."""
    return json.dumps((await client_of(context).ask(client_roots=roots()))["client_roots"]["roots"])


@free
async def test_input_required_result_request_state(context: Context) -> str:
    """Ask for a yes."""
    await client_of(context).ask(confirm=elicitation("Please confirm", {"ok": {"type": "boolean"}}))
    return "state-ok"


@free
async def test_input_required_result_tampered_state(context: Context) -> str:
    """Ask for a yes that nobody may forge."""
    await client_of(context).ask(confirm=elicitation("Please confirm", {"ok": {"type": "boolean"}}))
    return "confirmed"


@free
async def test_input_required_result_multiple_inputs(context: Context) -> str:
    """Ask for three things at once."""
    answers = await client_of(context).ask(
        user_name=elicitation("What is your name?", NAME),
        greeting=sampling("Generate a greeting", 50),
        client_roots=roots(),
    )
    return ", ".join(sorted(answers))


@free
async def test_input_required_result_multi_round(context: Context) -> str:
    """Ask twice."""
    client = client_of(context)
    await client.ask(step1=elicitation("Step 1: What is your name?", NAME))
    await client.ask(
        step2=elicitation("Step 2: What is your favorite color?", {"color": {"type": "string"}})
    )
    return "both steps are done"


@free
async def test_input_required_result_capabilities(context: Context) -> str:
    """Ask only what the client can answer."""
    client = client_of(context)
    questions = {
        "user_name": elicitation("What is your name?", NAME),
        "greeting": sampling("Greet", 50),
    }
    can = {"user_name": "elicitation", "greeting": "sampling"}
    answers = await client.ask(
        **{name: one for name, one in questions.items() if client.can(can[name])}
    )
    return ", ".join(sorted(answers))


@free
async def test_missing_capability(context: Context) -> str:
    """Need a model at the client."""
    return str(await client_of(context).ask(answer=sampling("Anything")))


@free
async def test_streaming_elicitation(context: Context) -> str:
    """Say something and ask something."""
    context.progress("about to ask")
    await client_of(context).ask(user_name=elicitation("What is your name?", NAME))
    return "asked"


@free
async def test_logging_tool(context: Context) -> str:
    """Log a line, where the client wants it."""
    client_of(context).log("info", "a line")
    return "logged, or not"


def passed(**given: Any) -> str:
    return json.dumps(given)


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADED = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}
DATA = [
    define_tool(
        "json_schema_2020_12_tool",
        "Takes a schema with everything.",
        parameters=SCHEMA,
        handler=passed,
        side_effect="none",
    ),
    define_tool(
        "test_x_mcp_header",
        "Repeats an argument as a header.",
        parameters=HEADED,
        handler=passed,
        side_effect="none",
    ),
]


async def ask_context(client: Client) -> str:
    answer = (
        await client.ask(user_context=elicitation("What context?", {"context": {"type": "string"}}))
    )["user_context"]
    return f"Use this context: {answer.get('content')}"


def about(client: Client, resourceUri: str) -> list[dict[str, Any]]:
    content = embed_content(resourceUri, "Embedded resource content for testing.")
    return [
        {"role": "user", "content": content},
        {"role": "user", "content": text("Please process the embedded resource above.")},
    ]


PROMPTS = [
    Prompt("test_simple_prompt", "Simple.", lambda client: "This is a simple prompt for testing."),
    Prompt(
        "test_prompt_with_arguments",
        "With arguments.",
        lambda client, arg1, arg2: f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'",
        (PromptArgument("arg1", "First"), PromptArgument("arg2", "Second")),
    ),
    Prompt(
        "test_prompt_with_embedded_resource",
        "With a resource.",
        about,
        (PromptArgument("resourceUri"),),
    ),
    Prompt(
        "test_prompt_with_image",
        "With a picture.",
        lambda client: [
            {"role": "user", "content": image(PNG)},
            {"role": "user", "content": text("Please analyze the image above.")},
        ],
    ),
    Prompt("test_input_required_result_prompt", "Asks first.", ask_context),
]
OFFERS = Offers(
    prompts=PROMPTS,
    resources=[
        Resource(
            "test://static-text", "text", lambda: "This is the content of the static text resource."
        ),
        Resource("test://static-binary", "binary", lambda: PNG, media_type="image/png"),
        Resource("test://watched-resource", "watched", lambda: "watched"),
    ],
    templates=[
        Template(
            "test://template/{id}/data",
            "template",
            lambda id: json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"}),
            media_type="application/json",
        )
    ],
    complete=lambda reference, name, typed: [
        one for one in ("paris", "park", "party") if one.startswith(typed)
    ],
    logging=True,
)


def changing(agent: Agent) -> list[Tool]:
    """Tools that change what there is; they find the server when they are called."""

    def later() -> str:
        """A tool that came later."""
        return "later"

    @free
    async def test_trigger_tool_change() -> str:
        """Have one more tool."""
        agent.catalog.add(tool(later, name=f"later_{len(agent.catalog)}", side_effect="none"))
        await SERVERS[0].notify_changed("tools")
        return "there is one more"

    @free
    async def test_trigger_prompt_change() -> str:
        """Have other prompts."""
        await SERVERS[0].notify_changed("prompts")
        return "there are others"

    return [test_trigger_tool_change, test_trigger_prompt_change]


SERVERS: list[McpServer] = []


def made(folder: Path) -> tuple[Agent, McpServer]:
    tools = [
        one for name, one in globals().items() if name.startswith("test_") and isinstance(one, Tool)
    ]
    agent = Agent(
        "scripted:none",
        [*tools, *DATA],
        workspace=folder,
        storage=Storage(journal=folder / "journal.db"),
    )
    agent.catalog.add(*changing(agent))
    SERVERS.append(McpServer(agent, name="conformance-fixture", offers=OFFERS))
    return agent, SERVERS[0]


async def main(folder: Path) -> None:
    listening = listen("127.0.0.1", 0)
    port = bound_port(listening)
    agent, ours = made(folder)
    http_guard = ours.app(
        token=TOKEN,
        hosts=accepted_hosts("127.0.0.1", port),
        origins=accepted_origins("127.0.0.1", port),
    )

    async def with_token(scope: Any, receive: Any, send: Any) -> None:
        headers = [*scope.get("headers", ()), (b"authorization", f"Bearer {TOKEN}".encode())]
        await http_guard({**scope, "headers": headers}, receive, send)

    async with ours.open():
        print(f"http://127.0.0.1:{port}/mcp", flush=True)
        await serve(with_token, "127.0.0.1", port, listening=listening)
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
