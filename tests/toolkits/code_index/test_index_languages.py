"""What the parser finds in each language, and what a hostile source can do to it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from index_samples import SAMPLES

from ferrule.toolkits.code_index.languages import LANGUAGES, find_language, list_installed
from ferrule.toolkits.code_index.parser_process import FileSymbols, parse_contents


def parse(folder: Path, *contents: tuple[str, bytes]) -> list[FileSymbols]:
    directory = os.open(folder, os.O_RDONLY)
    try:
        return asyncio.run(parse_contents(contents, directory=directory))
    finally:
        os.close(directory)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileSymbols]:
    contents = [(name, sample[1].encode()) for name, sample in SAMPLES.items()]
    found = parse(tmp_path_factory.mktemp("parsed"), *contents)
    return dict(zip(SAMPLES, found, strict=True))


def test_every_language_has_a_grammar_and_a_sample() -> None:
    assert set(list_installed()) == set(SAMPLES) == {language.name for language in LANGUAGES}


def test_there_are_16_languages() -> None:
    # TSX is TypeScript with another grammar.
    assert len(set(SAMPLES) - {"tsx"}) == 16


@pytest.mark.parametrize("language", SAMPLES)
def test_definitions_and_uses_are_found(parsed: dict[str, FileSymbols], language: str) -> None:
    name, _, defined, (used, lines) = SAMPLES[language]
    found = parsed[language]
    chosen = find_language(name)
    assert chosen is not None and chosen.name == language
    assert not found.problem
    assert {(one.kind, one.name, one.container) for one in found.definitions} == defined
    assert found.uses is not None
    assert found.uses[used] == lines


def test_a_definition_has_its_extent_and_its_head(parsed: dict[str, FileSymbols]) -> None:
    fill = next(one for one in parsed["python"].definitions if one.name == "fill")
    assert (fill.line, fill.end) == (5, 7)
    assert fill.head == "def fill(self, litres: int = 1) -> None"


def test_a_head_leaves_out_annotations_above_it(tmp_path: Path) -> None:
    source = b'class A {\n  @Override\n  @Since("1")\n  public int level() { return 1; }\n}\n'
    (found,) = parse(tmp_path, ("java", source))
    assert [one.head for one in found.definitions] == ["class A", "public int level()"]


HOSTILE = {
    "deep brackets": b"x = " + b"(" * 20_000,
    "deep lists, closed": b"x = " + b"[" * 50_000 + b"]" * 50_000,
    "deep functions": b"".join(b" " * n + b"def f():\n" for n in range(1200)),
    "one long line": b"x = '" + b"a" * 1_000_000 + b"'",
    "not UTF-8": bytes(range(256)) * 2000,
    "nothing": b"",
    "a name of a megabyte": b"def " + b"f" * 1_000_000 + b"(): pass",
    "many names": b"\n".join(b"n%d = m%d" % (n, n) for n in range(25_000)),
}


def test_hostile_sources_end_in_bounds_and_spoil_nothing_else(tmp_path: Path) -> None:
    started = time.monotonic()
    contents = [("python", content) for content in HOSTILE.values()]
    found = parse(tmp_path, *contents, ("python", b"def after(): ...\n"))
    assert len(found) == len(HOSTILE) + 1
    assert [one.name for one in found[-1].definitions] == ["after"]
    for what, one in zip(HOSTILE, found, strict=False):
        assert len(one.definitions) <= 5000, what
        assert len(one.uses or {}) <= 20_000, what
        assert all(len(part.name) <= 200 and len(part.head) <= 160 for part in one.definitions)
    assert time.monotonic() - started < 100


def test_a_source_that_ends_the_parser_is_named_and_the_rest_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that dies at a certain text, as a grammar with a fault would."""
    from ferrule.toolkits.code_index import parser_process

    script = Path(parser_process.__file__).with_name("parser.py").read_text()
    broken = tmp_path / "parser.py"
    broken.write_text(
        script.replace(
            "        found = _find(",
            "        if b'DIE' in content:\n            os.kill(os.getpid(), 11)\n"
            "        while b'HANG' in content:\n            pass\n        found = _find(",
        ).replace("SECONDS_PER_FILE = 5.0", "SECONDS_PER_FILE = 0.3")
    )
    monkeypatch.setattr(parser_process, "_PARSER", broken)
    found = parse(
        tmp_path,
        ("python", b"a = 1"),
        ("python", b"DIE = 1"),
        ("python", b"b = 1"),
        ("python", b"HANG = 1"),
        ("python", b"c = 1"),
    )
    assert [one.name for each in found for one in each.definitions] == ["a", "b", "c"]
    assert "SIGSEGV" in found[1].problem
    assert "SIGVTALRM" in found[3].problem
