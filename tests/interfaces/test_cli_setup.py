"""`ferrule setup`, and the first run of somebody who never chose a model."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import gateways
import pytest

from ferrule.storage.settings.settings import load_settings
from ferrule.storage.settings.writing import write_setting

PASTED_KEY = "sk-" + "a1" * 24
MAIN = "import sys; from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()"


@pytest.fixture(autouse=True)
def no_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")


def at_a_terminal(words: list[str], environment: dict[str, str], *typed: bytes) -> tuple[int, str]:
    """`ferrule` at a terminal; one line is typed for each question."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    lines = list(typed)
    questions = 0
    seen = b""
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as running:
        os.close(theirs)
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            seen += piece
            if seen.count(b"q to leave): ") > questions and lines:
                questions += 1
                os.write(ours, lines.pop(0))
        code = running.wait(timeout=60)
    os.close(ours)
    return code, seen.decode().replace("\r\n", "\n")


def test_the_first_run_at_a_terminal_asks_once_and_the_next_not_at_all(
    folder: Path, own_folders: Path, environment: dict[str, str]
) -> None:
    with gateways.served(gateways.litellm()) as url:
        environment |= {"OPENAI_API_KEY": gateways.KEY, "OPENAI_BASE_URL": f"{url}/v1"}
        environment["NO_COLOR"] = "1"
        words = ["run", "--allow", "Read", "What does the note say?"]
        code, screen = at_a_terminal(words, environment, b"\n")
        assert (code, screen.count("q to leave")) == (0, 1)
        assert "openai:house-model" in screen and "the key in OPENAI_API_KEY is accepted" in screen
        assert screen.endswith("It says: one, two.\n")
        assert load_settings().model == "openai:house-model"
        # Another shell does not know the address any more.
        del environment["OPENAI_BASE_URL"]
        assert load_settings().provider("openai").base_url == f"{url}/v1"
        code, screen = at_a_terminal(words, environment)
        assert code == 0 and "q to leave" not in screen


def test_who_leaves_the_question_goes_on_with_what_was_found(
    folder: Path, environment: dict[str, str]
) -> None:
    with gateways.served(gateways.litellm()) as url:
        environment |= {"OPENAI_API_KEY": gateways.KEY, "OPENAI_BASE_URL": f"{url}/v1"}
        words = ["run", "--allow", "Read", "What does the note say?"]
        code, screen = at_a_terminal(words, environment, b"q\n")
    assert code == 0 and "no model is set: using `openai:house-model`" in screen
    assert load_settings().model == ""


def test_the_dialogue_never_hides_the_cursor(folder: Path, environment: dict[str, str]) -> None:
    """So nothing has to be put right after Ctrl-C."""
    _, screen = at_a_terminal(["setup"], environment, b"q\n")
    assert "q to leave" in screen and "\x1b[?" not in screen


def test_wrong_answers_are_explained_and_asked_again(
    folder: Path, environment: dict[str, str]
) -> None:
    with gateways.served(gateways.litellm()) as url:
        environment |= {"OPENAI_API_KEY": gateways.KEY, "OPENAI_BASE_URL": f"{url}/v1"}
        answers = (
            b"gpt-5\n",
            b"claud:x\n",
            b"3\n",
            PASTED_KEY.encode() + b"\n",
            b"openai:mistyped\n",
            b"openai:mistyped\n",
        )
        code, screen = at_a_terminal(["setup"], environment, *answers)
    assert code == 0
    assert "for example `openai:gpt-5`" in screen
    assert "there is no 3 in the list, which ends at 2" in screen
    # Once: what the terminal echoes.
    assert screen.count(PASTED_KEY) == 1 and "that looks like a key" in screen
    assert "write `provider:model`" in screen and "did you mean `anthropic`" in screen
    assert screen.count("`mistyped` is not among the models") == 2
    assert load_settings().model == "openai:mistyped"


def test_a_key_that_is_refused_is_not_written_down(
    ferrule: Any, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateways.served(gateways.openai()) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "wrong")
        ran = ferrule("setup", "--model", "openai:house-model")
        assert (ran.code, "OPENAI_API_KEY is refused" in ran.err) == (6, True)
        assert not (own_folders / "config/ferrule.yaml").exists()
        monkeypatch.setenv("OPENAI_API_KEY", gateways.KEY)
        assert ferrule("setup", "--model", "openai:house-model").code == 0
    text = (own_folders / "config/ferrule.yaml").read_text()
    assert text.startswith('model: "openai:house-model"\n') and gateways.KEY not in text


def test_a_key_is_checked_where_the_list_of_models_is_public(
    ferrule: Any, monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    gateway = gateways.openrouter()
    with gateways.served(gateway) as url:
        file = own_folders / "config/ferrule.yaml"
        file.parent.mkdir()
        file.write_text(f"providers: {{openrouter: {{base_url: '{url}/api/v1'}}}}\n")
        monkeypatch.setenv("OPENROUTER_API_KEY", gateways.KEY)
        assert ferrule("setup", "-m", "openrouter:house/model").code == 0
    assert not gateway.asked, "the check costs nothing"


def test_without_a_terminal_nothing_is_asked(ferrule: Any, script: Any) -> None:
    ran = ferrule("setup")
    assert ran.code == 2 and "--model" in ran.err and "--yes" in ran.err


def test_a_run_without_a_model_says_in_one_line_which_it_takes(
    folder: Path, ferrule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateways.served(gateways.openai()) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", gateways.KEY)
        ran = ferrule("run", "--allow", "Read", "What does the note say?")
    assert ran.code == 0
    lines = [line for line in ran.err.splitlines() if "no model is set" in line]
    assert len(lines) == 1 and "`openai:house-model`" in lines[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'model: "a:b"\n'),
        ("mode: plan\n", 'mode: plan\nmodel: "a:b"\n'),
        ("# mine\nmodel: x:y # why\nmode: plan\n", '# mine\nmodel: "a:b"\nmode: plan\n'),
        ('# about it\n#model: null\nmode: "plan"', '# about it\nmodel: "a:b"\nmode: "plan"'),
        ("limits:\n  max_turns: 3", 'limits:\n  max_turns: 3\nmodel: "a:b"\n'),
    ],
)
def test_one_line_of_the_settings_changes_and_no_other(
    tmp_path: Path, before: str, after: str
) -> None:
    file = tmp_path / "config/ferrule.yaml"
    file.parent.mkdir()
    file.write_text(before)
    write_setting(file, "model", "a:b")
    assert file.read_text() == after


@pytest.mark.parametrize("before", ["model: >-\n  folded\n  text\n", "{mode: plan}\n"])
def test_a_file_that_one_line_cannot_change_is_left_alone(tmp_path: Path, before: str) -> None:
    file = tmp_path / "ferrule.yaml"
    file.write_text(before)
    with pytest.raises(Exception, match=r"ferrule\.yaml"):
        write_setting(file, "model", "a:b")
    assert file.read_text() == before


def test_a_model_that_the_server_does_not_have_is_not_written_where_nobody_can_confirm_it(
    ferrule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateways.served(gateways.litellm()) as url:
        monkeypatch.setenv("OPENAI_API_KEY", gateways.KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        done = ferrule("setup", "--model", "openai:mistyped")
    assert done.code == 2
    assert "`mistyped` is not among the models that `openai` lists: " in done.err
    assert load_settings().model == ""


def test_addresses_in_the_settings_are_not_changed(
    ferrule: Any, monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    file = own_folders / "config/ferrule.yaml"
    with gateways.served(gateways.litellm()) as url:
        monkeypatch.setenv("OPENAI_API_KEY", gateways.KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("providers:\n  groq: {base_url: https://groq.example}\n")
        done = ferrule("setup", "--model", "openai:house-model")
    assert done.code == 0
    assert f"write `base_url: {url}/v1` below `providers: openai:`" in done.err
    assert load_settings().provider("openai").base_url == ""
