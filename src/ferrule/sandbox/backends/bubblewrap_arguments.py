"""The view that `layout` describes, as a bubblewrap command line. Pure; bwrap(1), 0.4 or later.

    steps = [*layout(policy, found), *finishing(masks, texts, policy.root)]
    argv = bubblewrap_argv(probes.bwrap, steps, found.places, directory="/work",
                           program="/bin/sh", argv=("sh", "-c", "…"))

For machines where Ferrule itself may make no namespaces but a bubblewrap of the system may. What it
starts is to be the first process of the view (`--as-pid-1`): no command can signal that one.

Not protected: `/dev` holds what bubblewrap puts there; a mask over a link would cover what the link
leads to, so there is none, and the mediator keeps the link in its place. There is no preview.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ferrule.permissions.provenance import TrustedProgram
from ferrule.sandbox.view.layout import HELD_FOLDER, SessionPaths, Step

_ISOLATION = (
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--as-pid-1",
    "--cap-drop",
    "ALL",
)

_OPTIONS_FOR_TWO_PATHS = {"link": "--symlink", "read": "--ro-bind", "write": "--bind"}
_OPTIONS_FOR_ONE_PATH = {"dev": "--dev", "proc": "--proc", "seal": "--remount-ro"}


def bubblewrap_argv(
    bwrap: TrustedProgram,
    steps: Iterable[Step],
    places: SessionPaths,
    *,
    directory: str,
    program: str,
    argv: Sequence[str],
    rights: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what to start in place of `argv`.

    bubblewrap cannot give a program another name than its path: `argv[0]` is what is looked up,
    unless `program` is a path.

    Args:
        bwrap: The bubblewrap that is started.
        steps: The steps that make the view.
        places: The session's own folders.
        directory: Where the program starts, as seen in the view.
        program: Path of the program.
        argv: Its words, the first of which is its name.
        rights: Options of bubblewrap that leave the program some rights.

    Raises:
        ValueError: bubblewrap cannot carry out a step (an overlay).
    """
    arguments = [str(bwrap), *_ISOLATION, *rights]
    for step in _adapt_steps(steps):
        arguments += _options(step, places)
    return (*arguments, "--chdir", directory, "--", program, *argv[1:])


def is_visible(path: str, steps: Iterable[Step]) -> bool:
    """Return whether a file of the machine is at its own path in the view."""
    return any(
        path.startswith(f"{place.rstrip('/')}/")
        for action, place, source in steps
        if action in ("read", "write") and place == source
    )


def _adapt_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Replace the steps for `/dev`, which bubblewrap builds, and drop the one for our own folder.

    bubblewrap takes what is in that folder from its place outside.
    """
    has_dev = False
    for action, path, detail in steps:
        if path == "/dev" or path.startswith("/dev/"):
            if not has_dev:
                yield "dev", "/dev", ""
            has_dev = True
        elif path != HELD_FOLDER:
            yield action, path, detail


def _options(step: Step, places: SessionPaths) -> tuple[str, ...]:
    action, path, detail = step
    if action in _OPTIONS_FOR_TWO_PATHS:
        return (_OPTIONS_FOR_TWO_PATHS[action], detail, path)
    if action in _OPTIONS_FOR_ONE_PATH:
        return (_OPTIONS_FOR_ONE_PATH[action], path)
    match action:
        case "cover":
            return ("--ro-bind", outside_path(detail, places), path)
        case "hold":
            return ("--ro-bind", path, path)
        case "folder":
            return ("--perms", detail.zfill(4), "--dir", path)
        case "tmpfs":
            mode = re.search(r"mode=([0-7]+)", detail)
            return ("--perms", (mode[1] if mode else "755").zfill(4), "--tmpfs", path)
        case _:
            raise ValueError(f"bubblewrap has no `{action}` ({path})")


def outside_path(path: str, places: SessionPaths) -> str:
    """Return where something in the session's own folder lies outside."""
    return (
        places.held + path.removeprefix(HELD_FOLDER) if path.startswith(HELD_FOLDER + "/") else path
    )
