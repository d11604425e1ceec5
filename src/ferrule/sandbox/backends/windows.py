"""What is said on Windows, where nothing holds commands. No code of a sandbox: what is not there is
not claimed.

A job object ends a command together with what it started and can bound its memory and processes. It
holds nothing else: files, the network, other programs' windows and the registry are as open to the
command as to the person. Even that is not set up yet, as Ferrule's way of starting programs is a
fork server (`inside`), which Windows cannot run.
"""

NOT_CONFINED = (
    "not confined: Windows offers job objects, which only end processes, and Ferrule does not "
    "use them yet"
)
"""For every aspect, in reports."""
