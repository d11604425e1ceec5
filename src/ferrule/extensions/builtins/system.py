"""`time`, `uuid`, `os`, `env`, `random` and `sleep`: what a script may know of where it runs.

os.cwd()       "." always: paths are relative to the workspace, whose location scripts do not learn
os.hostname()  "localhost", or what the person provided (`ScriptEnvironment.hostname`)
os.platform()  "linux" or "darwin": the kind of system, which every program it starts can see
os.args()      what the person provided (`ScriptEnvironment.arguments`), else empty; not this
process's
               command line
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

from ferrule.permissions.child_environment import filter_environment

from .scope import Scope, usage_error

LONGEST_SLEEP = 60_000


async def now(scope: Scope) -> float:
    return time.time()


async def random_uuid(scope: Scope) -> str:
    return str(uuid4())


async def timed_uuid(scope: Scope) -> str:
    """Return a version 7 UUID of RFC 9562: 48 bits of milliseconds, the rest random.

    Later ones sort later.
    """
    milliseconds = time.time_ns() // 1_000_000 & (1 << 48) - 1
    number = milliseconds << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    return str(UUID(int=number & ~(0x3 << 62) | 2 << 62))


async def cwd(scope: Scope) -> str:
    return "."


async def hostname(scope: Scope) -> str:
    return scope.environment.hostname


async def platform(scope: Scope) -> str:
    return sys.platform


async def args(scope: Scope) -> list[str]:
    return [*scope.environment.arguments]


async def env(scope: Scope, name: str, default: Any = None) -> Any:
    return filter_environment(scope.environment.variables).values.get(name, default)


async def random_number(scope: Scope, min: int, max: int) -> int:
    if not min < max:
        raise usage_error(f"`random`: {min} is not less than {max}")
    return random.randint(min, max)


async def sleep(scope: Scope, ms: float) -> None:
    if not 0 <= ms <= LONGEST_SLEEP:
        raise usage_error(f"`sleep`: {ms} ms; at most {LONGEST_SLEEP}")
    await asyncio.sleep(ms / 1000)


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "time.now": now,
    "uuid.v4": random_uuid,
    "uuid.v7": timed_uuid,
    "os.cwd": cwd,
    "os.hostname": hostname,
    "os.platform": platform,
    "os.args": args,
    "env": env,
    "random": random_number,
    "sleep": sleep,
}
