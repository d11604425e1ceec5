"""Pulling a model from a URL or a path: whole, resumed, recorded, and refused once it was changed."""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from ferrule.cli.models import models
from ferrule.core.errors import ConfigError, ProviderError
from ferrule_local import gguf, installed_models
from ferrule_local.client import Local
from ferrule_local.downloads import pull_url, record_file


def gguf_file(**values: str | int | list[str]) -> bytes:
    """The head of a GGUF file, with some weights behind it."""

    def text(value: str) -> bytes:
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    pairs = b""
    for key, value in values.items():
        pairs += text(key)
        if isinstance(value, int):
            pairs += struct.pack("<II", 4, value)
        elif isinstance(value, str):
            pairs += struct.pack("<I", 8) + text(value)
        else:
            pairs += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(values))
    return head + pairs + bytes(range(256)) * 2000


MODEL = gguf_file(
    **{
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": ["a", "b"],
        "llama.context_length": 8192,
        "general.license": "mit",
        "tokenizer.chat_template": "{% if tools %}x{% endif %}<think>",
    }
)
PROJECTOR = gguf_file(**{"general.architecture": "clip", "general.type": "mmproj"})


class FileServer(ThreadingHTTPServer):
    """Serves one file, in ranges, behind a redirect; breaks off where it is told to."""

    data = MODEL
    tag = '"one"'
    breaks: list[int]
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        if self.path.startswith("/begin"):
            self.send_response(302)
            self.send_header("Location", "/file/tiny-Q4.gguf?token=secret")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = self.headers.get("Range", "")
        self.server.asked.append(wanted)
        data = self.server.data
        begin = 0
        if wanted and self.headers.get("If-Range") == self.server.tag:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("ETag", self.server.tag)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        until = self.server.breaks.pop(0) if self.server.breaks else len(data)
        self.wfile.write(data[begin:until])
        if until < len(data):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path / "models"))
    made = FileServer(("127.0.0.1", 0), Handler)
    made.breaks = []
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def url_of(server: FileServer, path: str = "/file/Tiny-Q4.gguf") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


async def test_a_download_that_breaks_goes_on_where_it_stopped(server: FileServer) -> None:
    server.breaks = [1000, 70_000]
    seen: list[tuple[int, int]] = []
    record = await pull_url(url_of(server), progress=lambda *pair: seen.append(pair))
    assert server.asked == ["", "bytes=1000-", "bytes=70000-"]
    assert (record.name, record.sha256) == ("tiny-q4", hashlib.sha256(MODEL).hexdigest())
    assert installed_models.installed_path("tiny-q4").read_bytes() == MODEL
    assert seen[-1] == (len(MODEL), len(MODEL))
    assert not list((installed_models.models_folder() / "downloads").iterdir())


async def test_what_another_try_left_is_used_only_if_the_file_is_the_same(
    server: FileServer,
) -> None:
    server.breaks = [2000, 2000]
    with pytest.raises(ProviderError):
        await pull_url(url_of(server))
    server.tag = '"two"'
    server.asked.clear()
    await pull_url(url_of(server))
    assert server.asked == ["bytes=2000-"]
    assert installed_models.installed_path("tiny-q4").read_bytes() == MODEL


async def test_a_redirect_is_followed_and_a_query_is_not_recorded(server: FileServer) -> None:
    record = await pull_url(url_of(server, "/begin?token=secret"), name="mine")
    assert record.source == url_of(server, "/begin")
    assert installed_models.installed_path("mine").read_bytes() == MODEL


async def test_a_file_with_another_hash_than_expected_is_removed(server: FileServer) -> None:
    with pytest.raises(ProviderError) as refused:
        await pull_url(url_of(server), sha256="0" * 64)
    assert refused.value.code == "bad_hash"
    assert not list(installed_models.models_folder().rglob("*.*"))


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_recorded_file_whose_bytes_were_changed_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path / "models"))
    file = tmp_path / "Mine.gguf"
    file.write_bytes(MODEL)
    assert record_file(file).name == "mine"
    named = Local("mine" if by == "name" else str(file))
    assert named._model_file() == file
    file.write_bytes(MODEL[:-1] + b"?")
    with pytest.raises(ProviderError, match="its bytes were changed") as refused:
        named._model_file()
    assert refused.value.code == "model_damaged"


def test_a_projector_is_refused_as_a_model_and_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path / "models"))
    file = tmp_path / "mmproj.gguf"
    file.write_bytes(PROJECTOR)
    with pytest.raises(ProviderError, match="a projector for pictures, not a language model"):
        record_file(file)
    (tmp_path / "page.gguf").write_text("<html>sign in</html>" * 10)
    with pytest.raises(ProviderError, match="not a GGUF file"):
        record_file(tmp_path / "page.gguf")


def test_the_head_of_a_file_says_window_licence_and_what_its_template_can(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(MODEL)
    facts = gguf.read_facts(file)
    assert (facts.context, facts.license, facts.kind) == (8192, "mit", "model")
    assert gguf.read_template_abilities(facts.template) == ["tools", "reasoning"]
    assert gguf.read_template_abilities("{{ messages }}") == ["chat"]


def test_the_command_pulls_lists_and_names_what_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    runner = CliRunner()
    file = tmp_path / "Mine.gguf"
    file.write_bytes(MODEL)
    pulled = runner.invoke(models, ["pull", str(file)])
    assert pulled.exit_code == 0
    assert "`local:mine`" in pulled.output
    assert runner.invoke(models, ["pull", url_of(server), "--name", "other"]).exit_code == 0
    listed = runner.invoke(models, ["list"]).output
    for name in ("local:mine", "local:other"):
        line = next(line for line in listed.splitlines() if name in line)
        assert "window 8192, template: tools, reasoning, licence mit" in line
    assert "92 MB to fetch" in next(line for line in listed.splitlines() if "local:smollm2" in line)


def test_a_name_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path / "models"))
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(MODEL)
    record_file(tmp_path / "a.gguf", "one")
    with pytest.raises(ConfigError, match="there is a model `one` already"):
        record_file(tmp_path / "b.gguf", "one")
    with pytest.raises(ConfigError, match="a model that Ferrule knows"):
        record_file(tmp_path / "b.gguf", "smollm2")
