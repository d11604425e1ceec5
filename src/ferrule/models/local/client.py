"""The embedded model: llama.cpp (xllamacpp) in this process, no network but loopback.

One server a process and model file, started when first asked and shared by all exchanges; the
conversation goes over the chat-completions wire, the small model's extra powers (raw completion
under a grammar, embeddings) are direct calls. A second context of the same file, its weights mapped
once, makes the embeddings, so that they do not push the conversation out of the prefix cache.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ferrule.core.errors import ProviderError
from ferrule.models.client import Capabilities, Exchange, ModelOptions, ToolSpec
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.request_encoding import dumps, json_object

from . import pull
from .prompt_text import JSON, ControlTokens, LocalExchange, Piece, pieces
from .vectors import VectorStore

if TYPE_CHECKING:
    from ferrule.models.http.transport import Transport
    from ferrule.models.openai.chat_exchange import ChatExchange

ERRORS_ONLY = 1
"""llama.cpp's verbosity: errors reach standard error, its information and warnings do not."""

Server = Any
"""An `xllamacpp.Server`: a compiled module without types."""

_SERVERS: dict[tuple[str, int, int, bool], Server] = {}
_LOCK = threading.Lock()


class Local:
    """A model on this machine. `path` is a GGUF file that stands in for the one that `pull`
    fetches.

    `n_ctx` is the window in tokens. `threads` defaults to the cores that are free when the server
    starts: on a machine that is busy, more threads than free cores make it many times slower.
    """

    profile = "small"
    """How the `constrained` way treats it: see `ways.small`."""
    encodes_text = True
    """Control tokens in what it is given are encoded as text: see `models.untrusted_text`."""

    def __init__(
        self,
        name: str = "smollm2",
        *,
        path: Path | str | None = None,
        n_ctx: int = 4096,
        threads: int | None = None,
    ) -> None:
        self._name = name
        self._path = Path(path) if path is not None else None
        if self._path is None:
            pull.known(name)
        self._n_ctx = n_ctx
        self._threads = threads or free_cores()
        self._chat: OpenAIChat | None = None
        self._capabilities: Capabilities | None = None
        self._vectors: VectorStore | None = None
        self._control_tokens: ControlTokens | None = None
        self._as_text: dict[str, list[Piece]] = {}

    @property
    def model(self) -> str:
        return f"local:{self._name}"

    async def capabilities(self) -> Capabilities:
        """From the server's `/props`. Tools are no: the template drops them without a word.

        Raises ProviderError: `model_missing`, `extra_missing`, `model_damaged`.
        """
        if self._capabilities is None:
            asked = await (await self._server_wire()).capabilities()
            self._capabilities = Capabilities(
                tools=False,
                structured=True,
                context=asked.context or self._n_ctx,
                thinking=False,
                source="llama.cpp /props",
            )
        return self._capabilities

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange:
        """A conversation over the chat wire. The server starts with the first `ask`."""
        return LocalExchange(self, system, tools, options)

    async def close(self) -> None:
        """Give the connections back. The server stays for other wires of this process and ends with
        it.
        """
        if self._chat is not None:
            await self._chat.close()
            self._chat = None

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        """See `ways.fill.Powers`."""
        written = await self._pieces(prompt)
        body = {"prompt": written, "n_predict": max_tokens, "temperature": 0, "grammar": grammar}
        answer = await asyncio.to_thread(self._call, "handle_completions", body, False)
        return str(answer["choices"][0]["text"])

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        """See `ways.fill.Powers`. Vectors that are to be kept are read from and written to the
        cache folder.
        """
        if self._vectors is None:
            self._vectors = VectorStore(pull.folder(), self._file())
        known = self._vectors.get(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            written = [await self._pieces(text) for text in missing]
            answer = await asyncio.to_thread(
                self._call, "handle_embeddings", {"input": written}, True
            )
            made = {
                text: cast("list[float]", row["embedding"])
                for text, row in zip(missing, answer["data"], strict=True)
            }
            known.update(made)
            if keep:
                self._vectors.put(made)
        return [known[text] for text in texts]

    def _file(self) -> Path:
        if self._path is None:
            return pull.installed(self._name)
        if not self._path.is_file():
            raise ProviderError(f"there is no model file {self._path}", code="model_missing")
        return self._path

    def _call(self, method: str, body: dict[str, Any], embedding: bool) -> dict[str, Any]:
        server = start(
            self._file(), 1024 if embedding else self._n_ctx, self._threads, embedding=embedding
        )
        answer = cast("dict[str, Any]", getattr(server, method)(body))
        if "error" in answer:
            said = cast("dict[str, Any]", answer["error"])
            raise ProviderError(
                f"the local model refused: {said.get('message', said)}", code="provider"
            )
        return answer

    async def _server_wire(self) -> OpenAIChat:
        """The chat wire to the running server."""
        server = await asyncio.to_thread(
            start, self._file(), self._n_ctx, self._threads, embedding=False
        )
        if self._chat is None:
            base = f"{server.listening_address}/v1"
            self._chat = OpenAIChat(self._name, base_url=base, api_key="none", name="local")
        return self._chat

    async def chat(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ChatExchange:
        """An exchange of the chat wire, the server being up."""
        return (await self._server_wire()).open(system, tools, options)

    async def server(self) -> tuple[str, Transport]:
        """The address of the running server, and what speaks with it."""
        chat = await self._server_wire()
        if self._control_tokens is None:
            self._control_tokens = await asyncio.to_thread(control_tokens, self._file())
        return chat.base_url.removesuffix("/v1"), chat.transport

    @property
    def control_tokens(self) -> ControlTokens:
        """Those of the model's vocabulary, known once the server is up."""
        assert self._control_tokens is not None, "the server was not started"
        return self._control_tokens

    async def as_text(self, text: str) -> list[Piece]:
        """The tokens of a control token's spelling, read as text.

        It is cut after its first character: a vocabulary may have it as a token that is found even
        where none should be.
        """
        if text not in self._as_text:
            base, transport = await self.server()
            found: list[Piece] = []
            for part in (text[:1], text[1:]):
                body = dumps({"content": part, "add_special": False, "parse_special": False})
                answer = await transport.post(f"{base}/tokenize", body, JSON, timeout=60.0)
                found += cast("list[int]", json_object(answer.body)["tokens"])
            self._as_text[text] = found
        return self._as_text[text]

    async def _pieces(self, text: str) -> str | list[Piece]:
        """A raw prompt, in which nothing is a control token."""
        await self.server()
        parts = self.control_tokens.split(self.control_tokens.mark(text))
        return text if len(parts) == 1 else await pieces(parts, self.as_text)


@cache
def control_tokens(path: Path) -> ControlTokens:
    """The control tokens of a model file, read once in a process."""
    return ControlTokens(path)


def free_cores() -> int:
    """Cores of this process less what the machine is busy with, at least one."""
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        busy = os.getloadavg()[0]
    except OSError:
        busy = 0.0
    return max(1, usable - round(busy))


def start(path: Path, n_ctx: int, threads: int, *, embedding: bool) -> Server:
    """The server for this file, started if it is not running. Blocks for about a second.

    Raises ProviderError: `extra_missing` without xllamacpp, `model_damaged` if the file cannot be
    loaded.
    """
    key = (str(path.resolve()), n_ctx, threads, embedding)
    with _LOCK:
        if key not in _SERVERS:
            _SERVERS[key] = _start(path, n_ctx, threads, embedding)
        return _SERVERS[key]


def _start(path: Path, n_ctx: int, threads: int, embedding: bool) -> Server:
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError as error:
        raise ProviderError(
            "the local model needs llama.cpp, which is not installed",
            code="extra_missing",
            hint="pip install 'ferrule[local]'",
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = n_ctx, 1
    params.verbosity = ERRORS_ONLY
    params.warmup = False
    for cpu in (params.cpuparams, params.cpuparams_batch):
        # Threads that poll between two tokens take the core from whoever else needs it.
        cpu.n_threads, cpu.poll = threads, 0
    if embedding:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise ProviderError(f"{path} cannot be loaded: {error}", code="model_damaged") from error
