"""How servers of chat completions differ, as the rows of `models.registry` say it."""

from __future__ import annotations

from ferrule.core.value_class import frozen


@frozen
class ChatDifferences:
    """How a server differs from others that speak chat completions.

    Attributes:
        key_header: The header that carries the key; "" for `Authorization`, with `Bearer`.
        like_openai: Whether options are named as OpenAI names them today, where older servers
            keep their first names.
        stream_usage: Whether the usage of streamed answers is asked for. Some servers refuse the
            question and say it unasked.
        short_call_ids: Whether call ids are sent as nine letters and digits; some servers refuse
            others.
        asks_props: Whether the server may be llama.cpp, which describes its model at `/props`.
    """

    key_header: str = ""
    like_openai: bool = False
    stream_usage: bool = True
    short_call_ids: bool = False
    asks_props: bool = True
