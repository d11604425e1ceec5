"""The profile for macOS, as text: nobody has run it on a Mac."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.sandbox.backends.seatbelt import build_profile, quote
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.view.masks import Mask, MaskKind

POLICY = SandboxPolicy(
    Path("/Users/ann/my work"), readable=("/Users/ann/data",), writable=("/Users/ann/out",)
)
MASKS = (
    Mask("/Users/ann/my work/.env", MaskKind.UNREADABLE),
    Mask("/Users/ann/my work/.ferrule", MaskKind.EMPTY_FOLDER),
    Mask("/Users/ann/my work/.git/config", MaskKind.TEXT, "[core]\n"),
    Mask("/Users/ann/my work/.vscode", MaskKind.READ_ONLY),
)

GOLDEN = """\
(deny network*)
(deny file-read* file-write* process-exec
    (subpath "/Users/ann/my work/.env"))
(deny file-read* file-write* process-exec
    (subpath "/Users/ann/my work/.ferrule"))
(deny file-read-data file-write*
    (literal "/Users/ann/my work/.git/config"))
(deny file-write*
    (subpath "/Users/ann/my work/.vscode"))
(deny file-write* (regex #"^/Users/ann/my[ ]work/agents(/|$)"))
(deny file-write* (regex #"^/Users/ann/my[ ]work/(.*/)?[.](ferrule|harness)(/|$)"))
(deny file-write* (regex #"^/Users/ann/my[ ]work/(.*/)?[.]git/(.*/)?(hooks|config|config[.][^/]*)(/|$)"))
"""


@pytest.mark.proves("sandbox.backend.seatbelt")
def test_the_profile_denies_all_opens_little_and_closes_names_last() -> None:
    text = build_profile(
        POLICY, MASKS, temporary="/private/tmp/f", toolchains=("/Users/ann/.cargo/bin",)
    )
    assert text.startswith("(version 1)\n(deny default)\n")
    assert text.endswith(GOLDEN)
    opened = text[: text.index("(deny network*)")]
    writable = re.search(r"\(allow file-read\* file-write\* process-exec((?:\n    .*)+)\)", opened)
    assert writable and re.findall(r'"(.*)"', writable[1]) == [
        "/Users/ann/my work",
        "/private/tmp/f",
        "/Users/ann/out",
    ]
    assert '(subpath "/Users/ann/data")' in opened and '(subpath "/Users/ann/.cargo/bin")' in opened
    assert "(allow network" not in text and '(subpath "/Users/ann")' not in text


@pytest.mark.proves("sandbox.backend.seatbelt")
@given(st.text(min_size=1, max_size=30).map(lambda name: "/work/" + name.replace("/", "_")))
def test_no_name_ends_its_string_early(path: str) -> None:
    inside = quote(path)[1:-1]
    assert re.fullmatch(r'(?:[^"\\\n\r]|\\.)*', inside, re.DOTALL)
    text = build_profile(
        SandboxPolicy(Path("/work")), [Mask(path, MaskKind.UNREADABLE)], temporary="/tmp/f"
    )
    assert f"(subpath {quote(path)})" in text
