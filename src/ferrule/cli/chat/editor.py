"""The person's editor, opened for the message that they are writing."""

from __future__ import annotations

import os
import shlex

import click

from ferrule.core.errors import FerruleError
from ferrule.permissions.loaded_code import trust_environment
from ferrule.permissions.provenance import CommandWritable, find_program
from ferrule.sandbox.trusted_process import start_program

_USUAL = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/vi")


def edit_file(filename: str) -> bool:
    """Open a file in `$VISUAL`, `$EDITOR` or a usual editor. Return whether it ended well.

    An editor that commands can write is passed over, which is said.
    """
    writable = CommandWritable.from_current_folder()
    named = (os.environ.get("VISUAL"), os.environ.get("EDITOR"), *_USUAL)
    for text in named:
        words = shlex.split(text or "")
        if not words:
            continue
        try:
            program = find_program(words[0], os.environ.get("PATH", os.defpath), writable)
            editor = start_program(
                program,
                [*words[1:], filename],
                environment=trust_environment(os.environ, writable),
                folder=None,
                stdin=None,
                output=None,
            )
        except (FerruleError, OSError) as error:
            if text not in _USUAL:
                click.echo(f"`{text}` was not opened: {error}", err=True)
            continue
        return editor.wait() == 0
    return False
