"""`vision::ocr`: the text of an image, read by a confined program, or by a recognizer that the run
was given.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import MissingProtections, choose_backend
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.stdlib import Recognized, Recognizer, Word
from ferrule.toolkits.stdlib.ocr import TOPIC, ocr
from ferrule.toolkits.stdlib.tesseract import parse_words
from ferrule.tools.context import SANDBOX_TOPIC, Context

RECEIPT = Path(__file__).with_name("receipt.png")
needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None, reason="tesseract is not installed"
)


class Spelled(Recognizer):
    """Finds what it was told to find, and remembers what it was asked."""

    def __init__(self, *words: Word) -> None:
        self.words = words
        self.asked: list[tuple[bytes, str]] = []

    async def recognize(self, image: bytes, language: str, context: Context) -> Recognized:
        self.asked.append((image, language))
        return Recognized(self.words, "spelled", "1")


WORDS = (
    Word("Order", (10, 10, 50, 20), 90.0, (1, 1), (1, 1, 1, 1)),
    Word("4711", (70, 12, 40, 20), 80.0, (1, 1), (1, 1, 1, 1)),
    Word("Paid", (10, 40, 40, 20), 70.0, (1, 1), (1, 1, 1, 2)),
    Word("Bye", (10, 200, 30, 20), 60.0, (1, 2), (1, 2, 1, 1)),
)


def can_confine(root: Path) -> bool:
    try:
        choose_backend(SandboxPolicy(root), probe())
    except MissingProtections:
        return False
    return True


def read(
    workspace: Path, image: str, *resources: tuple[type, object], **options: str
) -> tuple[Any, list[tuple[str, str]]]:
    """What the tool gives, and the notes it left."""
    notes: list[tuple[str, str]] = []
    context = Context(
        Identity("t", "u", "s", "r"),
        "call_1",
        resources={Workspace: Workspace(workspace), **dict(resources)},
        note=lambda topic, text: notes.append((topic, text)),
    )
    found = asyncio.run(ocr.handler(image=image, context=context, options=options or None))
    assert ocr.output is not None
    assert ocr.output.encode(found)[1] == []
    return found, notes


@needs_tesseract
def test_tesseract_reads_an_image_into_blocks_lines_and_tokens(workspace: Path) -> None:
    if not can_confine(workspace):
        pytest.skip("this machine cannot confine commands")
    shutil.copy(RECEIPT, workspace / "receipt.png")
    found, notes = read(workspace, "receipt.png")
    assert found["_type"] == "StructuredText"
    assert found["text"] == "Order 4711\nTotal 19.90 EUR\n\nThank you"
    assert [line["text"] for line in found["lines"]] == [
        "Order 4711",
        "Total 19.90 EUR",
        "Thank you",
    ]
    assert [(token["text"], token["block"], token["line"]) for token in found["tokens"]][-2:] == [
        ("Thank", 1, 2),
        ("you", 1, 2),
    ]
    assert found["backend"]["name"] == "tesseract"
    assert found["backend"]["sandbox"] != "none"
    assert all(0 <= edge <= 460 for token in found["tokens"] for edge in token["box"])
    assert [topic for topic, _ in notes] == [SANDBOX_TOPIC, TOPIC]
    assert found["source"]["sha256"] in notes[-1][1]


SHOWN = "/opt"
"""A folder with programs that commands see, and that is not of the system's own package."""

SPY = r"""#!/bin/bash
# Stands where tesseract does and says what it finds, as words of an image.
if [ "$1" = --version ]; then echo "tesseract 5.9.9"; exit; fi
word() { printf '5\t1\t1\t1\t1\t1\t0\t0\t9\t9\t90\t%s\n' "$1"; }
word "image:$(sha256sum | cut -d' ' -f1)"
word "arguments:$*"
word "files:$(ls -A | wc -l)"
word "secret:$(cat WORKSPACE/secret.txt 2>/dev/null || echo hidden)"
touch WORKSPACE/planted 2>/dev/null
(exec 3<>/dev/tcp/127.0.0.1/PORT) 2>/dev/null && word network:reached || word network:none
(dd if=/dev/zero of=large bs=1M count=65 2>/dev/null; word "file:$(stat -c %s large)")
"""


def test_what_recognizes_has_the_image_an_empty_folder_and_nothing_else(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_confine(workspace):
        pytest.skip("this machine cannot confine commands")
    shutil.copy(RECEIPT, workspace / "receipt.png")
    (workspace / "secret.txt").write_text("canary")
    if not os.access(SHOWN, os.W_OK):
        pytest.skip(f"no program can be put where commands see it: {SHOWN} cannot be written")
    with (
        tempfile.TemporaryDirectory(prefix="ferrule-spy-", dir=SHOWN) as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        listener.setblocking(False)
        port = str(listener.getsockname()[1])
        spy = Path(folder) / "tesseract"
        spy.write_text(SPY.replace("WORKSPACE", str(workspace)).replace("PORT", port))
        spy.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        found, _ = read(workspace, "receipt.png")
        with pytest.raises(BlockingIOError):
            listener.accept()
    seen = dict(token["text"].split(":", 1) for token in found["tokens"])
    assert seen == {
        "image": hashlib.sha256(RECEIPT.read_bytes()).hexdigest(),
        "arguments": "stdin stdout -l eng tsv",
        "files": "0",
        "secret": "hidden",
        "network": "none",
        "file": str(64 * 1024 * 1024),
    }
    assert not (workspace / "planted").exists()


@needs_tesseract
def test_a_language_that_is_not_there_and_an_image_that_is_broken_are_said(workspace: Path) -> None:
    if not can_confine(workspace):
        pytest.skip("this machine cannot confine commands")
    shutil.copy(RECEIPT, workspace / "receipt.png")
    with pytest.raises(ToolFailed, match="`xxq`") as missing:
        read(workspace, "receipt.png", language="xxq")
    assert missing.value.error_type == "not_found"
    (workspace / "broken.png").write_bytes(RECEIPT.read_bytes()[:60])
    with pytest.raises(ToolFailed, match="could not read the image") as broken:
        read(workspace, "broken.png")
    assert broken.value.error_type == "io_error"


def test_a_missing_tesseract_is_said_with_the_way_to_install_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(RECEIPT, workspace / "receipt.png")
    monkeypatch.setenv("PATH", str(workspace))
    # One that lies in the workspace is none: a tool may have written it.
    (workspace / "tesseract").write_text("#!/bin/sh\necho trap > trap\n")
    (workspace / "tesseract").chmod(0o755)
    with pytest.raises(ToolFailed, match="apt install tesseract-ocr") as refused:
        read(workspace, "receipt.png")
    assert refused.value.error_type == "not_found"
    assert not (workspace / "trap").exists()


def test_a_recognizer_of_the_run_takes_the_place_of_tesseract(workspace: Path) -> None:
    shutil.copy(RECEIPT, workspace / "receipt.png")
    mine = Spelled(*WORDS)
    found, _ = read(workspace, "receipt.png", (Spelled, mine), language="deu+eng")
    assert mine.asked == [(RECEIPT.read_bytes(), "deu+eng")]
    assert found["text"] == "Order 4711\nPaid\n\nBye"
    assert found["blocks"] == [
        {"text": "Order 4711\nPaid", "box": [10, 10, 100, 50]},
        {"text": "Bye", "box": [10, 200, 30, 20]},
    ]
    assert found["lines"][0] == {
        "text": "Order 4711",
        "box": [10, 10, 100, 22],
        "confidence": 85.0,
        "block": 0,
    }
    assert found["stats"] == {
        "blocks": 2,
        "lines": 3,
        "tokens": 4,
        "confidence": 75.0,
        "partial": False,
    }


def test_an_image_without_text_is_an_empty_result(workspace: Path) -> None:
    shutil.copy(RECEIPT, workspace / "receipt.png")
    found, _ = read(workspace, "receipt.png", (Spelled, Spelled()))
    assert (found["text"], found["tokens"], found["stats"]["confidence"]) == ("", [], 0.0)


@pytest.mark.parametrize(
    "image", [".env", "../receipt.png", "/etc/passwd", "key.pem", ".git/config", "link.png"]
)
def test_what_no_tool_may_read_is_not_read_as_an_image_either(
    ask: Any, workspace: Path, image: str
) -> None:
    shutil.copy(RECEIPT, workspace.parent / "receipt.png")
    (workspace / ".git").mkdir()
    for name in (".env", "key.pem", ".git/config"):
        shutil.copy(RECEIPT, workspace / name)
    (workspace / "link.png").symlink_to(workspace.parent / "receipt.png")
    mine = Spelled(*WORDS)
    answer = ask("vision::ocr", image=image, allow=["vision::ocr"], resources=[mine])
    assert (answer.success, answer.error_type, mine.asked) == (False, "permission_denied", [])
    assert "person's yes" not in answer.error_message


def test_a_deny_rule_for_reading_holds_for_images(ask: Any, workspace: Path) -> None:
    shutil.copy(RECEIPT, workspace / "secret.png")
    shutil.copy(RECEIPT, workspace / "open.png")
    mine = Spelled(*WORDS)
    rules = {"allow": ["vision::ocr"], "deny": ["Read(secret.png)"], "resources": [mine]}
    answer = ask("vision::ocr", image="secret.png", **rules)
    assert (answer.success, answer.error_type, mine.asked) == (False, "permission_denied", [])
    assert ask("vision::ocr", image="open.png", **rules).success


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"language": "eng; rm -rf"}, "language"),
        ({"language": "../../etc/passwd"}, "language"),
        ({"language": "-psm"}, "language"),
        ({"language": "eng+" * 6 + "eng"}, "at most five"),
        ({"psm": "3"}, "only `language`"),
    ],
)
def test_options_cannot_become_anything_but_a_language(
    workspace: Path, options: dict[str, str], said: str
) -> None:
    shutil.copy(RECEIPT, workspace / "receipt.png")
    with pytest.raises(ToolFailed, match=said) as refused:
        read(workspace, "receipt.png", (Spelled, Spelled()), **options)
    assert refused.value.error_type == "validation_failed"


def test_a_file_that_is_no_image_never_reaches_a_recognizer(workspace: Path) -> None:
    (workspace / "notes.png").write_text("just text")
    mine = Spelled(*WORDS)
    with pytest.raises(ToolFailed, match="not an image"):
        read(workspace, "notes.png", (Spelled, mine))
    assert mine.asked == []


def test_words_beyond_the_bound_are_left_out_and_said(workspace: Path) -> None:
    shutil.copy(RECEIPT, workspace / "receipt.png")
    many = Spelled(*(Word("a", (0, 0, 1, 1), 50.0, (1,), (1, n // 10)) for n in range(20_001)))
    found, _ = read(workspace, "receipt.png", (Spelled, many))
    assert (len(found["tokens"]), found["stats"]["partial"]) == (20_000, True)


def test_rows_that_are_no_words_are_left_out_of_the_table() -> None:
    rows = [
        "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext",
        "1\t1\t0\t0\t0\t0\t0\t0\t460\t300\t-1\t",
        "4\t1\t1\t1\t1\t0\t22\t26\t177\t24\t-1\t",
        "5\t1\t1\t1\t1\t1\t22\t26\t89\t24\t95.04163\tOrder",
        "5\t1\t1\t1\t1\t2\t22\t26\t89\t24\t95\t ",
        "5\t1\t1",
        "",
    ]
    assert parse_words("\n".join(rows)) == [
        Word("Order", (22, 26, 89, 24), 95.04, (1, 1), (1, 1, 1, 1))
    ]
