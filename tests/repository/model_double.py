"""A model server on this machine for the programs that pages show: it speaks chat completions,
Responses and Messages.

What it plays is the conversation of the program that the pages show for every library: it calls
`stock` for bolts, and says what came back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from ferrule.models.scripted import Step
from ferrule.testing import calls, says
from provider_double import ROUTES, ProviderDouble

ANSWER = "There are 12 bolts in Ghent."
FIRST = calls(("stock", {"article": "bolt"}))
MOST_RUNS = 200
"""Each run of a program that pages show makes two requests; they are played again and again."""


def environment(url: str) -> dict[str, str]:
    """The variables that have a program ask the server at `url`."""
    return {
        "OPENAI_API_KEY": "no-key",
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": "no-key",
        "ANTHROPIC_BASE_URL": url,
    }


@contextmanager
def serve_model(
    last: Step | None = None, *, is_lenient: bool = False
) -> Generator[tuple[dict[str, str], ProviderDouble]]:
    """Serve beside the caller, which may block. Yield the variables and the server.

    Args:
        last: The second answer, where it is no text.
        is_lenient: Take requests that the types of the providers' own libraries do not know.
    """
    turns = [FIRST, last or says(ANSWER)] * MOST_RUNS
    routes = {path: replace(route, check=lambda _: None) for path, route in ROUTES.items()}
    ready = threading.Event()
    served: list[ProviderDouble] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with ProviderDouble(turns, routes if is_lenient else None) as double:
            served.append(double)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield environment(served[0].url), served[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
