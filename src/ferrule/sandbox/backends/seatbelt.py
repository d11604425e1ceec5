"""A policy as a profile for Seatbelt, the sandbox of macOS. Pure text, never tried on a Mac.

    argv = ["/usr/bin/sandbox-exec", "-p", profile(policy, masks, home=…, temporary=…,
    toolchains=…), program, *words]

The language is SBPL as Apple's own profiles in /System/Library/Sandbox/Profiles write it; it is not
documented, and `sandbox-exec` is deprecated, though it is what browsers and package managers use.
The last rule that matches decides, so the profile denies all, opens, and closes names again.

Because nobody has run it, `selection` gives no aspect more than `partly` for it, and it is not
chosen unless a person agrees to that. Differences from the other rungs that are known beforehand:
names stay visible in listings of folders; no bound on memory; services of the system (Mach) are
reduced to those that libc and dyld need.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.sandbox.policy import Policy
from ferrule.sandbox.view.masks import Mask

SYSTEM = (
    "/System",
    "/usr",
    "/bin",
    "/sbin",
    "/Library/Developer",
    "/Library/Apple",
    "/Library/Frameworks",
    "/opt/homebrew",
    "/opt/local",
    "/private/etc/hosts",
    "/private/etc/ssl",
    "/private/etc/localtime",
    "/private/etc/passwd",
    "/private/etc/protocols",
    "/private/etc/services",
    "/private/etc/shells",
    "/private/var/db/timezone",
    "/private/var/db/dyld",
    "/private/var/select",
)
"""What commands may read and run."""

_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/fd",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
)
_SERVICES = (
    "com.apple.system.notification_center",
    "com.apple.system.logger",
    "com.apple.system.opendirectoryd.libinfo",
)


def profile(
    policy: Policy, masks: Iterable[Mask], *, temporary: str, toolchains: Iterable[str] = ()
) -> str:
    """The profile. `temporary` is the session's folder for `TMPDIR`, `toolchains` are read-only
    folders of the home.
    """
    readable = (*SYSTEM, *toolchains, *policy.readable)
    writable = (str(policy.root), temporary, *policy.writable)
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        *(f"(allow mach-lookup (global-name {quoted(name)}))" for name in _SERVICES),
        "(allow file-read-metadata)",
        _rule("allow file-read* file-write-data", "literal", _DEVICES),
        _rule("allow file-read*", "literal", ("/",)),
        _rule("allow file-read* process-exec", "subpath", readable),
        _rule("allow file-read* file-write* process-exec", "subpath", writable),
        "(deny network*)",
        *_names(policy, masks),
    ]
    return "\n".join(lines) + "\n"


def _names(policy: Policy, masks: Iterable[Mask]) -> Iterable[str]:
    """What is closed again: what the scan found, and reserved names wherever they would be made."""
    for mask in masks:
        if mask.kind == "read_only":
            yield _rule("deny file-write*", "subpath", (mask.path,))
        elif mask.kind == "text":
            # There is no way to show another content: git does without its configuration here.
            yield _rule("deny file-read-data file-write*", "literal", (mask.path,))
        else:
            yield _rule("deny file-read* file-write* process-exec", "subpath", (mask.path,))
    root = _expression(str(policy.root))
    yield f'(deny file-write* (regex #"^{root}/agents(/|$)"))'
    yield f'(deny file-write* (regex #"^{root}/(.*/)?[.](ferrule|harness)(/|$)"))'
    yield (
        "(deny file-write* (regex "
        f'#"^{root}/(.*/)?[.]git/(.*/)?(hooks|config|config[.][^/]*)(/|$)"))'
    )


def _rule(what: str, match: str, paths: Iterable[str]) -> str:
    named = "".join(f"\n    ({match} {quoted(path)})" for path in dict.fromkeys(paths))
    return f"({what}{named})"


def quoted(text: str) -> str:
    """A string of the profile's language: a path cannot end it early."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'


def _expression(path: str) -> str:
    """A path inside a regular expression: whatever is not a letter or digit is a class of its
    own.
    """
    return "".join(
        c if c.isalnum() or c in "/_-" else f"[{c}]" if c not in '^]\\"' else "." for c in path
    )
