"""YAML that others wrote: places are known, and no file can do more than be refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.yaml_tree import Node, parse_yaml

MAX_BYTES = 1024 * 1024


def plain(node: Node) -> Any:
    if node.pairs is not None:
        return {key: plain(value) for key, (_, value) in node.pairs.items()}
    return [plain(item) for item in node.items] if node.items is not None else node.value


def parsed(text: str) -> Any:
    return plain(parse_yaml(text.encode(), "f.yaml"))


def test_scalars_have_the_types_that_people_expect() -> None:
    text = """
    a: 10
    b: 1_000
    c: 0x1F
    d: -3
    e: 1.5
    f: 1e3
    g: yes
    h: Off
    i: ~
    j:
    k: "10"
    l: 2026-11-21
    m: 010
    n: 12:30:45
    o: .inf
    p: 'true'
    q: "-"
    """
    assert parsed(text) == {
        "a": 10,
        "b": 1000,
        "c": 31,
        "d": -3,
        "e": 1.5,
        "f": 1000.0,
        "g": True,
        "h": False,
        "i": None,
        "j": None,
        "k": "10",
        "l": "2026-11-21",
        "m": "010",
        "n": "12:30:45",
        "o": ".inf",
        "p": "true",
        "q": "-",
    }


def test_keys_are_text_as_they_stand() -> None:
    assert parsed("on: 1\nno: 2\n1: 3") == {"on": 1, "no": 2, "1": 3}


def test_every_value_knows_its_place() -> None:
    root = parse_yaml(b"a: 1\nb:\n  - x\n  - yy: 2\n", "dir/f.yaml")
    assert root.pairs is not None
    items = root.pairs["b"][1].items
    assert items is not None and [item.where for item in items] == [
        "dir/f.yaml:3:5",
        "dir/f.yaml:4:5",
    ]


def test_an_empty_file_is_an_empty_mapping() -> None:
    assert parsed("") == parsed("# nothing\n") == parsed("---\n") == parsed("\ufeff") == {}


def test_aliases_give_the_value_they_name() -> None:
    assert parsed("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def bomb() -> str:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


REFUSED = {
    "tab": ("a: 1\n\tb: 2", "f.yaml:2:1: not YAML"),
    "unclosed": ("a: [1, 2\nb: 3", "f.yaml:2:2: not YAML"),
    "duplicate": ("a: 1\nb: 2\na: 3", "f.yaml:3:1: found `a` a second time (first in line 1)"),
    "key that is a list": ("? [a]\n: 1", "f.yaml:1:3: found a key that is not text"),
    "tag": ("a: !!python/object/apply:os.system [x]", "f.yaml:1:4: found the tag"),
    "two documents": ("a: 1\n---\nb: 2", "f.yaml:3:1: found a second document"),
    "alias to itself": ("a: &a [*a]", "f.yaml:1:8: found `*a` refers to itself"),
    "alias to nothing": ("a: *b", "f.yaml:1:4: "),
    "bomb": (bomb(), "found more than"),
    "deep": ("[" * 900, "f.yaml:1:34: found nested deeper than 32 levels"),
    "deep mappings": ("{a: " * 100_000, "found nested deeper than 32 levels"),
    "wide": ("[" + "1," * 30_000 + "]", "found more than 20000 values"),
    "long": ("#" * (MAX_BYTES + 1), "the limit is"),
    "control character": ("a: \x00", "f.yaml"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_used_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_yaml(text.encode(), "f.yaml")
    assert message in found.value.detail


def test_bytes_that_are_no_text_are_named_by_line() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:2:1: not UTF-8 at byte 8"):
        parse_yaml(b"a: 1\nb: \xff", "f.yaml")


def test_brackets_without_end_do_not_end_the_process() -> None:
    code = (
        "from ferrule.storage.settings.yaml_tree import parse_yaml\ntry:\n "
        "parse_yaml(b'['*1000000, 'f')\nexcept Exception as e: print(type(e).__name__)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "ConfigError\n")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_tree_or_a_config_error(data: bytes) -> None:
    try:
        parse_yaml(data, "f.yaml")
    except ConfigError as error:
        assert error.detail.startswith("f.yaml")


@pytest.mark.parametrize("word", ["E0", ".e1", "-e5", ".", "-.", "+", "e", "1e", "_1"])
def test_what_only_looks_like_a_number_is_text(word: str) -> None:
    assert parse_yaml(f"a: {word}\n".encode(), "f").pairs["a"][1].value == word


@pytest.mark.parametrize("number", [-1000000000000000001, 2**64 - 1, -(2**63), 0xFFFFFFFFFFFFFFFF])
def test_whole_numbers_of_64_bits_stay_exact(number: int) -> None:
    value = parse_yaml(f"a: {number}\n".encode(), "f").pairs["a"][1].value
    assert (type(value), value) == (int, number)


def test_comments_of_a_json_file_are_skipped_and_places_stay() -> None:
    text = b'{\n // one: "x"\n "url": "http://a.example/*", /* two\n lines */ "n": 5 // five\n}'
    tree = parse_yaml(text, "settings.json")
    assert plain(tree) == {"url": "http://a.example/*", "n": 5}
    assert tree.pairs is not None
    assert tree.pairs["n"][1].where == "settings.json:4:16"


def test_slashes_in_yaml_are_text() -> None:
    for name in ("settings.yaml", "settings.json"):
        assert plain(parse_yaml(b"a: http://b\n", name)) == {"a": "http://b"}
