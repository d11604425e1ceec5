"""What tells programs about the proxy: variables for the environment of a confined command.

Programs that read none of these reach nothing. Java is one (`-Dhttps.proxyHost` and its like are
options, and `JAVA_TOOL_OPTIONS` makes every start print a line); ssh is another. `PIP_PROXY` is not
set on purpose: pip follows `HTTPS_PROXY`, and with an option of its own it would ask the proxy for
127.0.0.1, too.
"""

from __future__ import annotations

LOOPBACK = "localhost,127.0.0.1,::1"


def proxy_environment(port: int, *, loopback_outside: bool = False) -> dict[str, str]:
    """Variables that lead to a proxy on this port of 127.0.0.1, in the spellings that common
    programs read.

    The loopback is the command's own (a test that asks a server it started), unless
    `loopback_outside`: a person opened this machine's (`Hosts.this_machine`), then it is asked for
    through the proxy as well.
    """
    proxy = f"http://127.0.0.1:{port}"
    excepted = "" if loopback_outside else LOOPBACK
    values: dict[str, str] = {}
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        values[name] = values[name.upper()] = proxy
    values["no_proxy"] = values["NO_PROXY"] = excepted
    values["npm_config_proxy"] = values["npm_config_https_proxy"] = proxy
    values["npm_config_noproxy"] = excepted
    values["NODE_USE_ENV_PROXY"] = "1"
    return values
