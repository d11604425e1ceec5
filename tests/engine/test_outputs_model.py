"""Typed answers of the embedded model."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from ferrule import Agent, ModelOptions, Storage


@dataclass
class Person:
    name: str
    age: int
    city: str
    job: str
    married: bool


@pytest.mark.model
def test_the_embedded_model_fills_a_flat_schema_by_grammar() -> None:
    agent = Agent(
        "local:smollm2",
        output_type=Person,
        model_options=ModelOptions(temperature=0, max_tokens=120),
        storage=Storage(journal=":memory:"),
    )
    text = "Ada Brown is 36 years old, married, and works as a teacher in Ghent."
    result = agent.run_sync(text)
    assert isinstance(result.output, Person)
    assert len(fields(Person)) == 5
    assert (result.output.age, result.output.city, result.turns) == (36, "Ghent", 1)
    assert result.output.name.startswith("Ada")
