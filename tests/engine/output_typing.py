"""What a type checker makes of typed answers; `test_output_typing.py` has pyright check this file."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, assert_type

from pydantic import BaseModel

from ferrule import Agent, Context, PartialOutput, RunResult, Session, tool


class Person(BaseModel):
    name: str


class Point(BaseModel):
    x: int


class Row(TypedDict):
    key: str


def book(person: Person) -> bytes:
    return person.name.encode()


async def reserve(person: Person) -> float:
    return len(person.name)


async def check_runs() -> None:
    agent = Agent("openai:x", output_type=Person)
    assert_type(agent, Agent[None, Person])
    assert_type(agent.run_sync("go").output, Person)
    assert_type((await agent.run("go")).output, Person)
    session = agent.session()
    assert_type(session, Session[Person])
    assert_type(await session.run("go"), RunResult[Person])
    assert_type(await session.resume(), RunResult[Person] | None)
    assert_type(agent.resume("x"), Session[Person])
    async for item in agent.stream("go"):
        if isinstance(item, PartialOutput):
            assert_type(item.output, Person)
    async for item in session.stream("go"):
        if isinstance(item, PartialOutput):
            assert_type(item.output, Person)
    assert_type(agent.copy(), Agent[None, Person])
    assert_type(agent.copy_for_user("ines"), Agent[None, Person])


def check_types() -> None:
    assert_type(Agent("openai:x").run_sync("go").output, str)
    assert_type(Agent("openai:x", output_type=int).run_sync("go").output, int)
    assert_type(Agent("openai:x", output_type=list[Person]).run_sync("go").output, list[Person])
    assert_type(Agent("openai:x", output_type=Row).run_sync("go").output, Row)
    assert_type(
        Agent("openai:x", output_type=[Person, Point]).run_sync("go").output, Person | Point
    )
    assert_type(Agent("openai:x", output_type=book).run_sync("go").output, bytes)
    assert_type(Agent("openai:x", output_type=reserve).run_sync("go").output, float)
    assert_type(Agent("openai:x", output_type={"type": "object"}).run_sync("go").output, Any)


def check_named_types() -> None:
    union: Agent[None, Person | Point] = Agent("openai:x", output_type=Person | Point)
    assert_type(union.run_sync("go").output, Person | Point)
    word: Agent[None, Literal["a", "b"]] = Agent("openai:x", output_type=Literal["a", "b"])
    assert_type(word.run_sync("go").output, Literal["a", "b"])


class Shop:
    name: str


@tool
def find(item: str, context: Context[Shop]) -> str:
    return context.deps.name + item


def check_deps() -> None:
    agent = Agent("openai:x", tools=[find], deps_type=Shop, output_type=Person)
    assert_type(agent, Agent[Shop, Person])
    agent.run_sync("go", deps=Shop())
    agent.run_sync("go", deps=7)  # pyright: ignore[reportArgumentType]
    agent.session(deps="x")  # pyright: ignore[reportArgumentType]
    agent.resume("x", deps=7)  # pyright: ignore[reportArgumentType]
    plain = Agent("openai:x", deps_type=Shop)
    assert_type(plain, Agent[Shop, str])
    assert_type(plain.run_sync("go", deps=Shop()).output, str)
    schema = Agent("openai:x", deps_type=Shop, output_type={"type": "object"})
    assert_type(schema, Agent[Shop, Any])
    Agent("openai:x").run_sync("go", deps=Shop())  # pyright: ignore[reportArgumentType]


def take_any_agent(agent: Agent[Any, Any]) -> None:
    """Agents of every output fit here."""


take_any_agent(Agent("openai:x", output_type=Person))
Agent("openai:x", output_type=Person, limitz=3)  # pyright: ignore[reportArgumentType]
