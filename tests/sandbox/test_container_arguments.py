"""What an engine is started with, without an engine."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import CommandWritable, Origin, TrustedProgram
from ferrule.sandbox.backends.container_arguments import (
    container_argv,
    engine_environment,
    label_of,
    mount_option,
)
from ferrule.sandbox.backends.container_engine import (
    IMAGE_FILE,
    ContainerEngine,
    ContainerUnusable,
)
from ferrule.sandbox.policy import ResourceLimits

pytestmark = pytest.mark.proves("sandbox.backend.container")
ENGINE = ContainerEngine(
    TrustedProgram._make("/bin/sh", Origin.MACHINE, "a test's"),  # pyright: ignore[reportPrivateUsage]
    "sha256:abc",
    ("--cgroups=disabled",),
    user="--user=1:1",
)


def argv(engine: ContainerEngine = ENGINE) -> list[str]:
    return container_argv(
        engine, [("/work", "/work", True), ("/work/.env", "/held/closed", False)],
        ResourceLimits(memory=1000, processes=10), "/tmp/ferrule-session-x",
    )  # fmt: skip


def test_a_container_gets_nothing_but_what_is_mounted() -> None:
    options = argv()[: argv().index("--entrypoint")]
    for option in (
        "--network=none",
        "--cap-drop=ALL",
        "--read-only",
        "--security-opt=no-new-privileges",
        "--pull=never",
        "--detach-keys=",
        "--log-driver=none",
    ):
        assert option in options
    assert not any("unconfined" in option or "privileged" in option[:12] for option in options)
    mounts = [options[place + 1] for place, word in enumerate(options) if word == "--mount"]
    assert mounts == [
        '"type=bind","src=/work","dst=/work"',
        '"type=bind","src=/held/closed","dst=/work/.env","ro"',
    ]


def test_the_image_is_named_by_its_digest_and_after_it_come_words_of_ours() -> None:
    words = argv()
    assert words[words.index("--entrypoint") + 2] == "sha256:abc"
    assert "--memory" not in words
    bounded = argv(ContainerEngine(ENGINE.program, "sha256:abc", limits=True))
    assert bounded[bounded.index("--memory") + 1] == "1000"
    assert bounded[bounded.index("--pids-limit") + 1] == "10"


@given(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])), st.booleans())
def test_no_path_is_read_as_an_option_of_a_mount(name: str, is_writable: bool) -> None:
    option = mount_option(f"/work/{name}", f"/held/{name}", is_writable=is_writable)
    (fields,) = csv.reader(io.StringIO(option, newline=""))
    wanted = ["type=bind", f"src=/held/{name}", f"dst=/work/{name}"]
    assert fields == [*wanted, *([] if is_writable else ["ro"])]


def test_a_path_that_an_engine_would_read_as_another_is_refused() -> None:
    # In quotes too, engines read `\\r\\n` as `\\n`: something else would be masked.
    with pytest.raises(ToolFailed, match="rename it"):
        mount_option("/work/a\r\nb/.env", "/held/closed", is_writable=False)


def test_an_engine_gets_no_variables_but_its_own() -> None:
    given = {
        "HOME": "/home/me",
        "DOCKER_HOST": "unix:///run/me.sock",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "LD_PRELOAD": "/work/evil.so",
        "PATH": "/work/.venv/bin:/usr/bin",
    }
    assert engine_environment(given, "/usr/bin") == {
        "HOME": "/home/me",
        "DOCKER_HOST": "unix:///run/me.sock",
        "PATH": "/usr/bin",
    }


def test_a_label_tells_whose_folders_a_session_can_look_into() -> None:
    here = label_of("/tmp/ferrule-session-x")
    assert here == label_of("/tmp/ferrule-session-y")
    assert here != label_of("/other/ferrule-session-x")


def test_the_base_of_the_image_is_pinned_by_digest() -> None:
    text = IMAGE_FILE.read_text()
    assert "@sha256:" in next(line for line in text.splitlines() if line.startswith("ARG BASE"))
    assert [line for line in text.splitlines() if line.startswith("FROM")] == ["FROM ${BASE}"]


def test_an_image_of_another_version_is_not_used(tmp_path: Path) -> None:
    writable = CommandWritable.from_folders(tmp_path)
    record = ENGINE.as_record()
    assert ContainerEngine.from_record(record, writable).image == "sha256:abc"
    with pytest.raises(ContainerUnusable, match="another version"):
        ContainerEngine.from_record({**record, "recipe": "older"}, writable)
