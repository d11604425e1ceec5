"""What commands may do, as a profile for the sandbox of macOS. Pure text, never tried on a Mac.

    argv = ["/usr/bin/sandbox-exec", "-p",
            build_profile(openings, masks, system=…, temporary=…), program, *arguments]

The language is SBPL as Apple's own profiles in /System/Library/Sandbox/Profiles write it; it is not
documented, and `sandbox-exec` is deprecated, though browsers and package managers use it. The last
rule that matches decides, so the profile denies everything, opens, and closes names again.

Because nobody has run it, `selection` gives no protection more than `partly` for it, and it is not
used unless a person agrees to that. Known differences from the other backends: names stay visible
in listings of folders; memory is not limited; services of the system (Mach) are reduced to those
that libc and dyld need.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.permissions.provenance import CommandWritable, Origin, TrustedPath, trust_path
from ferrule.sandbox.view.masks import Mask
from ferrule.sandbox.view.openings import Openings

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
"""What commands may read and run, where commands cannot write it (`find_system_folders`)."""

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


def find_system_folders(writable: CommandWritable) -> tuple[TrustedPath, ...]:
    """Return what of `SYSTEM` commands cannot write.

    Args:
        writable: What commands can write.
    """
    return tuple(
        trust_path(path, Origin.MACHINE, writable, reason="a folder of the system")
        for path in SYSTEM
        if not writable.contains(path)
    )


def build_profile(
    openings: Openings,
    masks: Iterable[Mask],
    *,
    system: Iterable[TrustedPath],
    temporary: TrustedPath,
    toolchains: Iterable[TrustedPath] = (),
) -> str:
    """Return the profile.

    Args:
        openings: The workspace, and what a person opened besides.
        masks: Protected names of the workspace.
        system: What of the machine commands may read and run.
        temporary: The session's folder for `TMPDIR`.
        toolchains: Read-only folders of the home.
    """
    readable: tuple[TrustedPath, ...] = (*system, *toolchains, *openings.select("read"))
    writable: tuple[TrustedPath, ...] = (
        openings.root,
        temporary,
        *openings.select("write"),
        *openings.select("scratch"),
    )
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        *(f"(allow mach-lookup (global-name {quote(name)}))" for name in _SERVICES),
        "(allow file-read-metadata)",
        _rule("allow file-read* file-write-data", "literal", _DEVICES),
        _rule("allow file-read*", "literal", ("/",)),
        _rule("allow file-read* process-exec", "subpath", readable),
        _rule("allow file-read* file-write* process-exec", "subpath", writable),
        "(deny network*)",
        *_closing_rules(openings.root, masks),
    ]
    return "\n".join(lines) + "\n"


def _closing_rules(workspace: TrustedPath, masks: Iterable[Mask]) -> Iterable[str]:
    """Yield the rules that close names again.

    These are the masks, and reserved names wherever they would be created.
    """
    for mask in masks:
        if mask.kind == "read_only":
            yield _rule("deny file-write*", "subpath", (mask.path,))
        elif mask.kind == "text":
            # There is no way to show another content: git does without its configuration here.
            yield _rule("deny file-read-data file-write*", "literal", (mask.path,))
        else:
            yield _rule("deny file-read* file-write* process-exec", "subpath", (mask.path,))
    root = _expression(workspace)
    yield f'(deny file-write* (regex #"^{root}/agents(/|$)"))'
    yield f'(deny file-write* (regex #"^{root}/(.*/)?[.](ferrule|harness)(/|$)"))'
    yield (
        "(deny file-write* (regex "
        f'#"^{root}/(.*/)?[.]git/(.*/)?(hooks|config|config[.][^/]*)(/|$)"))'
    )


def _rule(action: str, filter_name: str, paths: Iterable[str]) -> str:
    filters = "".join(f"\n    ({filter_name} {quote(path)})" for path in dict.fromkeys(paths))
    return f"({action}{filters})"


def quote(text: str) -> str:
    """Return a string of the profile's language. A path cannot end it early."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'


def _expression(path: str) -> str:
    """Return a regular expression that matches exactly this path.

    Whatever is not a letter or digit becomes a class of its own.
    """
    return "".join(map(_character_pattern, path))


def _character_pattern(character: str) -> str:
    if character.isalnum() or character in "/_-":
        return character
    return "." if character in '^]\\"' else f"[{character}]"
