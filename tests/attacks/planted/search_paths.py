"""Programs that are planted in a folder of the PATH, before the real one.

A row is its name, the entry of PATH, the script that plants `tool` there, and what it did to the
code before. `<W>` is the workspace, `<H>` the home with `<H>/shared`, which was opened for
writing. `$PLANT` is a program that can be copied.
"""

from __future__ import annotations

from . import CONTROL, FAILED, Before

LINKS = {"to-tools": "<W>/tools", "to-file/tool": "<W>/tools/tool", "to-up": "<W>/up"}
"""Links in the home, each with where it leads."""

PLANTED: tuple[tuple[str, str, str, Before], ...] = (
    ("environment", "<W>/.venv/bin", "mkdir -p .venv/bin; cp $PLANT .venv/bin/tool", FAILED),
    ("other-environment", "<W>/env/bin", "mkdir -p env/bin; cp $PLANT env/bin/tool", FAILED),
    ("node", "<W>/node_modules/.bin", "mkdir -p node_modules/.bin; cp $PLANT node_modules/.bin/tool", FAILED),
    ("cargo", "<W>/target/release", "mkdir -p target/release; cp $PLANT target/release/tool", FAILED),
    ("tools", "<W>/bin", "mkdir bin; cp $PLANT bin/tool", FAILED),
    ("workspace", "<W>", "cp $PLANT tool", FAILED),
    ("relative", ".", "cp $PLANT tool", CONTROL),
    ("relative-below", "./bin", "mkdir bin; cp $PLANT bin/tool", CONTROL),
    ("nothing", "", "cp $PLANT tool", CONTROL),
    ("opened", "<H>/shared/bin", "mkdir <H>/shared/bin; cp $PLANT <H>/shared/bin/tool", FAILED),
    ("link-in-the-workspace", "<W>/b", "mkdir real; cp $PLANT real/tool; ln -s real b", FAILED),
    ("link-of-a-link", "<W>/b", "mkdir real; cp $PLANT real/tool; ln -s real a; ln -s a b", FAILED),
    ("link-to-a-folder", "<H>/to-tools", "mkdir tools; cp $PLANT tools/tool", FAILED),
    ("link-to-a-file", "<H>/to-file", "mkdir tools; cp $PLANT tools/tool", FAILED),
    ("link-above-the-folder", "<H>/to-up/bin", "mkdir -p up/bin; cp $PLANT up/bin/tool", FAILED),
    ("way-around", "<H>/shared/../work/project/bin", "mkdir bin; cp $PLANT bin/tool", FAILED),
)  # fmt: skip
