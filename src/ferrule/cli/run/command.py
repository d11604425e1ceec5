"""Define `ferrule run`: the answer goes to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from typing import Any

import click

from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, yes_to_option

with lazy_imports():
    from ferrule.core import media
    from ferrule.runtime import resumed_sessions
    from ferrule.tools import media_types

    from . import one_shot


@click.command()
@click.argument("prompt", nargs=-1)
@common_options
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object on standard output instead of the text.",
)
@click.option(
    "--json-stream",
    is_flag=True,
    help="One JSON object per event, a line each, as they happen (`v` is the format).",
)
@click.option(
    "--schema",
    metavar="SCHEMA",
    help="End with JSON that fits: a JSON Schema file, 'name str, age int' or module:Type.",
)
@click.option("--schema-multi", metavar="SCHEMA", help="End with a JSON list of such values.")
@click.option(
    "--output-mode",
    type=click.Choice(["auto", "schema", "tool", "grammar", "prompt"]),
    default="auto",
    help="How the schema is enforced.",
)
@click.option(
    "-a",
    "--attach",
    "attached",
    metavar="FILE",
    multiple=True,
    help="Give the model a picture, sound or document: a file of the folder, an https:// address, "
    "or `-` for standard input. Repeatable.",
)
@yes_to_option
@click.option(
    "--resume",
    "resume_id",
    metavar="SESSION",
    help="Continue this session (its id or the beginning of it).",
)
@click.option(
    "-p",
    "--print",
    "print_",
    is_flag=True,
    hidden=True,
    help="Accepted and ignored: run always answers once and exits.",
)
def run(prompt: tuple[str, ...], print_: bool, **options: Any) -> int:
    """Answer one message and exit.

    PROMPT is the message; text piped into standard input is added to it as context. Attached
    files (-a) must be in the folder; others can be piped in. Without a terminal, calls that need
    approval are denied and reported, unless a rule or --yes-to allows them. With --schema, standard
    output has only the JSON. Exit codes: 0 done, 3 the last tool result was a failure, 4 denied or
    no answer fits the schema, 5 limit reached, 6 model unavailable, 124 timeout, 130 stopped.

    \b
    Examples:
      ferrule run "What is this project?"
      git diff | ferrule run "Review this change"
      ferrule run --mode sandboxed "Run the tests and fix what fails"
      ferrule run -a plan.png "What does the picture show?"
      ferrule run --json "How many tests are there?" | jq .output
    """  # noqa: D301  click reads the mark
    import asyncio

    if options["as_json"] and options["json_stream"]:
        raise click.UsageError("--json and --json-stream exclude each other; choose one")
    if options["schema"] and options["schema_multi"]:
        raise click.UsageError("--schema and --schema-multi exclude each other; choose one")
    if options["resume_id"]:
        resumed_sessions.refuse_session_in_use(options["resume_id"])
    attached = options.pop("attached")
    if attached.count("-") > 1:
        raise click.UsageError("standard input can be attached once")
    text = " ".join(prompt).strip() if "-" in attached else build_prompt(prompt)
    if not text and not attached:
        raise click.UsageError("no prompt given; write one after `ferrule run`, or pipe one in")

    content = [text, *attach(attached)] if attached else text
    return asyncio.run(one_shot.run_once(content, options, session_id=options.get("resume_id")))


def attach(names: tuple[str, ...]) -> list[media.Media]:
    """Return what is attached: files, addresses, and `-` for what standard input has."""
    return [_attach_one(name) for name in names]


def _attach_one(name: str) -> media.Media:
    if name == "-":
        return media.Media(sys.stdin.buffer.read(media_types.MAX_BYTES + 1))
    if name.startswith(("http://", "https://")):
        return media.Media.from_url(name)
    return media.Media.from_path(name)


def build_prompt(prompt: tuple[str, ...]) -> str:
    """Build the prompt from the arguments and from piped input, which is framed as context."""
    typed = " ".join(prompt).strip()
    if sys.stdin.isatty():
        return typed
    piped = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not typed or not piped:
        return typed or piped
    return f"{typed}\n\n<standard-input>\n{piped}\n</standard-input>"
