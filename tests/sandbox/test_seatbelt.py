"""The profile for macOS, as text: nobody has run it on a Mac."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ferrule.permissions.provenance import (
    NOTHING_WRITABLE,
    CommandWritable,
    Origin,
    TrustedPath,
    trust_path,
)
from ferrule.sandbox.backends.seatbelt import build_profile, find_system_folders, quote
from ferrule.sandbox.view.masks import Mask, MaskKind
from ferrule.sandbox.view.openings import OpenedFolder, Openings


def trusted(path: str) -> TrustedPath:
    return trust_path(path, Origin.PERSON, NOTHING_WRITABLE, reason="a test's")


OPENINGS = Openings(
    trusted("/Users/ann/my work"),
    (
        OpenedFolder(trusted("/Users/ann/data"), "read"),
        OpenedFolder(trusted("/Users/ann/out"), "write"),
    ),
    CommandWritable(("/Users/ann/my work", "/Users/ann/out")),
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


def test_the_profile_denies_all_opens_little_and_closes_names_last() -> None:
    text = build_profile(
        OPENINGS,
        MASKS,
        system=find_system_folders(OPENINGS.writable),
        temporary=trusted("/private/tmp/f"),
        toolchains=(trusted("/Users/ann/.cargo/bin"),),
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


@given(st.text(min_size=1, max_size=30).map(lambda name: "/work/" + name.replace("/", "_")))
def test_no_name_ends_its_string_early(path: str) -> None:
    inside = quote(path)[1:-1]
    assert re.fullmatch(r'(?:[^"\\\n\r]|\\.)*', inside, re.DOTALL)
    text = build_profile(
        Openings(trusted("/work"), (), NOTHING_WRITABLE),
        [Mask(path, MaskKind.UNREADABLE)],
        system=(),
        temporary=trusted("/tmp/f"),
    )
    assert f"(subpath {quote(path)})" in text


def test_a_folder_that_commands_can_write_is_none_of_the_system() -> None:
    found = find_system_folders(CommandWritable(("/opt/local", "/usr")))
    assert "/System" in found
    assert not {"/usr", "/opt/local"} & set(found)
