"""The same view as `layout` describes, as a command line for bubblewrap. Pure; bwrap(1), 0.4 and
later.

    steps = [*layout(policy, found), *finishing(masks, texts, policy.root)] argv =
    bubblewrap_argv(probes.bwrap, steps, found.places, directory="/work", program="/bin/sh",
    argv=("sh", "-c", "…"))

For machines where Ferrule may make no namespaces itself but a bubblewrap of the system may. What it
starts is to be the first process of the view (`--as-pid-1`): no command can signal that one.

Not protected: `/dev` holds what bubblewrap puts there; a mask over a link would cover what the link
leads to, so there is none, and who mediates keeps the link in its place. There is no preview.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ferrule.sandbox.view.layout import HELD, Places, Step

_ALONE = ("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL")


def bubblewrap_argv(
    bwrap: str,
    steps: Iterable[Step],
    places: Places,
    *,
    directory: str,
    program: str,
    argv: Sequence[str],
    rights: Sequence[str] = (),
) -> tuple[str, ...]:
    """What to start in place of `argv`. `directory` is where it starts, as seen in the view;
    `rights` are words that leave it some.

    bubblewrap cannot give a program another first word than its path: `argv[0]` is what is looked
    up, unless `program` is a path. Raises ValueError for a step that it cannot carry out (an
    overlay).
    """
    words = [bwrap, *_ALONE, *rights]
    for step in _without_devices(steps):
        words += _words(step, places)
    return (*words, "--chdir", directory, "--", program, *argv[1:])


def sees(path: str, steps: Iterable[Step]) -> bool:
    """Whether a file of the machine is at its own path in the view."""
    places = [
        place for kind, place, source in steps if kind in ("read", "write") and place == source
    ]
    return any(path.startswith(f"{place.rstrip('/')}/") for place in places)


def _without_devices(steps: Iterable[Step]) -> Iterator[Step]:
    """bubblewrap makes `/dev` itself, and needs what is held from outside."""
    made = False
    for kind, path, rest in steps:
        if path == "/dev" or path.startswith("/dev/"):
            if not made:
                yield "dev", "/dev", ""
            made = True
        elif path != HELD:
            yield kind, path, rest


def _words(step: Step, places: Places) -> tuple[str, ...]:
    kind, path, rest = step
    match kind:
        case "link":
            return ("--symlink", rest, path)
        case "read":
            return ("--ro-bind", rest, path)
        case "write":
            return ("--bind", rest, path)
        case "cover":
            return ("--ro-bind", _held(rest, places), path)
        case "hold":
            return ("--ro-bind", path, path)
        case "folder":
            return ("--perms", rest.zfill(4), "--dir", path)
        case "tmpfs":
            mode = re.search(r"mode=([0-7]+)", rest)
            return ("--perms", (mode[1] if mode else "755").zfill(4), "--tmpfs", path)
        case "dev":
            return ("--dev", path)
        case "proc":
            return ("--proc", path)
        case "seal":
            return ("--remount-ro", path)
        case _:
            raise ValueError(f"bubblewrap has no `{kind}` ({path})")


def _held(path: str, places: Places) -> str:
    """Where a thing of the session's lies outside."""
    return places.held + path.removeprefix(HELD) if path.startswith(HELD + "/") else path
