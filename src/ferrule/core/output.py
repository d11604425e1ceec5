"""Typed answers, as the machine sees them: what is asked for, and the answers that did not fit.

The machine knows no types. It has an answer checked (`commands.CheckOutput`), reads what came of it
(`events.OutputChecked`), and decides whether the model is asked again.
"""

from __future__ import annotations

from .value_class import frozen

OUTPUT_RETRIES = 2
"""How often a value that does not fit goes back to the model, unless the agent says otherwise."""

OUTPUT_INVALID_CODE = "output_invalid"
"""The error code of a run in which no answer fitted."""

CUT_PROBLEM = "the answer was cut at the model's output limit; give a shorter one"
"""The problem of an answer that was cut. It is never checked: its end would be a guess."""

NOT_TAKEN = "The value was not taken: it came beside calls whose results were not known yet."
"""What the model reads after an answer with both calls and a value."""


@frozen
class OutputRequest:
    """What a run must end with: a value that fits a JSON Schema, given as compact JSON.

    `retries` is how often an answer that does not fit goes back to the model.
    """

    schema: str
    retries: int = OUTPUT_RETRIES


@frozen
class OutputAttempt:
    """An answer that did not fit, and why: a sentence for each problem."""

    text: str
    problems: tuple[str, ...]


def describe_problems(problems: tuple[str, ...]) -> str:
    """Return the message that sends an answer back to the model."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"That answer does not fit:\n{listed}\nGive the whole value again, corrected."


def describe_last_answer(request: OutputRequest) -> str:
    """Return the message before the last answer of a run that has reached its limit."""
    return (
        "No more tools can be called. Answer now, with one JSON value that fits this JSON Schema "
        f"and nothing else:\n{request.schema}"
    )


def describe_failure(attempts: list[OutputAttempt]) -> str:
    """Return why a run ended without a value that fits, for people."""
    count = len(attempts)
    tried = "1 answer" if count == 1 else f"{count} answers"
    return f"no value that fits after {tried}; the last one: {'; '.join(attempts[-1].problems)}"
