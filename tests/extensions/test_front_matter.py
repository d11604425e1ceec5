"""Front matter: where it begins and ends, and that every error names file, line and column."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.extensions.front_matter import parse_document, to_plain
from ferrule.extensions.tool_files.tool_file import parse_tool

CASES = int(os.environ.get("FERRULE_FILE_CASES", "250"))
"""How many files a property is tried with. `make lab NAME=files` asks for 100,000."""

LOTS = settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_front_matter_and_body_are_told_apart() -> None:
    document = parse_document(b"---\na: 1\nb: [x, y]\n---\n\n# Title\n\n---\n\nMore\n", "t.md")
    assert to_plain(document.fields) == {"a": 1, "b": ["x", "y"]}
    assert document.body == "# Title\n\n---\n\nMore"


@pytest.mark.parametrize(
    "text",
    [
        "---\na: 1\n---\nbody",
        "\ufeff---\na: 1\n---\nbody",
        "\n\n  \n---\na: 1\n---\nbody",
        "---  \r\na: 1\r\n---\r\nbody\r\n",
    ],
)
def test_marks_may_have_white_space_and_a_byte_order_mark(text: str) -> None:
    document = parse_document(text.encode(), "t.md")
    assert (to_plain(document.fields), document.body) == ({"a": 1}, "body")


def test_a_line_of_dashes_inside_a_script_does_not_close_it() -> None:
    document = parse_document(b"---\nscript: |\n  ---\n  x\n---\nbody", "t.md")
    assert (to_plain(document.fields), document.body) == ({"script": "---\nx\n"}, "body")


@pytest.mark.parametrize(
    "words",
    [
        "Use when: asked about PDFs",
        "Reviews code. Examples: <example>user: hi</example>",
        "`grep` made easy: for everyone",
        "`grep` made easy",
        "@reviewer looks at it",
        "**Must be used** for releases",
        "[beta] writes notes",
        '100%: all of it: "really" \\ yes',
        "% of lines covered",
        "ends with a colon:",
    ],
)
def test_words_that_only_yaml_takes_for_syntax_are_text(words: str) -> None:
    text = f"---\nname: a\ndescription: {words}\ntools: [x, y]\n---\nbody"
    document = parse_document(text.encode(), "t.md")
    assert to_plain(document.fields) == {"name": "a", "description": words, "tools": ["x", "y"]}
    assert document.body == "body"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("# Title\n", "t.md:1:1", "no front matter"),
        ("", "t.md:1:1", "no front matter"),
        ("---\na: 1\n", "t.md:1:1", "not closed"),
        ("\n\n---\na: 1\n", "t.md:3:1", "not closed"),
        ("---\na: 1\nb: [\n---\n", "t.md:4:1", "not YAML"),
        ("---\na: 1\na: 2\n---\n", "t.md:3:1", "a second time"),
        ("---\n- a\n---\n", "t.md:2:1", "must be a mapping"),
        ("---\na: !!python/object:os.system x\n---\n", "t.md:2:4", "tag"),
        ("---\n\n\na: *x\n---\n", "t.md:4:4", "x"),
        ("---\na: 1\n---\n\udcff", "t.md:4:1", "UTF-8"),
        ("---\na: \udcff\n---\n", "t.md:2:1", "UTF-8"),
    ],
)
def test_an_error_names_its_place(text: str, place: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document(text.encode("utf-8", "surrogateescape"), "t.md")
    assert caught.value.detail.startswith(place)
    assert said in caught.value.detail


@pytest.mark.parametrize(
    "data",
    [
        b"---\na: " + b"[" * 100_000 + b"\n---\n",
        b"---\n"
        + b"a: &a ["
        + b"1," * 100
        + b"]\n"
        + b"".join(
            b"b%d: &b%d [*%b]\n" % (n, n, b", *".join([b"a" if n == 0 else b"b%d" % (n - 1)] * 9))
            for n in range(9)
        )
        + b"\n---\n",
        b"---\na: 1\n---\n" + b"x" * 1_100_000,
    ],
    ids=["brackets", "aliases", "long"],
)
def test_files_that_would_take_everything_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"t\.md"):
        parse_document(data, "t.md")


KEYS = st.sampled_from(
    [
        "parameters",
        "script",
        "timeout_ms",
        "async",
        "strict",
        "side_effect",
        "risk",
        "network",
        "examples",
        "tests",
        "x",
    ]
)
SCALARS = st.sampled_from(
    [
        "",
        "1",
        "-1",
        "true",
        "text",
        "'quoted'",
        "[a, b]",
        "{ a: { type: string } }",
        "{a: 1}",
        "|\n  def run(args):\n      return 1",
        "&x [1]",
        "*x",
        "!t x",
        "2001-01-01",
        "[{arguments: {}}]",
    ]
)
LINES = st.one_of(
    st.tuples(KEYS, SCALARS).map(lambda pair: f"{pair[0]}: {pair[1]}"),
    st.sampled_from(["---", "", "  - a", "# comment", "\t", "}", "? x"]),
    st.text(max_size=12),
)
FILES = st.lists(LINES, max_size=8).map(lambda lines: "---\n" + "\n".join(lines) + "\n---\nBody\n")


@LOTS
@given(
    st.one_of(
        FILES.map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.binary(max_size=80),
        FILES.map(lambda text: text.encode("utf-16")),
    )
)
@example(b"---\nparameters:\n---\n")
@example("---\nnetwork: [ß.de]\n---\n".encode())
def test_whatever_a_file_holds_it_is_a_tool_or_an_error_that_names_it(data: bytes) -> None:
    try:
        found = parse_tool(data, "t.md")
    except ConfigError as error:
        assert error.detail.startswith("t.md"), error.detail
    else:
        assert found.name == "t"
        assert found.description


@LOTS
@given(st.lists(st.sampled_from(["", "# comment", "strict: true"]), max_size=6, unique=True))
def test_a_place_is_counted_in_the_whole_file(above: list[str]) -> None:
    text = "\n".join(["---", *above, "timeout_ms: -5", "---", ""])
    with pytest.raises(ConfigError) as caught:
        parse_tool(text.encode(), "t.md")
    assert caught.value.detail.startswith(f"t.md:{len(above) + 2}:13: ")
