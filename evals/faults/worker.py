"""One framework, run after run, in its own environment: `python -P -m faults.worker ADAPTER.py
BASE_URL`.

Says that it is there, reads a line of JSON per run, `{"prompt": ..., "stream": false}`, and answers
with one; its lines begin with `@@`: `{"answer": text or null, "error": kind and text, "placed":
[[article, total, pieces], ...]}`. The adapters are those of `benchmarks/peers`, as they are, and
their sessions are made for many runs: one serves them all. Needs the standard library and what the
adapter needs.
"""

import asyncio
import importlib.util
import inspect
import json
import os
import sys

from faults import orders


def loaded(path):
    spec = importlib.util.spec_from_file_location("fault_adapter", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fault_adapter"] = module
    spec.loader.exec_module(module)
    return module


async def run(session, prompt, stream):
    """What the framework returns; of a stream it is counts, so the answer is what the server sent
    last.
    """
    method = getattr(session, "astream" if stream else "arun", None)
    if method is not None:
        return await method(prompt)
    return await asyncio.to_thread(getattr(session, "stream" if stream else "run"), prompt)


async def main(path, url):
    report = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # frameworks print what they do
    known_types()
    module = loaded(path)
    session = None
    say(report, {"loaded": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        task = json.loads(line)
        orders.PLACED.clear()
        answer = error = None
        try:
            session = session or module.Session(url, list(orders.TOOLS))
            answer = await run(session, task["prompt"], task["stream"])
        except BaseException as problem:  # noqa: BLE001  boundary: whatever a framework raises ends its run and no other
            error = described(problem)
        text = answer if isinstance(answer, str) else json.dumps(answer, default=str)
        say(report, {"answer": None if error else text, "error": error, "placed": orders.PLACED})


def say(report, said):
    report.write("@@" + json.dumps(said, default=str) + "\n")
    report.flush()


def known_types():
    """The hand-written loops make schemas of the types they know: lists are new to them."""
    try:
        import bench_loop
    except ImportError:
        return
    for tool in orders.TOOLS:
        for parameter in inspect.signature(tool, eval_str=True).parameters.values():
            if parameter.annotation not in bench_loop.TYPES:
                bench_loop.TYPES[parameter.annotation] = "array"


def described(problem):
    inner = problem.__cause__ or problem
    return f"{type(problem).__name__}: {str(problem) or repr(inner)}"[:300]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
