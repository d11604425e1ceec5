"""Every promise has a test, every test that claims one claims a real one, and every place that promised is answered.

`tests/promises.yaml` is the list of promises. `tests/promise_sources/*.yaml` are the places that promise behaviour, in
our own words: each names the promises that keep it, or says `later` with the reason, which is a debt and is counted.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from source import ROOT

TESTS = ROOT / "tests"
MANIFEST = TESTS / "promises.yaml"
SOURCES = sorted((TESTS / "promise_sources").glob("*.yaml"))


@dataclass(frozen=True)
class Claim:
    """One `@pytest.mark.proves` on one test."""

    promise: str
    where: str


def claims(folder: Path = TESTS) -> Iterator[Claim]:
    """Every promise claimed by a mark, read from the text of the tests: nothing is imported."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _is_mark(node.func):
                for argument in node.args:
                    where = f"{path.relative_to(folder.parent)}:{node.lineno}"
                    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                        raise AssertionError(f"{where}: a promise is named by a plain string")
                    yield Claim(argument.value, where)


def _is_mark(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "proves"
        and ast.unparse(function).endswith("mark.proves")
    )


def load(path: Path) -> list[dict[str, Any]]:
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(entries, list), f"{path.name} is a list"
    return entries


PROMISES = load(MANIFEST)
IDS = {entry["id"] for entry in PROMISES}
CLAIMS = list(claims())
PLACES = [(path.name, place) for path in SOURCES for place in load(path)]


def test_a_promise_has_an_id_a_sentence_and_a_source() -> None:
    wrong = [
        entry
        for entry in PROMISES
        if set(entry) != {"id", "promise", "source"} or not all(map(str.strip, entry.values()))
    ]
    assert wrong == []


def test_no_id_is_used_twice() -> None:
    assert [name for name, count in Counter(entry["id"] for entry in PROMISES).items() if count > 1] == []


def test_the_list_is_sorted() -> None:
    names = [entry["id"] for entry in PROMISES]
    assert names == sorted(names)


def test_every_promise_has_a_test() -> None:
    missing = sorted(IDS - {claim.promise for claim in CLAIMS})
    assert not missing, "promised and not proved:\n" + "\n".join(missing)


def test_every_claim_is_about_a_promise() -> None:
    unknown = sorted({f"{claim.promise} ({claim.where})" for claim in CLAIMS if claim.promise not in IDS})
    assert not unknown, "proved and not promised:\n" + "\n".join(unknown)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_place_that_promises_is_answered(path: Path) -> None:
    wrong: list[str] = []
    for place in load(path):
        named = place.get("promises") or []
        later = place.get("later")
        if not str(place.get("place", "")).strip() or set(place) - {"place", "promises", "later", "reason"}:
            wrong.append(f"{place}: not a place")
        elif later is not None and (later is not True or not str(place.get("reason", "")).strip()):
            wrong.append(f"{place['place']}: `later: true` needs a reason")
        elif not named and not later:
            wrong.append(f"{place['place']}: no promise keeps it")
        wrong += [f"{place['place']}: there is no promise `{name}`" for name in named if name not in IDS]
    assert not wrong, "\n".join(wrong)


def test_places_for_later_are_counted() -> None:
    later = [f"{name}: {place['place']}" for name, place in PLACES if place.get("later")]
    print(
        f"{len(PROMISES)} promises, {len(CLAIMS)} claims, {len(PLACES)} places, {len(later)} of them for later"
    )
    assert len(later) < len(PLACES) / 2, "most of what was promised is put off"


def test_the_sources_are_all_there() -> None:
    assert {path.stem for path in SOURCES} == {
        "harvey",
        "local_harness",
        "llm_tools",
        "design",
        "acceptance",
        "defects",
    }
