"""Web hooks: an event is posted as JSON to an allowed server, which answers like a command.

The host must be in `allowed` and resolve to an address of the open internet, unless the entry says
otherwise (`engine.web`). A redirect to another host, any status but 2xx, an answer above 64 KiB
and a timeout all count as broken. Header values may name variables of the environment, `$NAME`, if
`allowed_variables` lists them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import Action, NotJson
from ferrule.engine.web.domains import AllowedDomains, parse_url
from ferrule.engine.web.fetch import WebClient

from .claude_contract import HookQuestion

MAX_ANSWER = 64 * 1024
"""Characters of one answer."""
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


class WebHook:
    """A URL that is asked about events.

    Raises ConfigError if its host is not allowed, before anything is sent.
    """

    def __init__(
        self,
        url: str,
        allowed: Iterable[str],
        *,
        headers: Mapping[str, str] | None = None,
        allowed_variables: Iterable[str] = (),
    ) -> None:
        entries = tuple(allowed)
        target = parse_url(url)
        domains = AllowedDomains.parse(entries)
        reason = (
            domains.refusal_reason(target.host) if entries else "no hosts are allowed for hooks"
        )
        if reason is not None:
            raise ConfigError(
                f"the hook's address `{url}` is refused: {reason}",
                hint="add its host to the setting `hooks.hosts`",
            )
        self._url = url
        self._host = target.host
        # Only its own host: the payload must not follow a redirect elsewhere.
        own = AllowedDomains.parse((target.host,))
        self._web = WebClient(domains.intersect(own))
        self._headers = dict(headers or {})
        self._variables = frozenset(allowed_variables)

    async def ask(self, question: HookQuestion, timeout: float) -> Action:
        """Let the server judge an event. Raises ToolFailed or NotJson if the hook is broken."""
        body = json.dumps(question.build_input(), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        headers = {"content-type": "application/json"}
        headers |= {name: self._expand(value) for name, value in self._headers.items()}
        answer = await self._web.fetch("POST", self._url, headers, body, timeout)
        if parse_url(answer["url"]).host != self._host:
            raise NotJson(f"`{self._url}` redirected to another host")
        if not answer["ok"]:
            raise NotJson(f"`{self._url}` answered {answer['status']}")
        if answer["truncated"] or len(answer["body"]) > MAX_ANSWER:
            raise NotJson(f"`{self._url}` answered with more than {MAX_ANSWER} characters")
        return question.parse_output(answer["body"])

    def _expand(self, value: str) -> str:
        def variable(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name not in self._variables or name not in os.environ:
                raise NotJson(
                    f"its header names `${name}`, which is not set or not among the allowed "
                    "variables"
                )
            return os.environ[name]

        return _VARIABLE.sub(variable, value)
