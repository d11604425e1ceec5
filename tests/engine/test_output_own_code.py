"""A typed answer survives its own JSON, and values that are arriving run nobody's code."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
)

from ferrule import Agent, PartialOutput, Scripted, SubAgent, ask_agent, tool
from ferrule.engine.output.own_code import runs_own_code
from ferrule.plugins import Parts
from ferrule.testing import calls, says
from ferrule.tools.context import Context


class Aliased(BaseModel):
    first: str = Field(alias="firstName")


class Deep(BaseModel):
    x: int = Field(validation_alias=AliasPath("a", 0))


class Secret(BaseModel):
    password: SecretStr


class Excluding(BaseModel):
    a: int
    b: int = Field(exclude=True)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field
    @property
    def twice(self) -> int:
        return self.a * 2


class Cents(BaseModel):
    cents: int

    @field_serializer("cents")
    def as_euros(self, value: int) -> float:
        return value / 100


class Tenfold(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def multiply(cls, value: int) -> int:
        return value * 10


@dataclass
class Scaled:
    a: int
    factor: InitVar[int] = 2
    scaled: int = field(init=False, default=0)

    def __post_init__(self, factor: int) -> None:
        self.scaled = self.a * factor


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (Aliased, '{"firstName":"ada"}'),
        (Deep, '{"a":[4]}'),
        (Secret, '{"password":"hunter2"}'),
        (Excluding, '{"a":1,"b":2}'),
        (Strict, '{"a":1}'),
        (Cents, '{"cents":1250}'),
        (Tenfold, '{"number":3}'),
        (Scaled, '{"a":2,"factor":5}'),
        (list[Tenfold], '{"value":[{"number":3}]}'),
    ],
)
def test_the_answer_of_a_sub_agent_is_the_value_that_it_had_there(kind: Any, answer: str) -> None:
    received: list[Any] = []

    @tool
    async def look(context: Context) -> str:
        """Look."""
        received.append((await ask_agent(context, "go", "sub", output_type=kind))["answer"])
        return "ok"

    alone = Agent(Scripted([says(answer)]), output_type=kind).run_sync("go").output
    sub = SubAgent("sub", "Sub.", "You.", output_type=kind)
    model = Scripted([calls(("look", {})), says(answer), says("done")])
    Agent(model, [look], plugins=[Parts(agents=[sub])]).run_sync("go")
    assert received == [alone]


RUN: list[str] = []


def note(value: Any) -> Any:
    RUN.append(f"validator of {value}")
    return value


class Line(BaseModel):
    what: str
    price: Annotated[float, AfterValidator(note)]
    tags: list[str] = Field(default_factory=lambda: note([]))
    _gross: float = PrivateAttr(0)

    def model_post_init(self, context: Any) -> None:
        RUN.append("post init")
        self._gross = self.price * 1.2


@dataclass
class Point:
    x: int
    y: int

    def __post_init__(self) -> None:
        RUN.append(f"post init of {self.x} {self.y}")


class Order(BaseModel):
    lines: list[Line]
    by: dict[str, Point]
    first: Line | None = None


async def test_no_code_of_a_type_runs_before_the_answer_is_whole() -> None:
    answer = (
        '{"lines":[{"what":"four wheels of a car","price":2.5},{"what":"a door of it","price":3}],'
        '"by":{"a b c":{"x":1,"y":2},"d e f":{"x":3,"y":4}},"first":{"what":"b c d","price":1}}'
    )
    RUN.clear()
    whole = Order.model_validate_json(answer)
    once = list(RUN)
    RUN.clear()
    partial = 0
    async for event in Agent(Scripted([says(answer)]), output_type=Order).stream("go"):
        if isinstance(event, PartialOutput) and not event.final:
            partial += 1
            shown = event.output
        elif isinstance(event, PartialOutput):
            assert event.output == whole
    assert partial > 2
    assert shown.lines[0].what == "four wheels of a car"
    assert shown.lines[0]._gross == 0
    assert once == RUN, "the code runs for the whole answer, once"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (int, False),
        (list[dict[str, int]], False),
        (Aliased, False),
        (Tenfold, True),
        (Cents, True),
        (Point, True),
        (Order, True),
        (dict[str, Point | None], True),
        (Annotated[int, AfterValidator(note)], True),
        (Annotated[int, Field(ge=0)], False),
    ],
)
def test_which_types_run_code(kind: Any, expected: bool) -> None:
    assert runs_own_code(kind) is expected
