"""What the help for small models needs of a model client, and a stand-in for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class RawModel(Protocol):
    """What the model client of a small model can do beyond `ModelClient` (`client.Local` has it).

    Contract: decoding is greedy, so the same prompt gives the same text. All methods raise
    ProviderError. A cancelled call may go on to its limit in the background; its answer is dropped.
    """

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        """Continue a raw prompt with text that fits a grammar of llama.cpp."""
        ...

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        """Return one vector per text: the hidden state at its last token, of length 1.

        `keep` says that they may be kept on disk for later runs. It is never set for what a person
        said.
        """
        ...


@runtime_checkable
class ArgumentWriter(RawModel, Protocol):
    """A model that an adapter may have taught to write the arguments of calls (`call_format`)."""

    @property
    def writes_arguments(self) -> bool:
        """Whether it was taught to."""
        ...

    async def write_arguments(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        """Continue a raw prompt as `complete` does, with the adapter."""
        ...

    async def score_arguments(self, prompt: str, text: str, *, grammar: str) -> float:
        """Return the log probability of a text behind a raw prompt, with the adapter.

        `grammar` lets nothing but the text be written.
        """
        ...
