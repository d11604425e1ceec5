"""Every promise has a test, every test that claims one claims a real one, and every place that
promised is answered.

`tests/promises.yaml` is the list of promises: what a user relies on. `tests/promise_sources/*.yaml`
are the places that promise behaviour, in our own words: each names the promises that keep it, or the
tests that show it, or says `later` with the reason, which is a debt and is counted.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from source import ROOT

sys.path.insert(0, str(ROOT / "docs"))

from made_promises import TITLES, Claim, claims, entries

TESTS = ROOT / "tests"
MANIFEST = TESTS / "promises.yaml"
SOURCES = sorted((TESTS / "promise_sources").glob("*.yaml"))


# Read by the tests and not by the import: every worker imports this file, and one of them runs it.
@cache
def promises() -> list[dict[str, Any]]:
    return entries(MANIFEST)


@cache
def ids() -> frozenset[str]:
    return frozenset(entry["id"] for entry in promises())


@cache
def claimed() -> list[Claim]:
    return list(claims())


def test_a_promise_has_an_id_a_sentence_and_a_source() -> None:
    wrong = [
        entry
        for entry in promises()
        if set(entry) != {"id", "promise", "source"} or not all(map(str.strip, entry.values()))
    ]
    assert wrong == []


def test_no_id_is_used_twice() -> None:
    assert [
        name for name, count in Counter(entry["id"] for entry in promises()).items() if count > 1
    ] == []


def test_the_list_is_sorted() -> None:
    names = [entry["id"] for entry in promises()]
    assert names == sorted(names)


def test_every_promise_has_a_test() -> None:
    missing = sorted(ids() - {claim.promise for claim in claimed()})
    assert not missing, "promised and not proved:\n" + "\n".join(missing)


def test_every_claim_is_about_a_promise() -> None:
    unknown = sorted(
        {f"{claim.promise} ({claim.where})" for claim in claimed() if claim.promise not in ids()}
    )
    assert not unknown, "proved and not promised:\n" + "\n".join(unknown)


KEYS = {"place", "promises", "tests", "later", "reason"}


def is_test(name: str) -> bool:
    """Whether there is a test `file::function`, the file from `tests/`."""
    file, _, function = name.partition("::")
    return function in read_test_names(f"tests/{file}")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_place_that_promises_is_answered(path: Path) -> None:
    wrong: list[str] = []
    for place in entries(path):
        named = place.get("promises") or []
        tests = place.get("tests") or []
        later = place.get("later")
        if not str(place.get("place", "")).strip() or set(place) - KEYS:
            wrong.append(f"{place}: not a place")
        elif later is not None and (later is not True or not str(place.get("reason", "")).strip()):
            wrong.append(f"{place['place']}: `later: true` needs a reason")
        elif not named and not tests and not later:
            wrong.append(f"{place['place']}: no promise keeps it, and no test shows it")
        wrong += [
            f"{place['place']}: there is no promise `{name}`" for name in named if name not in ids()
        ]
        wrong += [
            f"{place['place']}: there is no test `{name}`" for name in tests if not is_test(name)
        ]
    assert not wrong, "\n".join(wrong)


def test_places_for_later_are_counted() -> None:
    places = [(path.name, place) for path in SOURCES for place in entries(path)]
    later = [f"{name}: {place['place']}" for name, place in places if place.get("later")]
    print(
        f"{len(promises())} promises, {len(claimed())} claims, {len(places)} places, "
        f"{len(later)} of them for later"
    )
    assert len(later) < len(places) / 2, "most of what was promised is put off"


def test_the_sources_are_all_there() -> None:
    assert {path.stem for path in SOURCES} == set(TITLES)


def read_claims() -> dict[str, list[str]]:
    """The rows of the tables of pages that name the test of each claim."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        is_inside = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("| test that breaks |"):
                is_inside = True
            elif not line.startswith("|"):
                is_inside = False
            elif is_inside and not line.startswith("|--"):
                found.setdefault(path.name, []).append(line)
    return found


def test_each_claim_of_a_page_names_tests_that_exist() -> None:
    claims = read_claims()
    assert len(claims["security.md"]) > 30 and sum(map(len, claims.values())) >= 120
    for page, rows in claims.items():
        for row in rows:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            claim, tests = cells[0], cells[-1]
            assert claim.endswith(".") and (len(cells) == 2 or cells[1]), f"{page}: {row}"
            named = re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", tests)
            assert named and "".join(f"`{file}::{name}`" for file, name in named) == (
                tests.replace(", ", "")
            ), f"{page}: {row}"
            for file, name in named:
                assert name in read_test_names(file), f"{page}: {file} has no `{name}`"


@cache
def read_test_names(file: str) -> frozenset[str]:
    """The names of the test functions and classes of a file; none if there is no such file."""
    if not (ROOT / file).is_file():
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
