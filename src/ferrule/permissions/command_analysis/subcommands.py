"""Other names of subcommands: aliases and abbreviations. `npm explor` is `npm explore`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from .program_facts import program_name, word_set

_NPM_COMMANDS = word_set("""
    access adduser approve-scripts audit bugs cache ci completion config dedupe deny-scripts
    deprecate diff dist-tag docs doctor edit exec explain explore find-dupes fund get help
    help-search hook init install install-ci-test install-scripts install-test link ll login logout
    ls org outdated owner pack ping pkg prefix profile prune publish query rebuild repo restart root
    run sbom search set shrinkwrap stage star stars start stop team test token trust undeprecate
    uninstall unpublish unstar update version view whoami""")

_ALIASES: dict[str, dict[str, str]] = {
    "npm": {
        "adduser": "add-user",
        "bugs": "issues",
        "ci": "clean-install ic install-clean isntall-clean",
        "config": "c",
        "dedupe": "ddp",
        "dist-tag": "dist-tags",
        "docs": "home",
        "exec": "x",
        "explain": "why",
        "help": "hlep",
        "init": "create innit",
        "install": "add i in ins inst insta instal isnt isnta isntal isntall",
        "install-ci-test": "cit clean-install-test sit",
        "install-test": "it",
        "link": "ln",
        "ll": "la",
        "ls": "list",
        "org": "ogr",
        "owner": "author",
        "rebuild": "rb",
        "run": "run-script rum urn",
        "search": "find s se",
        "test": "t tst",
        "uninstall": "un unlink remove rm r",
        "update": "u up upgrade udpate",
        "version": "verison",
        "view": "info show v",
    },
    "pnpm": {
        "config": "c",
        "install": "i",
        "list": "ls la ll",
        "remove": "rm un uninstall",
        "rebuild": "rb",
        "run": "run-script",
        "test": "t tst",
        "update": "up upgrade",
        "link": "ln",
    },
    "cargo": {
        "build": "b",
        "check": "c",
        "doc": "d",
        "remove": "rm",
        "run": "r",
        "test": "t",
    },
    "gh": {"codespace": "cs", "extension": "ext extensions", "ruleset": "rs"},
}
"""Other names of subcommands, as the programs themselves list them."""


@cache
def _commands_by_alias(program: str) -> dict[str, str]:
    aliases = _ALIASES.get(program, {})
    return {alias: name for name, others in aliases.items() for alias in others.split()}


def canonical_subcommand(program: str, word: str) -> str:
    """Return the subcommand that a word stands for; the word itself if it is none that is known.

    npm takes every abbreviation that fits one command only. Which commands there are depends on its
    version, so one that fits several is taken for the first of those that do more than usual.
    """
    by_alias = _commands_by_alias(program)
    if program != "npm":
        return by_alias.get(word, word)
    word = re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", word)
    if word in _NPM_COMMANDS or not word:
        return word
    if word in by_alias:
        return by_alias[word]
    names = [name for name in (*_NPM_COMMANDS, *by_alias) if name.startswith(word)]
    fits = {by_alias.get(name, name) for name in names}
    return min(fits, key=lambda name: (name not in NPM_DOES_MORE, name), default=word)


NPM_DOES_MORE = word_set("""
    access adduser approve-scripts config deny-scripts deprecate dist-tag edit exec explore hook
    init install-scripts login logout org owner pkg profile publish set stage team token trust
    undeprecate unpublish""")
"""Commands of npm that run what they are told, or change settings, the manifest or the registry."""


def subcommand_spellings(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a command line with each other name of its subcommand: `npm i x` as `npm install x`."""
    program = program_name(words[0]) if words else ""
    if program not in _ALIASES or len(words) < 2:
        return
    canonical = canonical_subcommand(program, words[1])
    names = (canonical, *_ALIASES[program].get(canonical, "").split())
    for name in names:
        if name != words[1]:
            yield (words[0], name, *words[2:])
