"""The tools every framework is given: plain annotated functions with Google-style docstrings."""

import asyncio
import importlib.util
import os
import tempfile
import time

active = peak = 0  # how many naps are, and at most were, under way at once


def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: First addend.
        b: Second addend.
    """
    return a + b


def nap(i: int) -> str:
    """Sleep 20 ms (blocking).

    Args:
        i: Number of this nap.
    """
    global active, peak
    active += 1
    peak = max(peak, active)
    time.sleep(0.02)
    active -= 1
    return f"napped-{i}"


async def anap(i: int) -> str:
    """Sleep 20 ms (async).

    Args:
        i: Number of this nap.
    """
    global active, peak
    active += 1
    peak = max(peak, active)
    await asyncio.sleep(0.02)
    active -= 1
    return f"napped-{i}"


def write_file(path: str, content: str) -> str:
    """Write a file (here: only count what arrived).

    Args:
        path: Where to write.
        content: What to write.
    """
    return f"wrote {len(content)} chars"


CATALOG_TOOL = '''
def tool_{i:04d}(path: str, limit: int = 10, recursive: bool = False, mode: str = "fast") -> str:
    """Look up records of kind {i:04d} in the workspace index and return the best matches.

    Args:
        path: Directory or file that the lookup starts from.
        limit: Greatest number of records to return.
        recursive: Whether to descend into subdirectories.
        mode: Either "fast" or "exact".
    """
    return path
'''


def catalog(n):
    """n distinct tools, as functions of a real module file (some frameworks read the source)."""
    fd, path = tempfile.mkstemp(suffix=".py", prefix="ferrule_bench_catalog_")
    try:
        with os.fdopen(fd, "w") as f:
            f.write("".join(CATALOG_TOOL.format(i=i) for i in range(n)))
        spec = importlib.util.spec_from_file_location("bench_catalog", path)
        mod = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(mod)
        import linecache

        linecache.getlines(path)  # keep the source readable after the file is gone
        linecache.cache[path] = (len(linecache.cache[path][2]), None, *linecache.cache[path][2:])
    finally:
        os.unlink(path)
    return [getattr(mod, f"tool_{i:04d}") for i in range(n)]
