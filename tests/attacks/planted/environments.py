"""Environments that are planted in a workspace to open a folder that commands do not see.

A row is its name, the script that plants it, run in the workspace, and what it did to the code
before. `<H>` is the person's home. Afterwards everything below the home and the workspace is read,
with links followed. Nothing that lies outside of the workspace may be printed.
"""

from __future__ import annotations

from . import CONTROL, FAILED, Row

_VENV = "mkdir -p {0}/bin && echo 'home = <H>/{1}' > {0}/pyvenv.cfg"
"""An environment whose configuration names a folder."""

_TARGETS = (
    "",
    ".config",
    ".config/gh",
    ".claude",
    ".local",
    ".local/share/keyrings",
    ".local/state/ferrule",
    ".mozilla",
    "Documents",
    "code/other",
)
"""Folders of the person's."""

PLANTED: tuple[Row, ...] = (
    # A link where an environment has its programs.
    *(
        (f"venv-bin-to-{target or 'home'}", f"mkdir venv && ln -s <H>/{target} venv/bin", FAILED if target else CONTROL)
        for target in _TARGETS
    ),
    ("venv-bin-relative", "mkdir venv && ln -s ../../../.config venv/bin", FAILED),
    ("dot-venv-is-a-link", "ln -s <H>/code/other .venv", FAILED),
    ("env-bin", "mkdir env && ln -s <H>/Documents env/bin", FAILED),
    ("link-to-a-link", "ln -s <H>/Documents step && mkdir venv && ln -s ../step venv/bin", FAILED),
    ("link-above", "ln -s <H>/code up && ln -s up/other .venv", FAILED),
    # A part of an environment of each kind.
    *(
        (
            f"venv-{part}",
            f"mkdir -p .venv/bin && touch .venv/pyvenv.cfg && ln -s <H>/Documents .venv/{part}",
            FAILED,
        )
        for part in ("lib", "lib64", "share", "etc", "include", "libexec")
    ),
    (
        "virtualenv-lib",
        "mkdir -p .venv/bin && echo 'version = 20' > .venv/pyvenv.cfg && touch .venv/bin/python3 "
        "&& ln -s <H>/code/other .venv/lib",
        FAILED,
    ),
    (
        "uv-python",
        "mkdir -p .venv/bin && echo 'uv = 0.5' > .venv/pyvenv.cfg "
        "&& ln -s <H>/Documents/taxes.txt .venv/bin/python3 "
        "&& ln -s <H>/Documents/taxes.txt .venv/bin/python",
        CONTROL,
    ),
    ("conda-prefix", "mkdir .conda && ln -s <H>/Documents .conda/bin", FAILED),
    ("conda-meta", "mkdir -p .conda/conda-meta && ln -s <H>/code/other/bin .conda/bin", CONTROL),
    ("pixi", "mkdir -p .pixi/envs && ln -s <H>/code/other .pixi/envs/default", FAILED),
    ("pixi-bin", "mkdir -p .pixi/envs/default && ln -s <H>/.config .pixi/envs/default/bin", FAILED),
    ("poetry-in-project", "mkdir -p .venv/bin && ln -s <H>/.config/gh .venv/src", CONTROL),
    ("pyenv-local", "echo ../../../.config > .python-version; mkdir venv; ln -s <H>/.pyenv venv/bin", FAILED),
    ("node-bin", "mkdir node_modules && ln -s <H>/Documents node_modules/.bin", CONTROL),
    ("go-root", "mkdir venv && touch venv/VERSION && ln -s <H>/code/other/bin venv/bin", FAILED),
    # A configuration that names a folder.
    *(
        (f"home-is-{target or 'home'}", _VENV.format(".venv", target), CONTROL)
        for target in _TARGETS
    ),
    ("home-bin", _VENV.format(".venv", "code/other/bin"), CONTROL),
    ("home-of-a-hidden-python", _VENV.format(".venv", ".config/app/bin"), FAILED),
    ("home-of-a-planted-python", _VENV.format(".venv", "work/project/fake/bin"), CONTROL),
    ("home-with-dots", _VENV.format("env", ".pyenv/../.config/app/bin"), FAILED),
    ("home-too-long", "mkdir -p .venv/bin && printf 'home = /%05000d\\n' 1 > .venv/pyvenv.cfg", FAILED),
    ("home-in-a-circle", "ln -s a b; ln -s b a; mkdir -p .venv/bin; echo \"home = $PWD/a\" > .venv/pyvenv.cfg", CONTROL),
    ("home-null", "mkdir -p .venv/bin && printf 'home = /a\\0b\\n' > .venv/pyvenv.cfg", CONTROL),
    ("executable", "mkdir -p .venv/bin && echo 'executable = <H>/Documents/taxes.txt' > .venv/pyvenv.cfg", CONTROL),
    (
        "home-leads-on",
        "mkdir -p venv/bin fake/bin fake/lib/python3.11 && echo 'home = <H>/work/project/fake/bin' "
        "> venv/pyvenv.cfg && ln -s <H>/Documents/taxes.txt fake/bin/python3 "
        "&& ln -s <H>/Documents fake/include && touch fake/lib/python3.11/os.py",
        FAILED,
    ),
    ("configuration-is-a-pipe", "mkdir -p .venv/bin && mkfifo .venv/pyvenv.cfg", CONTROL),
    ("configuration-is-a-link", "mkdir -p .venv/bin && ln -s <H>/Documents/taxes.txt .venv/pyvenv.cfg", FAILED),
    # On the person's PATH and in VIRTUAL_ENV: `on-path` is both.
    ("on-path-bin", "mkdir -p on-path && ln -s <H>/Documents on-path/bin", FAILED),
    ("on-path-lib", "mkdir -p on-path/bin && touch on-path/pyvenv.cfg && ln -s <H>/.config on-path/lib", FAILED),
    ("on-path-itself", "ln -s <H>/code/other on-path", FAILED),
    ("on-path-other", "mkdir -p on-path/bin && echo 'home = <H>/.config/app/bin' > on-path/pyvenv.cfg", FAILED),
    # What the person opened: `data` is named by their settings, `<H>/shared` is opened for writing.
    ("opened-link", "rm -rf data && ln -s <H>/Documents data", FAILED),
    ("opened-below-a-link", "rm -rf nested && ln -s <H>/code nested", FAILED),
    ("opened-in-shared", "rm -rf <H>/shared/inner && ln -s <H>/.config <H>/shared/inner", FAILED),
)  # fmt: skip
