"""What a misspelled name may mean."""

from __future__ import annotations

from ferrule.core.similar_names import find_similar_names, suggest_names

KNOWN = ["read_file", "write_file", "ls", "Bash"]


def test_the_most_similar_names_come_first_in_their_own_spelling() -> None:
    assert find_similar_names("readfile", KNOWN, count=2) == ["read_file", "write_file"]
    assert find_similar_names("BASH", KNOWN) == ["Bash"]
    assert find_similar_names("zzz", KNOWN) == []
    assert find_similar_names("modle", ["mode", "model"]) == ["model"], "two letters swapped"


def test_a_suggestion_is_a_question_and_else_what_the_caller_says() -> None:
    question = "did you mean `read_file` or `write_file`?"
    assert suggest_names("readfile", KNOWN, count=2) == question
    assert suggest_names("zzz", KNOWN, "`--help` lists them") == "`--help` lists them"


def test_a_name_of_a_megabyte_is_compared_by_its_beginning() -> None:
    assert find_similar_names("read_file" + "e" * 1_000_000, ["read_file" + "e" * 191]) == [
        "read_file" + "e" * 191
    ]
