"""Execute `examples/notebook.ipynb` and keep its outputs: `make lab NAME=notebook`.

Whoever opens the notebook is asked in the cell; here the questions are answered with yes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


class Answering(NotebookClient):
    """A notebook's client that answers what cells ask for; `asked` is what they asked."""

    def __init__(self, notebook: Any, answer: str = "y", **options: Any) -> None:
        super().__init__(notebook, **options)
        self.asked: list[str] = []
        self._answer = answer
        self._answering: asyncio.Task[None] | None = None

    async def async_start_new_kernel_client(self) -> Any:
        client = await super().async_start_new_kernel_client()
        client.allow_stdin = True
        self._answering = asyncio.create_task(self._answer_questions(client))
        return client

    async def _answer_questions(self, client: Any) -> None:
        while True:
            message = await client.get_stdin_msg(timeout=None)
            self.asked.append(message["content"]["prompt"])
            client.input(self._answer)

    async def _async_cleanup_kernel(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
        await super()._async_cleanup_kernel()


def execute(answer: str = "y") -> tuple[Any, list[str]]:
    """Return the executed notebook, and what it asked."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = Answering(
        notebook,
        answer,
        timeout=60,
        record_timing=False,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )
    asyncio.run(client.async_execute())  # `client.execute` keeps its event loop
    return notebook, client.asked


def main() -> int:
    notebook, asked = execute()
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, NOTEBOOK)
    print(f"{len(notebook.cells)} cells, {len(asked)} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
