"""What partial values of a long answer cost, beside one validation and beside Pydantic AI's.

    python -m outputs.partial            both, each in its environment, in turn
    python -m outputs.partial --measure ferrule|pydantic-ai

An answer of 200 KB arrives in pieces. Ferrule parses what it has not cut out of the text when that has
grown by a share of itself; Pydantic AI validates the whole text so far whenever it gives a value: by default ten times a second,
and without `debounce_by` for every piece. Times are CPU times, the least of several.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict

BYTES = 200_000
PIECE = 40
"""Characters of a piece: about ten tokens."""
SECONDS = 20
"""How long such an answer may take to arrive."""
ROUNDS = 5
MOST = 2.0
"""How many validations the partial values may cost."""


class Line(TypedDict, total=False):
    """A typed dict, since Pydantic validates no part of a model."""

    text: str
    count: int
    price: float
    tags: list[str]


class Order(TypedDict, total=False):
    number: str
    lines: list[Line]


class LineModel(BaseModel):
    text: str
    count: int
    price: float
    tags: list[str]


class OrderModel(BaseModel):
    number: str
    lines: list[LineModel]


def write_order() -> str:
    """Return an order of about 200 KB."""
    lines: list[dict[str, Any]] = []
    size = 0
    while size < BYTES:
        place = len(lines)
        tags = [f"tag {place % 7}", "grün"]
        line = {
            "text": f"article {place}, as new",
            "count": place,
            "price": place / 8,
            "tags": tags,
        }
        lines.append(line)
        size += len(json.dumps(line).encode()) + 2
    return json.dumps({"number": "A-17", "lines": lines}, ensure_ascii=False)


def time_best(work: Callable[[], object], rounds: int) -> float:
    """Return the least CPU time of several rounds, in milliseconds."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1000


def list_pieces(text: str) -> list[str]:
    """Return the pieces in which an answer arrives."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


class Delivery(BaseModel):
    orders: list[OrderModel]


class Letter(BaseModel):
    title: str
    body: str


def list_shapes(text: str) -> dict[str, tuple[Any, str]]:
    """Return other shapes of answers that are as long, by what they are: the type and the text."""
    lines: list[dict[str, Any]] = json.loads(text)["lines"]
    orders = [{"number": "A", "lines": lines[at : at + 40]} for at in range(0, len(lines), 40)]
    shapes: dict[str, tuple[Any, Any]] = {
        "a map of objects": (dict[str, LineModel], {f"k{line['count']}": line for line in lines}),
        "lists in a list": (Delivery, {"orders": orders}),
        "one long list in a list": (Delivery, {"orders": [{"number": "A", "lines": lines}]}),
        "numbers": (list[float], [number / 7 for number in range(11_000)]),
        "one text": (Letter, {"title": "x", "body": "word and word, \n" * 12_000}),
    }
    return {name: (hint, json.dumps(value)) for name, (hint, value) in shapes.items()}


def measure_ferrule(text: str) -> dict[str, float]:
    """Return the times of one validation and of all partial values, and how many these are."""
    found = _measure_type(text, Order)
    shapes = {"models": (OrderModel, text), **list_shapes(text)}
    for name, (hint, shaped) in shapes.items():
        measured = _measure_type(shaped, hint)
        found |= {f"{name}, {label}": value for label, value in measured.items()}
    return found | {"taking pieces in": _measure_taking(list_pieces(text))}


def _measure_taking(pieces: list[str]) -> float:
    """Return the time of one call for each piece that keeps it and looks whether it is enough."""

    class Taking:
        def __init__(self) -> None:
            self.pieces: list[str] = []
            self.length = 0
            self.enough = 1 << 30

        def add(self, piece: str) -> bool:
            self.pieces.append(piece)
            self.length += len(piece)
            return self.length >= self.enough

    return time_best(lambda: list(map(Taking().add, pieces)), 15)


def _measure_type(text: str, asked: Any) -> dict[str, float]:
    from ferrule.engine.output.output_type import parse_output_type
    from ferrule.engine.output.partial_conversion import NOTHING
    from ferrule.engine.output.partial_values import PartialValues

    adapter: TypeAdapter[Any] = TypeAdapter(asked)
    output = parse_output_type(asked)
    assert output is not None
    pieces = list_pieces(text)
    values: list[Any] = []

    def stream() -> None:
        partial = PartialValues(output)
        values.clear()
        values.extend(one for one in map(partial.add, pieces) if one is not NOTHING)

    once = time_best(lambda: adapter.validate_json(text), 15)
    partial = time_best(stream, 15)
    got = adapter.dump_python(values[-1], warnings=False)
    whole = adapter.dump_python(adapter.validate_json(text))
    if asked in (Order, OrderModel):
        count = len(got["lines"]) - 1
        assert count > 500
        assert got["lines"][:count] == whole["lines"][:count]
    return {"once": once, "values": len(values), "all values": partial}


def measure_pydantic_ai(text: str, values: int) -> dict[str, float]:
    """Return the times of its own validation of what has come: so many times, ten a second, always."""
    from pydantic_ai._output import ObjectOutputProcessor

    processor: Any = ObjectOutputProcessor(output=Order)
    assert processor.validate(text) == TypeAdapter(Order).validate_json(text)

    def stream(times: int) -> Callable[[], None]:
        def work() -> None:
            for place in range(1, times + 1):
                try:
                    processor.validate(text[: len(text) * place // times], allow_partial=True)
                except ValidationError:
                    continue

        return work

    pieces = len(list_pieces(text))
    return {
        "once": time_best(lambda: processor.validate(text), 15),
        "values": values,
        "all values": time_best(stream(values), 5),
        "ten a second": time_best(stream(SECONDS * 10), 1),
        "every piece": time_best(stream(pieces // 10), 1) * 10,
    }


def run_measure(program: str, name: str, values: int) -> dict[str, float]:
    """Measure in a process of an environment."""
    command = [program, "-m", "outputs.partial", "--measure", name, "--values", str(values)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def compare() -> bool:
    """Print the figures. Return whether Ferrule's hold."""
    from .peers import find_pythons

    pythons = find_pythons()
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for _ in range(ROUNDS):
        mine = run_measure(pythons["ferrule"], "ferrule", 0)
        ours = {name: min(mine[name], ours.get(name, mine[name])) for name in mine}
        other = run_measure(pythons["pydantic-ai"], "pydantic-ai", int(mine["values"]))
        theirs = {name: min(other[name], theirs.get(name, other[name])) for name in other}
    size = len(write_order().encode())
    count = int(ours["values"])
    lines = [f"{size} bytes in pieces of {PIECE} characters, {ROUNDS} rounds", ""]
    lines += ["| | ms of CPU | validations of the whole |", "|---|--:|--:|"]
    for label, found, name, once in (
        ("models: one validation", ours, "models, once", "models, once"),
        (f"models: ferrule, its {count} values", ours, "models, all values", "models, once"),
        ("typed dicts: one validation", ours, "once", "once"),
        (f"typed dicts: ferrule, its {count} values", ours, "all values", "once"),
        (f"typed dicts: pydantic-ai, {count} values", theirs, "all values", "once"),
        (f"... ten a second (its default) for {SECONDS} s", theirs, "ten a second", "once"),
        ("... one for each piece (a tenth measured)", theirs, "every piece", "once"),
    ):
        lines.append(f"| {label} | {found[name]:.1f} | {found[name] / found[once]:.2f} |")
    for shape in list_shapes(write_order()):
        spent = ours[f"{shape}, all values"]
        label = f"{shape}: ferrule, its {ours[f'{shape}, values']:.0f} values"
        lines.append(f"| {label} | {spent:.1f} | {spent / ours[f'{shape}, once']:.2f} |")
    taken = ours["taking pieces in"]
    lines.append(f"| (taking the pieces in, without any value) | {taken:.1f} | |")
    ratio = ours["models, all values"] / ours["models, once"]
    is_cheaper = ours["all values"] < theirs["all values"]
    lines += ["", f"models: at most {MOST} validations: {'yes' if ratio <= MOST else 'NO'}"]
    lines.append(f"cheaper than pydantic-ai for as many values: {'yes' if is_cheaper else 'NO'}")
    sys.stdout.write("\n".join(lines) + "\n")
    return ratio <= MOST and is_cheaper


def main() -> int:
    """Compare, or measure one. Return 1 if a figure does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=("ferrule", "pydantic-ai"))
    parser.add_argument("--values", type=int, default=0)
    given = parser.parse_args()
    if not given.measure:
        return 0 if compare() else 1
    text = write_order()
    if given.measure == "ferrule":
        found = measure_ferrule(text)
    else:
        found = measure_pydantic_ai(text, given.values)
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
