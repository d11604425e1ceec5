"""The client of the embedded model: llama.cpp (xllamacpp) in this process, loopback network only.

One server per process and model file is started at the first question and shared by all exchanges.
Conversations use the chat-completions client. What the model can do besides (raw completion under a
grammar, embeddings) are direct calls, for plug-ins that help small models. Embeddings use a second
context of the same file, with its weights mapped once, so that they do not push the conversation
out of the prefix cache.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.value_class import frozen
from ferrule.models.client import (
    Capabilities,
    Exchange,
    ModelOptions,
    ToolModeOpener,
    ToolSpec,
)
from ferrule.models.http.transport import Transport
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.chat_exchange import ChatExchange
from ferrule.models.registry import check_options
from ferrule.models.request_encoding import encode_json_bytes, parse_object
from ferrule.tools.forking import make_lock

from . import installed_models
from .downloads import check_is_model
from .known_models import MODELS, find_adapter, read_template
from .local_exchange import JSON_HEADERS, ControlTokens, LocalExchange, PromptPiece, build_prompt
from .vector_cache import VectorCache

PROMPT_CACHE_MIB = 512
"""MiB of prompts that were read before and may come again; of SmolLM2 some 22,000 tokens.

llama.cpp would keep up to 8 GiB of them. A conversation whose model is also asked in other prompts
(`small_models`) is found here.
"""

ERRORS_ONLY = 1
"""llama.cpp's verbosity: only errors reach standard error."""

_WITH_ADAPTER: Mapping[str, Any] = {"lora": [{"id": 0, "scale": 1.0}]}

Server = Any
"""An `xllamacpp.Server`: a compiled module without types."""


@frozen
class ServerOptions:
    """How a model file is loaded. Servers are shared by those who want the same."""

    n_ctx: int
    threads: int
    embedding: bool = False
    chat_template: str = ""
    gpu_layers: int = -1
    cache_type: str = "f16"
    adapter: Path | None = None


_RUNNING_SERVERS: dict[tuple[int, str, ServerOptions], Server] = {}
_LOCK = make_lock()


class Local:
    """A model on this machine.

    Args:
        name: A model that was pulled, or the path of a GGUF file (`.../model.gguf`).
        path: A GGUF file to use instead of the fetched one.
        n_ctx: The context window in tokens.
        chat_template: A Jinja chat template, or the path of a file with one, in place of the file's
            own, for example one with tools;
            "" for the one that `known_models` has for this model, else the file's.
        gpu_layers: Layers that are computed on a graphics card; -1 for as many as fit.
        cache_type: Type of the KV cache: `f16`, `q8_0`, `q4_0`, ...
        threads: Defaults to the cores that are free when the client is made. On a busy machine
            more threads than free cores make the model many times slower.
        tool_modes: What opens its conversations in a tool mode, in place of `models.tool_modes`.

    Raises:
        ConfigError: There is no such model, or the file of the template cannot be read.
    """

    encodes_text = True
    """Control tokens in text are encoded as plain text: see `models.untrusted_text`."""

    def __init__(
        self,
        name: str = "smollm2",
        *,
        path: Path | str | None = None,
        n_ctx: int = 4096,
        threads: int | None = None,
        chat_template: str | Path = "",
        gpu_layers: int = -1,
        cache_type: str = "f16",
        tool_modes: Mapping[str, ToolModeOpener] | None = None,
    ) -> None:
        self.tool_modes: Mapping[str, ToolModeOpener] = tool_modes or {}
        self._name = name
        if path is None and name.endswith(".gguf"):
            path = Path(name).expanduser()
        self._path = Path(path) if path is not None else None
        if self._path is None:
            installed_models.check_name(name)
        if isinstance(chat_template, Path):
            chat_template = _read_template(chat_template)
        if not chat_template and name in MODELS:
            chat_template = read_template(MODELS[name])
        adapter = find_adapter(MODELS[name]) if name in MODELS and path is None else None
        self._server_options = ServerOptions(
            n_ctx,
            threads or count_free_cores(),
            False,
            chat_template,
            gpu_layers,
            cache_type,
            adapter,
        )
        self._chat: OpenAIChat | None = None
        self._capabilities: Capabilities | None = None
        self._vectors: VectorCache | None = None
        self._control_tokens: ControlTokens | None = None
        self._plain_tokens: dict[str, list[PromptPiece]] = {}

    @property
    def model(self) -> str:
        return f"local:{self._name}"

    async def capabilities(self) -> Capabilities:
        """Return what the server's `/props` says of the file's chat template.

        A template that has no place for tools would drop them silently, so they are sent only to
        one that has.

        Raises:
            ProviderError: `model_missing`, `extra_missing`, `model_damaged`.
        """
        if self._capabilities is None:
            chat = await self._start_chat()
            server_capabilities = await chat.capabilities()
            self._capabilities = Capabilities(
                tools=server_capabilities.tools is True,
                structured=True,
                context=server_capabilities.context or self._server_options.n_ctx,
                thinking=False,
                source="llama.cpp /props",
                structured_with_tools=False,
                vision=False,
            )
        return self._capabilities

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange:
        """Open a conversation. The server starts with the first `ask`."""
        check_options(self.model, options)
        return LocalExchange(self, system, tools, options)

    async def close(self) -> None:
        """Release the connections. The server stays for other clients of this process."""
        if self._chat is not None:
            await self._chat.close()
            self._chat = None

    @property
    def writes_arguments(self) -> bool:
        """Whether an adapter taught the model to write arguments (`small_models.call_format`)."""
        return self._server_options.adapter is not None

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        """Continue a raw prompt with text that fits a grammar of llama.cpp. Decoding is greedy.

        A cancelled call may go on to its limit in the background; its answer is dropped.
        """
        answer = await self._complete(prompt, grammar, max_tokens, {})
        return str(answer["text"])

    async def write_arguments(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        """Continue a raw prompt as `complete` does, with the adapter."""
        answer = await self._complete(prompt, grammar, max_tokens, _WITH_ADAPTER)
        return str(answer["text"])

    async def score_arguments(self, prompt: str, text: str, *, grammar: str) -> float:
        """Return the log probability of a text behind a raw prompt, with the adapter.

        The model is made to write the text by a grammar of nothing else; -inf if it wrote another.
        """
        size = len(text.encode())
        fields = {**_WITH_ADAPTER, "logprobs": 1}
        answer = await self._complete(prompt, grammar, size + 1, fields)
        if answer["text"] != text:
            return -math.inf
        total = 0.0
        for token in cast("list[dict[str, Any]]", answer["logprobs"]["content"]):
            if size <= 0:
                break  # the token that ends the text
            total += float(token["logprob"])
            size -= len(token["bytes"])
        return total

    async def _complete(
        self, prompt: str, grammar: str, max_tokens: int, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        body = {
            "prompt": await self._split_prompt(prompt),
            "n_predict": max_tokens,
            "temperature": 0,
            "grammar": grammar,
            **fields,
        }
        answer = await asyncio.to_thread(self._call, "handle_completions", body, False)
        return cast("dict[str, Any]", answer["choices"][0])

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        """Return one vector per text: the hidden state at its last token, of length 1.

        With `keep`, new vectors are written to the cache folder.
        """
        if self._vectors is None:
            self._vectors = VectorCache(installed_models.models_folder(), self._model_file())
        known = self._vectors.get(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            new = await self._embed_new(missing)
            known.update(new)
            if keep:
                self._vectors.put(new)
        return [known[text] for text in texts]

    async def _embed_new(self, texts: Sequence[str]) -> dict[str, list[float]]:
        prompts = [await self._split_prompt(text) for text in texts]
        answer = await asyncio.to_thread(self._call, "handle_embeddings", {"input": prompts}, True)
        rows = zip(texts, answer["data"], strict=True)
        return {text: cast("list[float]", row["embedding"]) for text, row in rows}

    def _model_file(self) -> Path:
        """Return the file, with bytes that are those that were pulled."""
        if self._path is None:
            return installed_models.installed_path(self._name)
        installed_models.check_path(self._path)
        return self._path

    def _call(self, method: str, body: dict[str, Any], embedding: bool) -> dict[str, Any]:
        options = self._server_options
        if embedding:
            options = replace(options, n_ctx=1024, embedding=True, adapter=None)
        server = get_server(self._model_file(), options)
        answer = cast("dict[str, Any]", getattr(server, method)(body))
        if "error" in answer:
            error = cast("dict[str, Any]", answer["error"])
            detail = f"the local model refused: {error.get('message', error)}"
            raise ProviderError(detail, code="provider")
        return answer

    async def _start_chat(self) -> OpenAIChat:
        """Return the chat client of the running server, starting the server if needed."""
        server = await asyncio.to_thread(get_server, self._model_file(), self._server_options)
        if self._chat is None:
            base = f"{server.listening_address}/v1"
            self._chat = OpenAIChat(self._name, base_url=base, api_key="none", name="local")
        return self._chat

    async def open_chat(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ChatExchange:
        """Open a conversation of the chat client, with the server running."""
        chat = await self._start_chat()
        return chat.open(system, tools, options)

    async def connect_server(self) -> tuple[str, Transport]:
        """Return the address of the running server, and the transport to it."""
        chat = await self._start_chat()
        if self._control_tokens is None:
            self._control_tokens = await asyncio.to_thread(load_control_tokens, self._model_file())
        return chat.base_url.removesuffix("/v1"), chat.transport

    @property
    def control_tokens(self) -> ControlTokens:
        """Control tokens of the model's vocabulary, known once the server is running."""
        assert self._control_tokens is not None, "the server was not started"
        return self._control_tokens

    async def tokenize_as_text(self, text: str) -> list[PromptPiece]:
        """Return the tokens of a control token's spelling, read as plain text.

        It is tokenized in two parts, split after its first character: a vocabulary may have it as a
        token that is found even where control tokens are off.
        """
        if text not in self._plain_tokens:
            base, transport = await self.connect_server()
            found: list[PromptPiece] = []
            for part in (text[:1], text[1:]):
                body = encode_json_bytes(
                    {"content": part, "add_special": False, "parse_special": False}
                )
                answer = await transport.post(f"{base}/tokenize", body, JSON_HEADERS, timeout=60.0)
                found += cast("list[int]", parse_object(answer.body)["tokens"])
            self._plain_tokens[text] = found
        return self._plain_tokens[text]

    async def _split_prompt(self, text: str) -> str | list[PromptPiece]:
        """Return a raw prompt in which nothing is a control token."""
        await self.connect_server()
        parts = self.control_tokens.split(self.control_tokens.mark(text))
        if len(parts) == 1:
            return text
        return await build_prompt(parts, self.tokenize_as_text)


@cache
def load_control_tokens(path: Path) -> ControlTokens:
    """Return the control tokens of a model file, read once per process."""
    return ControlTokens(path)


def _read_template(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(
            f"the chat template {file} cannot be read: {problem}",
            hint="`plugins.local.chat_template` is the path of a file with a Jinja template",
        ) from problem


def count_free_cores() -> int:
    """Return the cores of this process minus the machine's load, at least one."""
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    try:
        busy = os.getloadavg()[0]
    except OSError:
        busy = 0.0
    return max(1, usable - round(busy))


def get_server(path: Path, options: ServerOptions) -> Server:
    """Return the server for this file, starting it if needed. Blocks for about a second.

    Raises:
        ProviderError: `extra_missing` without xllamacpp, `model_damaged` if the file cannot be
            loaded.
    """
    # A forked child cannot ask its parent's server, whose threads it lacks.
    key = (os.getpid(), os.path.realpath(path), options)
    with _LOCK:
        if key not in _RUNNING_SERVERS:
            _RUNNING_SERVERS[key] = _start_server(path, options)
        return _RUNNING_SERVERS[key]


def _start_server(path: Path, options: ServerOptions) -> Server:
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ModuleNotFoundError as error:
        raise ProviderError(
            "the local model needs llama.cpp, which is not installed",
            code="extra_missing",
            hint="pip install 'ferrule[local]'",
        ) from error
    except ImportError as error:
        # Minimal images of systems lack the library of OpenMP.
        raise ProviderError(
            f"llama.cpp cannot be loaded: {error}",
            code="extra_missing",
            hint="install this system library; `libgomp.so.1` is in the package libgomp1",
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = options.n_ctx
    params.n_gpu_layers = options.gpu_layers
    params.cache_type_k = params.cache_type_v = _find_cache_type(xllamacpp, options.cache_type)
    if options.chat_template:
        params.chat_template = options.chat_template
    if options.adapter is not None:
        # It is loaded with the model, and used by those requests that ask for it.
        adapter = xllamacpp.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = str(options.adapter), 0.0
        params.lora_adapters = [adapter]
    params.n_parallel = 1
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.verbosity = ERRORS_ONLY
    params.warmup = False
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = options.threads
        # Threads that poll between two tokens take the core from others who need it.
        cpu.poll = 0
    if options.embedding:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    check_is_model(path)
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise ProviderError(f"{path} cannot be loaded: {error}", code="model_damaged") from error


def _find_cache_type(xllamacpp: Any, name: str) -> Any:
    """Return llama.cpp's constant of a type of the KV cache.

    Raises:
        ConfigError: There is no such type.
    """
    found = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}", None)
    if found is None:
        raise ConfigError(
            f"`{name}` is not a type of the KV cache",
            code="model_options",
            hint="`cache_type` is `f16`, `bf16`, `q8_0`, `q5_1`, `q5_0`, `q4_1` or `q4_0`",
        )
    return found
