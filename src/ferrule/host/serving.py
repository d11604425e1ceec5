"""Serving an application on an address: what all servers of ours have in common.

A server here has a token, also on this machine: other programs and other people's pages reach loopback too. It comes out of a file or
`FERRULE_TOKEN`, or is made for this process and shown to whoever started it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.models.proxies import loopback

from .door import Application

VARIABLE = "FERRULE_TOKEN"


def token_of(file: Path | None) -> tuple[str, bool]:
    """The server's token, and whether it was made just now. Raises ConfigError for a file that cannot be read."""
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip(), False
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token in `{file}`: {error}") from error
    given = os.environ.get(VARIABLE, "")
    return (given, False) if given else (secrets.token_urlsafe(32), True)


def address_of(host: str, port: int, url: str = "") -> str:
    """How clients reach the server: `url`, or this address. Raises ConfigError where the token would go over a network in the clear."""
    if not loopback(host) and not url.startswith("https://"):
        raise ConfigError(
            f"serving on `{host}` would send the token in the clear",
            hint="serve on 127.0.0.1, put a proxy with TLS before it, and say its `url`",
        )
    return (url or f"http://{host}:{port}").rstrip("/")


def hosts_of(host: str, port: int, url: str) -> frozenset[str]:
    """What clients of this server write as `Host`."""
    return frozenset({f"{host}:{port}", f"localhost:{port}", url.partition("://")[2].partition("/")[0]})


async def serve(app: Application, host: str, port: int) -> None:
    """Serve until the process is told to end (SIGINT, SIGTERM)."""
    import uvicorn

    config = uvicorn.Config(app, host=host, port=port, log_level="warning", lifespan="off", ws="none")
    server: Any = uvicorn.Server(config)
    await server.serve()
