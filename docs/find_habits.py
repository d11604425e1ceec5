"""Print where old habits of writing come back: `make lab NAME=habits ARGS="docs/guide.md"`.

A help for writers, not a gate. It counts phrases that a reader of English stumbles over, for each
page and for 1,000 words of all of them; `-v` prints each place. Code blocks, tables that are made
and words in back-ticks are left out. Files may also be folders, such as the documentation of
another project, to compare with.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MADE = {"reference.md", "promises.md", "field-reports.md", "architecture.md", "machines.md"}
FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.DOTALL)
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")

HABITS = {
    "is no X": r"\b(?:is|are|was|were) no (?!(?:longer|more|one|way|need|reason|sandbox|network)\b)\w+",
    "what, whoever for a noun": (
        r"(?:^|[.:;,(] )(?:what|whoever|whatever) (?:is|are|was|has|holds?|stands?|comes?|came|does|"
        r"did|must|may|can|cannot|a|an|the|it|they|somebody|nobody)\b"
    ),
    "that which, those that are": r"\bthat which\b|\bof which\b|\bby which\b|\bto whom\b|\bwhat of\b",
    "stands, lies, holds": (
        r"\b(?:stands?|stood|lies|lay|lying|faces?) (?:in|on|at|there|beside|behind|by|for)\b|"
        r"\bholds? (?:all the same|everywhere|here|there|as well|too|for)\b"
    ),
    "is said, told, asked of": (
        r"\b(?:is|are|was|were) (?:said|told|asked|let|taken|handed|given over|spoken|seen)\b"
    ),
    "says that, says what": r"\bsays? (?:what|which|how|who|whether|why|so|no|yes|that)\b",
    "nobody, nothing as subject": r"(?:^|[.:;,] )(?:nobody|nothing|nowhere) \w+s\b",
    "where for if": r"(?:^|[.;:,] )where (?:a|an|the|it|there|no|nobody|somebody|that|this)\b",
    "a yes, a no": r"\b(?:a|is|as) (?:yes|no)\b[.,;:]",
    "so does, nor does": r"\b(?:and )?(?:so|nor) (?:do|does|is|are|has|have) \w+",
    "all that, all of it": r"\ball (?:that|of it|of that|there is)\b",
    "begin anew, gone on": r"\banew\b|\bgoes? on\b|\bgoing on\b|\bgo on\b|\bbegun\b|\bbesides\b",
}
"""Names of habits and their patterns, matched whatever the case."""
PATTERNS = {name: re.compile(text, re.IGNORECASE | re.MULTILINE) for name, text in HABITS.items()}


def find_pages(names: list[str]) -> list[Path]:
    """Return the pages of files and folders; without any, of this repository."""
    if not names:
        front = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
        found = [*front, *sorted((ROOT / "docs").rglob("*.md"))]
        return [path for path in found if path.name not in MADE and path.parent.name != "reference"]
    pages: list[Path] = []
    for name in names:
        path = Path(name)
        pages += (
            sorted([*path.rglob("*.md"), *path.rglob("*.rst"), *path.rglob("*.txt")])
            if path.is_dir()
            else [path]
        )
    return pages


def read_prose(path: Path) -> str:
    """Return a page's text without code; lines keep their numbers."""
    text = path.read_text(encoding="utf-8", errors="replace")
    blank = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return CODE.sub(lambda match: "`" + "\n" * match[0].count("\n"), blank)


def find_habits(prose: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, habit and words of each place."""
    for name, pattern in PATTERNS.items():
        for match in pattern.finditer(prose):
            words = " ".join(match[0].split()).lstrip(".,;:( ")
            yield prose.count("\n", 0, match.end()) + 1, name, words


def main(arguments: list[str]) -> int:
    """Print the counts and return 0, whatever was found."""
    verbose = "-v" in arguments
    pages = find_pages([one for one in arguments if one != "-v"])
    total: Counter[str] = Counter()
    all_words = 0
    for path in pages:
        prose = read_prose(path)
        words = len(WORD.findall(prose))
        places = sorted(find_habits(prose))
        total.update(name for _, name, _ in places)
        all_words += words
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        print(f"{1000 * len(places) / max(1, words):6.1f}  {words:6} words  {shown}")
        for line, name, found in places if verbose else ():
            print(f"          {line}: {found}  ({name})")
    print(f"\n{1000 * total.total() / max(1, all_words):6.1f} in 1,000 of {all_words:,} words")
    for name, count in total.most_common():
        print(f"{1000 * count / max(1, all_words):6.2f}  {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
