"""File names in a command: which it names, which of them no tool may touch, and which leave the workspace.

Every word that could be a path is judged in every folder that a literal `cd` before it could have led to, in
all the ways programs take paths: plain, `--file=x`, `-fx`, `if=x`, `@x`, `host:x`. Patterns and scripts
(the first plain argument of grep, sed, awk) are not paths. What only the shell will know becomes a doubt.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from ferrule.core.expressions import expression
from ferrule.core.frozen import frozen

from .hazards import INTERPRETERS, LISTERS, SCRIPT_FIRST, SHELLS, TALKERS, base, listed, writes
from .parts import Finding, Part
from .reserved import RESERVED, SECRET, Names
from .words import ANY, BRACE, ONE, UNKNOWN, Word, could_name

_DEVICES = frozenset(
    f"/dev/{name}" for name in listed("null zero full stdin stdout stderr tty random urandom")
)
_DESCRIPTOR = expression(r"/dev/fd/[0-9]+")
_SCHEME = expression(r"(?!file:)[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
_FILE_URL = expression(r"file:(?://[^/]*)?", re.IGNORECASE)
_CODE_FLAG = expression(r"-[A-Za-z]*[cerpE]|--eval|--print|--command|--execute")
_IN_CODE = expression(r"[A-Za-z0-9_./~\-]*\.?[A-Za-z0-9_./~\-]+")


@frozen
class NamedPath:
    """A file name that a command names, with marks (`words.py`) for what is not known."""

    text: str
    write: bool
    lists: bool = False
    """Only its name is shown, not what it holds."""
    elsewhere: bool = False
    """It may belong to another machine or to a text: only secret names count."""


def named_paths(parts: Iterable[Part], loose: Iterable[Word] = ()) -> Iterator[NamedPath]:
    """Everything in these parts that could be the name of a file."""
    for part in parts:
        for redirect in part.redirects:
            yield NamedPath(redirect.target.text, redirect.write)
        texts = [word.text for word in part.stripped]
        program = base(texts[0]) if texts else ""
        write = writes(texts)
        if program in TALKERS:
            continue
        if texts and "/" in texts[0] and not texts[0].startswith("/"):
            yield NamedPath(texts[0], False)
        plain, code = _plain_words(program, texts[1:])
        for text in plain:
            yield from _pieces(text, write, program in LISTERS)
        for text in code:
            for token in _IN_CODE.findall(re.sub(r"[a-z+]+://\S*", "", text)):
                yield NamedPath(token, False, elsewhere=True)
    for word in loose:
        yield from _pieces(word.text, False, False)


def _plain_words(program: str, rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments that could be paths, and those that are program text."""
    if program in INTERPRETERS | SHELLS and program not in SCRIPT_FIRST:
        at = {index + 1 for index, word in enumerate(rest) if _CODE_FLAG.fullmatch(word)}
        plain = [word for index, word in enumerate(rest) if index not in at]
        return plain, [word for index, word in enumerate(rest) if index in at]
    # The first plain argument of grep and the like is a pattern, unless an option (any abbreviation) gave it.
    if program in SCRIPT_FIRST and not any(
        re.match(r"-[A-Za-z]*[ef]|--(re|fi|ex|from)", word) for word in rest
    ):
        for index, word in enumerate(rest):
            if not word.startswith("-"):
                return [*rest[:index], *rest[index + 1 :]], [word] if program in INTERPRETERS else []
    return list(rest), []


def _pieces(text: str, write: bool, lists: bool) -> Iterator[NamedPath]:
    if _SCHEME.match(text) and ".." not in text.split("/"):
        return  # With `..` it may be a path all the same: where there is a folder `https:`, `https://../.env` is `.env`.
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
    parts: Sequence[Part], loose: Sequence[Word], root: str, home: str, names: Names | None
) -> tuple[list[Finding], list[str]]:
    """`(findings, doubts)` of all names in a command, in the folders that it could be in."""
    folders, doubts = _folders(parts, root)
    findings: list[Finding] = []
    for named in named_paths(parts, loose):
        for folder in folders:
            finding = _judge(named, folder, root, names)
            if finding is not None:
                findings.append(finding)
                break
        if not named.lists and names is not None and (pattern := _could_be_secret(named.text, names)):
            doubts.append(f"`{_visible(named.text)}` could name `{pattern}`")
    return list(dict.fromkeys(findings)), doubts


def _folders(parts: Sequence[Part], root: str) -> tuple[list[str], list[str]]:
    folders = [root or "/."]
    doubts: list[str] = []
    for part in parts:
        if part.target not in ("cd", "pushd", "popd"):
            continue
        targets = [
            word
            for word in part.stripped[1:]
            if not (word.known and word.text.startswith("-") and word.text != "-")
        ]
        if len(targets) != 1 or not targets[0].known or targets[0].text == "-":
            doubts.append("it changes to a folder that is known only when it runs")
            continue
        folders += [
            f for f in (posixpath.join(folder, targets[0].text) for folder in folders[:8]) if f not in folders
        ]
    return folders, doubts


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
    """A name that begins or goes on with an expansion: what is literal in it must still be allowed."""
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
    components = [component for component in text.split("/") if component]
    for pattern in (*SECRET, *RESERVED, *names.secret, *names.reserved):
        wanted = [part for part in pattern.strip("/").split("/") if part != "**"]
        for index, component in enumerate(components):
            if not re.search("[\1-\3]", component):
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
