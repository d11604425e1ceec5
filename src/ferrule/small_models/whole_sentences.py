"""Ends an answer that ran into its limit behind its last whole sentence."""

from __future__ import annotations

import re
from dataclasses import replace

from ferrule.core.events import ModelAnswered
from ferrule.models.client import Sink, choose_notice

_SENTENCE_END = re.compile(r"""(?<!\d)[.!?]["')\]*_]*(?=\s)|\n""")


class WholeSentences:
    """A sink in front of another one, which it gives whole sentences as they are complete.

    Args:
        outer: Where the answer goes.
        notices: Where notices go without a sink.
    """

    def __init__(self, outer: Sink | None, notices: list[tuple[str, str]]) -> None:
        self._notice = choose_notice(outer, notices)
        self._outer = outer
        self._begun = ""
        """The sentence that is not complete yet."""
        self._is_any_whole = False

    def add_text(self, piece: str) -> None:
        """Pass on what is complete with this piece."""
        self._begun += piece
        ends = [match.end() for match in _SENTENCE_END.finditer(self._begun)]
        if ends:
            self._is_any_whole = True
            self._pass_on(ends[-1])

    def add_reasoning(self, piece: str) -> None:
        """Pass a piece on."""
        if self._outer is not None:
            self._outer.add_reasoning(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Pass a piece of a call's arguments on."""
        if self._outer is not None:
            self._outer.add_arguments(call, tool, piece)

    def notice(self, topic: str, text: str) -> None:
        """Pass a notice on, or keep it where nobody listens."""
        self._notice(topic, text)

    def end(self, answer: ModelAnswered) -> ModelAnswered:
        """Pass on the rest, or leave a half sentence out of an answer that ran into its limit."""
        rest = self._begun.strip()
        if answer.stop != "length" or not rest or not self._is_any_whole:
            self._pass_on(len(self._begun))
            return answer
        self._begun = ""
        self.notice("model", "the answer became too long for this model and was ended here")
        text = answer.text.rstrip().removesuffix(rest).rstrip()
        return replace(answer, text=text, stop="end")

    def _pass_on(self, length: int) -> None:
        complete = self._begun[:length]
        self._begun = self._begun[length:]
        if complete and self._outer is not None:
            self._outer.add_text(complete)
