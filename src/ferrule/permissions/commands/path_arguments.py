"""File names in a command: which it names, which of them no tool may touch, and which leave the
workspace.

Every word that could be a path is judged in every folder that the `cd`s before it could have led
to, in all the ways programs take paths: plain, `--file=x`, `-fx`, `if=x`, `@x`, `host:x`. What is
text is said by the tables of options (`program_arguments.py`): a pattern, a delimiter, a message is
no path. What only the shell will know becomes a doubt.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ferrule.core.frozen import frozen
from ferrule.core.lazy_patterns import expression
from ferrule.permissions.protected_names import RESERVED, SECRET, Names

from .program_arguments import Judged, judge
from .program_facts import (
    GIT_HARMLESS,
    INTERPRETERS,
    LISTERS,
    SCRIPT_FIRST,
    SHELLS,
    TALKERS,
    base,
    listed,
    writes,
)
from .shell_words import ANY, BRACE, ONE, UNKNOWN, Word, could_name
from .syntax import Finding, Part
from .working_directory import MOVERS, absolute

_DEVICES = frozenset(
    f"/dev/{name}" for name in listed("null zero full stdin stdout stderr tty random urandom")
)
_DESCRIPTOR = expression(r"/dev/fd/[0-9]+")
_SCHEME = expression(r"(?!file:)[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
_FILE_URL = expression(r"file:(?://[^/]*)?", re.IGNORECASE)
_CODE_FLAG = expression(r"-[A-Za-z]*[cerpE]|--eval|--print|--command|--execute")
_WILDCARD = re.compile("[\1-\3]")
_IN_CODE = expression(r"[A-Za-z0-9_./~\-]*\.?[A-Za-z0-9_./~\-]+")


@frozen
class NamedPath:
    """A file name that a command names, with marks (`shell_words.py`) for what is not known."""

    text: str
    write: bool
    lists: bool = False
    """Only its name is shown, not what it holds."""
    elsewhere: bool = False
    """It may belong to another machine or to a text: only secret names count."""
    goes: bool = False
    """A `cd` goes there."""


def located_paths(
    parts: Sequence[Part], loose: Sequence[Word], start: str
) -> Iterator[tuple[NamedPath, list[str]]]:
    """Everything that could be the name of a file, with the folders that it could be seen from.

    `start` is the folder of the whole command line.
    """
    closure = possible_folders(parts, start)
    for part in parts:
        folders = absolute(part, start, closure)
        for named in _named_by(part):
            yield replace(named, goes=True) if part.target in MOVERS else named, folders
    for word in loose:
        for named in _pieces(word.text, False, False):
            yield named, closure


def _named_by(part: Part) -> Iterator[NamedPath]:
    for redirect in part.redirects:
        yield NamedPath(redirect.target.text, redirect.write)
    texts = [word.text for word in part.stripped]
    program = base(texts[0]) if texts else ""
    if program in TALKERS:
        return
    if texts and "/" in texts[0] and not texts[0].startswith("/"):
        yield NamedPath(texts[0], False)
    write = writes(texts)
    lists = program in LISTERS
    for text, role in _roles(part, program, texts[1:]) if texts else ():
        if role == "code":
            for token in _IN_CODE.findall(re.sub(r"[a-z+]+://\S*", "", text)):
                yield NamedPath(token, False, elsewhere=True)
        elif role != "text":
            yield from _pieces(text, write or role == "written", lists)


def _roles(part: Part, program: str, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each argument with its role: `any`, `written`, `text`, or `code` of an interpreter.

    What the tables of options are not sure of may be a path.
    """
    if program in INTERPRETERS | SHELLS and program not in SCRIPT_FIRST:
        at = {index + 1 for index, word in enumerate(rest) if _CODE_FLAG.fullmatch(word)}
        yield from ((word, "code" if index in at else "any") for index, word in enumerate(rest))
        return
    judged = () if part.renamed or not _is_installed(part) else _judged(part, program, rest)
    said: set[int] = set()
    for piece in judged:
        if piece.sure:
            said.update((piece.index, piece.value_index))
    for index, word in enumerate(rest):
        if index not in said:
            yield word, "any"
    for piece in judged:
        if piece.sure and piece.value:
            code = piece.role == "text" and program in INTERPRETERS and piece.operand
            yield piece.value, "code" if code else piece.role


def _is_installed(part: Part) -> bool:
    """True for a program that is found on the path: one of the workspace may read its arguments
    otherwise.
    """
    return "/" not in part.stripped[0].text or part.stripped[0].text.startswith(
        ("/usr/bin/", "/bin/")
    )


def _judged(part: Part, program: str, rest: Sequence[str]) -> Sequence[Judged]:
    """The arguments as the program reads them, up to where the shell could make other words of
    them.
    """
    verb, start = "", 0
    if program == "git":
        while start < len(rest) and rest[start] in GIT_HARMLESS:
            start += 1
        verb = rest[start] if start < len(rest) else ""
        start += 1
    open_from = len(rest)
    for index, word in enumerate(part.stripped[1:]):
        if word.splits or (word.may_be_flag and UNKNOWN in word.text):
            open_from = index
            break
    judged = judge(program, rest[start:], verb)
    if not start and open_from == len(rest):
        return judged
    found: list[Judged] = []
    for piece in judged:
        index, value_index = piece.index + start, piece.value_index + start
        sure = piece.sure and max(index, value_index) < open_from
        found.append(replace(piece, index=index, value_index=value_index, sure=sure))
    found += (
        Judged(index, index, None, "text", False, True, False)
        for index in range(min(start, len(rest)))
    )
    return found


def _pieces(text: str, write: bool, lists: bool) -> Iterator[NamedPath]:
    if _SCHEME.match(text) and ".." not in text.split("/"):
        # With `..` it may be a path all the same: where there is a folder `https:`,
        # `https://../.env` is `.env`.
        return
    text = _FILE_URL.sub("", text, count=1) if _FILE_URL.match(text) else text
    if text.startswith("-"):
        name, equals, value = text.partition("=")
        text = value if equals else "" if name.startswith("--") else text[2:]
        if not text:
            return
    yield NamedPath(text, write, lists)
    for match in re.finditer(r"(^|[=:@,])([^=:@,]+)", text):
        if match[2] != text:
            # After a colon it is on another machine or in a container, a revision or a volume.
            yield NamedPath(match[2], write, lists, match[1] == ":")


def judge_paths(
    parts: Sequence[Part],
    loose: Sequence[Word],
    root: str,
    home: str,
    names: Names | None,
    *,
    start: str = "",
) -> tuple[list[Finding], list[str]]:
    """`(findings, doubts)` of all names in a command that starts in the folder `start` (default:
    `root`).
    """
    findings: list[Finding] = []
    doubts = list(_unknown_folders(parts))
    for named, folders in located_paths(parts, loose, start or root or "/."):
        # A folder outside is the matter of the `cd` that leads there.
        inside = [folder for folder in folders if not root or _is_below(folder, root)] or folders[
            :1
        ]
        found = [_judge(named, folder, root, names) for folder in inside]
        refused = [finding for finding in found if finding is not None]
        protected = [finding for finding in refused if finding.label != "outside_workspace"]
        if protected or (refused and len(refused) == len(found)):
            findings.append((protected or refused)[0])
        elif refused:
            # Going there can be asked about; a file that may be outside is not read.
            why = (
                f"`{_visible(named.text)}` could lie outside the workspace: that depends on "
                "which `cd` works"
            )
            findings.append(
                Finding("outside_workspace", f"{why}; join the commands with `&&`", not named.goes)
            )
        if (
            not named.lists
            and names is not None
            and (pattern := _could_be_secret(named.text, names))
        ):
            doubts.append(f"`{_visible(named.text)}` could name `{pattern}`")
    return list(dict.fromkeys(findings)), list(dict.fromkeys(doubts))


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip("/") + "/")


def _targets(part: Part) -> list[Word]:
    """The operands of a `cd`."""
    return [
        w for w in part.stripped[1:] if not (w.known and w.text.startswith("-") and w.text != "-")
    ]


def _unknown_folders(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        if part.target in MOVERS:
            targets = _targets(part)
            if len(targets) != 1 or not targets[0].known or targets[0].text == "-":
                yield "it changes to a folder that is known only when it runs"


def possible_folders(parts: Sequence[Part], start: str) -> list[str]:
    """Every folder that any `cd` of these could lead to, in any order."""
    folders = [start]
    for part in parts:
        if part.target not in MOVERS:
            continue
        targets = _targets(part)
        if len(targets) == 1 and targets[0].known and targets[0].text != "-":
            moved = [
                posixpath.normpath(posixpath.join(folder, targets[0].text))
                for folder in folders[:8]
            ]
            folders += [folder for folder in dict.fromkeys(moved) if folder not in folders]
    return folders


def _judge(named: NamedPath, folder: str, root: str, names: Names | None) -> Finding | None:
    text = named.text
    if UNKNOWN in text:
        return _judge_tail(named, names)
    if not text or text in _DEVICES or _DESCRIPTOR.fullmatch(text):
        return None
    absolute = posixpath.normpath(posixpath.join(folder, text))
    if root and (absolute == root or absolute.startswith(root + "/")):
        name = absolute[len(root) + 1 :]
        return _refused(named, name, names) if name else None
    if not root and not text.startswith("/") and ".." not in text.split("/"):
        return _refused(named, posixpath.normpath(text), names)
    if not (text.startswith("/") or ".." in text.split("/") or folder != root):
        return None
    secret = _refused(named, absolute.lstrip("/"), names)
    if named.elsewhere:
        return secret
    return secret or Finding("outside_workspace", f"`{_visible(text)}` lies outside the workspace")


def _judge_tail(named: NamedPath, names: Names | None) -> Finding | None:
    """A name that begins or goes on with an expansion: what is literal in it must still be
    allowed.
    """
    if named.text.strip(UNKNOWN + "/") == "":
        return None
    filled = re.sub("[\0-\3]+", "x", named.text).lstrip("/")
    return _refused(named, posixpath.normpath(filled), names)


def _refused(named: NamedPath, name: str, names: Names | None) -> Finding | None:
    if names is None or any(mark in name for mark in (ANY, ONE, BRACE)):
        return None
    why = names.check(name, write=named.write)
    if why is None:
        return None
    label = "credential_file_read" if "secret" in why and not named.write else ""
    return Finding(
        label,
        f"`{_visible(named.text)}` is {why}"
        if why.startswith(("reserved", "protected"))
        else f"`{_visible(named.text)}` {why}",
    )


def _could_be_secret(text: str, names: Names) -> str | None:
    if _WILDCARD.search(text) is None:
        return None
    components = [component for component in text.split("/") if component]
    for pattern in (*SECRET, *RESERVED, *names.secret, *names.reserved):
        wanted = [part for part in pattern.strip("/").split("/") if part != "**"]
        for index, component in enumerate(components):
            if _WILDCARD.search(component) is None:
                continue
            if pattern.startswith("/") and index:
                continue
            if any(could_name(component, part) for part in wanted[-1:]) and _led_to(
                components[:index], wanted[:-1]
            ):
                return pattern
    return None


def _led_to(before: Sequence[str], wanted: Sequence[str]) -> bool:
    """True if the components before a wildcard could include those that a longer pattern wants."""
    return all(any(could_name(component, part) for component in before) for part in wanted)


def _visible(text: str) -> str:
    return text.replace(UNKNOWN, "$…").replace(ANY, "*").replace(ONE, "?").replace(BRACE, "{…}")
