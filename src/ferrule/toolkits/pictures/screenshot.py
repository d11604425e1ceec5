"""`vision::screenshot`: a web page as a picture, drawn by a headless Chromium.

The browser is confined like a command, in an empty folder, without anything of the person's: no
cookies, no profile, no workspace. All that it loads goes through the sandbox's proxy, which asks
`PageHosts`. Its own sandbox is off: it needs namespaces that ours does not let it make, and ours
holds for all of its processes. Without a sandbox that has the proxy it does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.media import Image, MediaOptions
from ferrule.engine.threads import run_blocking
from ferrule.engine.usable_tools import UsableTools
from ferrule.engine.web.domains import AllowedDomains, parse_url
from ferrule.models.http.dialing import Target
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import TrustedProgram
from ferrule.sandbox.command import Capture, CommandResult
from ferrule.sandbox.inside.kernel.proxy_ports import PORT
from ferrule.sandbox.network.allowed_hosts import InvalidHost, canonicalize_host
from ferrule.sandbox.network.proxy import ConnectionAttempt
from ferrule.sandbox.policy import ResourceLimits
from ferrule.toolkits.confined_program import (
    EmptyFolder,
    OpenedNetwork,
    describe_failure,
    find_confined,
    open_empty_folder,
)
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import URL
from ferrule.tools.media_types import MAX_BYTES

MAX_SECONDS = 45.0
"""Time for one page, in seconds."""
BOUNDS = ResourceLimits(memory=4 * 1024**3, processes=512, file_size=256 * 1024**2)
WIDTHS = range(240, 3841)
HEIGHTS = range(240, 10_001)
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALL_HINT = "`apt install chromium`"
_FILE = "page.png"
_MAX_REFUSALS = 10
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--user-data-dir=/tmp/profile",
    "--no-first-run",
    "--disable-extensions",
    # Less that it does by itself; what it asks its makers for anyway, `PageHosts` refuses.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--proxy-server=http://127.0.0.1:{PORT}",
    "--proxy-bypass-list=<-loopback>",
    "--hide-scrollbars",
    # What a script draws within two seconds is in the picture; nobody waits for the seconds.
    "--virtual-time-budget=2000",
    f"--screenshot={_FILE}",
)


def _impossible(values: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    for name, allowed in (("width", WIDTHS), ("height", HEIGHTS)):
        given = values.get(name)
        if given is not None and given not in allowed:
            problems.append(f"`{name}` must be from {allowed[0]} to {allowed[-1]}, found {given}")
    return problems


@tool(
    namespace="vision",
    side_effect="external",
    risk="medium",
    timeout=MAX_SECONDS + 15,
    impossible=_impossible,
    examples=[
        {"request": "What does example.org look like?", "arguments": {"url": "https://example.org"}}
    ],
)
async def screenshot(
    url: Annotated[str, URL, "The http or https address of the page."],
    context: Context,
    width: Annotated[int, "Pixels of the window."] = 1280,
    height: Annotated[int, "Pixels of the window; more shows more of a long page."] = 900,
) -> list[str | Image]:
    """Draw a web page as a browser shows it to somebody who is not signed in, and return the
    picture. What the page may not load is named.
    """
    target = parse_url(url)
    hosts = _page_hosts(context, target)
    refusal = hosts.refusal(target.host, target.port)
    if refusal:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"network sandbox: `{target.url[:200]}` was not drawn: {refusal}",
        )
    program = find_confined(_PROGRAMS, context, _INSTALL_HINT)
    attempts: list[ConnectionAttempt] = []
    network = OpenedNetwork(_place(target), hosts, attempts.append)
    async with open_empty_folder(context, BOUNDS, network) as folder:
        data = await _draw(folder, program, target, width, height)
    # What went through the proxy is known when the sandbox is closed.
    _check_reached(target, attempts)
    return [*_describe_refusals(target, attempts), Image.from_bytes(data, name=_FILE)]


def _page_hosts(context: Context, target: Target) -> PageHosts:
    options = context.resources.get(MediaOptions)
    domains = options.domains if isinstance(options, MediaOptions) else ()
    usable = context.resources.get(UsableTools)

    def find_denial(url: str) -> str:
        if not isinstance(usable, UsableTools):
            return ""
        decision = usable.decide(screenshot, {"url": url})
        return decision.reason if decision.verdict == "deny" else ""

    return PageHosts(AllowedDomains.parse(domains), find_denial, target.host)


def _place(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{host}:{target.port}"


async def _draw(
    folder: EmptyFolder, program: TrustedProgram, target: Target, width: int, height: int
) -> bytes:
    if folder.sandbox.protections().backend == "none":
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "the page was not drawn: nothing confines the browser here, and it would reach every "
            "host; `ferrule doctor` tells what a sandbox needs",
        )
    errors = Capture(4096, 4096)
    ended = await folder.run(
        program,
        [*_FLAGS, f"--window-size={width},{height}", target.url],
        output=errors,
        errors=errors,
        seconds=MAX_SECONDS,
    )
    if ended.timed_out:
        raise ToolFailed(
            ErrorType.TIMEOUT, f"`{target.url[:200]}` was not drawn within {MAX_SECONDS:g} seconds"
        )
    return await run_blocking(lambda: _read_picture(folder, ended, errors))


def _read_picture(folder: EmptyFolder, ended: CommandResult, errors: Capture) -> bytes:
    # As a tool would: the browser could have left a link to any file in the picture's place.
    try:
        return Workspace(folder.path).read(_FILE, limit=MAX_BYTES)
    except ToolFailed as error:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            f"the browser left no picture ({describe_failure(ended, errors)})",
        ) from error


def _check_reached(target: Target, attempts: Sequence[ConnectionAttempt]) -> None:
    """Raise ToolFailed if the page was not reached: the picture shows the browser's own error."""
    own = [one for one in attempts if (one.host, one.port) == (target.host, target.port)]
    if any(one.received for one in own):
        return
    reason = next((one.reason for one in own if one.reason), "the connection broke")
    raise ToolFailed(ErrorType.IO_ERROR, f"`{target.authority}` could not be reached: {reason}")


def _describe_refusals(target: Target, attempts: Sequence[ConnectionAttempt]) -> list[str]:
    """Return a line that names the hosts which the page was refused; none if there are none."""
    refused = {
        f"`{one.host}`": one.reason
        for one in attempts
        if not one.allowed and one.reason not in ("", BROWSER_ITSELF)
    }
    if not refused:
        return []
    shown = list(refused)[:_MAX_REFUSALS]
    left = len(refused) - len(shown)
    more = f" and {left} more" if left else ""
    reason = next(iter(refused.values()))
    return [f"`{target.authority}` could not load from {', '.join(shown)}{more}: {reason}"]


BROWSER_ITSELF = "the browser asks for it by itself, not for the page"
_BROWSER_HOSTS = frozenset(
    {
        "accounts.google.com",
        "android.clients.google.com",
        "clients2.google.com",
        "content-autofill.googleapis.com",
        "edgedl.me.gvt1.com",
        "mtalk.google.com",
        "optimizationguide-pa.googleapis.com",
        "redirector.gvt1.com",
        "safebrowsing.googleapis.com",
        "update.googleapis.com",
    }
)
"""What Chromium asks for at every start, whatever options forbid it (seen with version 156)."""


class PageHosts:
    """The hosts of one page; see `sandbox.network.allowed_hosts.HostRules`.

    Args:
        domains: The hosts that may be reached.
        find_denial: Returns why the session's rules deny an address, else "".
        page_host: The host of the page itself, in canonical form.
    """

    includes_loopback = True
    """The browser asks for this machine through the proxy, too, where `domains` decide about it."""

    def __init__(
        self, domains: AllowedDomains, find_denial: Callable[[str], str], page_host: str
    ) -> None:
        self._domains = domains
        self._page_host = page_host
        self._find_denial = find_denial
        self._denials: dict[str, str] = {}

    def refusal(self, host: str, port: int) -> str | None:
        try:
            host = canonicalize_host(host)
        except InvalidHost as problem:
            return f"the host is refused: {problem}"
        if host in _BROWSER_HOSTS and host != self._page_host:
            return BROWSER_ITSELF
        return self._domains.refusal_reason(host) or self._denial(host) or None

    def _denial(self, host: str) -> str:
        # A page loads a hundred files from one host.
        if host not in self._denials:
            shown = f"[{host}]" if ":" in host else host
            self._denials[host] = self._find_denial(f"https://{shown}/")
        return self._denials[host]

    def address_refusal(self, host: str, port: int, address: str) -> str | None:
        return self._domains.address_refusal_reason(canonicalize_host(host), address)
