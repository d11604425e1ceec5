"""Looking around: one folder, all folders, what a file defines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.files import browse
from ferrule.tools.context import Context
from ferrule.tools.definition import Risk, SideEffect

TOOLS = {tool.name: tool for tool in browse.TOOLS}
NOON = 1_767_268_800  # 2026-01-01 12:00 UTC


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, size in (
        ("c.txt", 10),
        ("a.txt", 2048),
        ("b.bin", 3 * 1024 * 1024),
        ("e.md", 0),
        ("d.py", 500),
    ):
        (folder / name).write_bytes(b"x" * size)
        os.utime(folder / name, (NOON, NOON + size))
    return folder


@pytest.fixture
def context(root: Path) -> Context:
    return Context(Identity("t", "u", "s", "r"), "call-1", resources={Workspace: Workspace(root)})


def call(tool: str, context: Context, **arguments: Any) -> Any:
    checked = TOOLS[tool].arguments.check(arguments)
    assert not checked.problems, checked.problems
    return TOOLS[tool].handler(**checked.values, context=context)


def names(listing: str) -> list[str]:
    return [
        line.split("  ")[-1]
        for line in listing.split("\n")
        if line.startswith(("FILE", "DIR", "LINK", "OTHER"))
    ]


def refused(use: Callable[[], object]) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        use()
    return failure.value


def test_looking_around_reads_and_two_of_three_run_unasked() -> None:
    assert {
        name: (t.side_effect, t.risk, dict(t.touches)["path"].kind) for name, t in TOOLS.items()
    } == {
        "list_files": (SideEffect.READ, Risk.SAFE, "read"),
        "file_tree": (SideEffect.READ, Risk.SAFE, "read"),
        "file_outline": (SideEffect.READ, Risk.MEDIUM, "read"),
    }


# list_files


def test_a_folder_is_listed_with_type_size_time_and_name(context: Context, root: Path) -> None:
    (root / "src").mkdir()
    os.utime(root / "src", (NOON, NOON))
    (root / "link").symlink_to("a.txt")
    os.utime(root / "link", (NOON, NOON), follow_symlinks=False)
    assert call("list_files", context).split("\n") == [
        "FILE     2.0 KB  2026-01-01 12:34  a.txt",
        "FILE     3.0 MB  2026-02-06 21:48  b.bin",
        "FILE       10 B  2026-01-01 12:00  c.txt",
        "FILE      500 B  2026-01-01 12:08  d.py",
        "FILE        0 B  2026-01-01 12:00  e.md",
        "LINK          -  2026-01-01 12:00  link",
        "DIR           -  2026-01-01 12:00  src/",
        "total: 5 files, 1 folder, 1 link or other, 3.0 MB",
    ]


@pytest.mark.proves("list-files.sort-then-cut")
def test_sorting_comes_before_cutting(context: Context) -> None:
    listing = call("list_files", context, max_entries=2, sort_by="size", reverse=True)
    assert names(listing) == ["b.bin", "a.txt"]
    assert "[2 of 5 entries shown" in listing
    assert "total: 5 files" in listing


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        ({}, "abcde"),
        ({"reverse": True}, "edcba"),
        ({"sort_by": "size"}, "ecdab"),
        ({"sort_by": "modified"}, "ecdab"),
        ({"sort_by": "modified", "reverse": True}, "badce"),
    ],
)
def test_entries_are_sorted(context: Context, arguments: dict[str, Any], order: str) -> None:
    assert [name[0] for name in names(call("list_files", context, **arguments))] == list(order)


def test_500_entries_are_listed_by_default_and_1000_at_the_most(
    context: Context, root: Path
) -> None:
    for number in range(1001):
        (root / f"n{number:04}").touch()
    listing = call("list_files", context)
    assert len(names(listing)) == 500
    assert "[500 of 1006 entries shown" in listing
    assert len(names(call("list_files", context, max_entries=1000))) == 1000


@pytest.mark.parametrize("most", [0, -1, 1001])
def test_the_number_of_entries_has_bounds(context: Context, most: int) -> None:
    assert (
        refused(lambda: call("list_files", context, max_entries=most)).error_type
        is ErrorType.VALIDATION_FAILED
    )


def test_an_unknown_order_is_refused_by_the_schema() -> None:
    assert TOOLS["list_files"].arguments.check({"sort_by": "colour"}).problems


@pytest.mark.parametrize("reverse", [False, True])
def test_of_a_huge_folder_the_first_entries_are_looked_at_and_all_are_counted(
    context: Context, root: Path, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "src").mkdir()
    (root / "link").symlink_to("a.txt")
    for name in (".hidden", ".env", "k.pem"):
        (root / name).write_text("x")
    arguments = {"max_entries": 3, "reverse": reverse}
    *rows, total, cut, hidden, untouchable = call("list_files", context, **arguments).split("\n")
    assert total == "total: 5 files, 1 folder, 1 link or other, 3.0 MB"
    monkeypatch.setattr(browse, "MAX_MEASURED_ENTRIES", 6)
    assert call("list_files", context, **arguments).split("\n") == [
        *rows,
        "total: 5 files, 1 folder, 1 link or other",
        '[sizes are not added up for more than 10000 entries unless `sort_by` is "size" or '
        '"modified"]',
        cut,
        hidden,
        untouchable,
    ]
    assert total in call("list_files", context, sort_by="size").split("\n")


def test_hidden_names_are_shown_if_asked_for_and_untouchable_ones_never(
    context: Context, root: Path
) -> None:
    for name in (".hidden", ".env", "agents/x", "k.pem"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    listing = call("list_files", context)
    assert names(listing) == ["a.txt", "b.bin", "c.txt", "d.py", "e.md"]
    assert "[1 hidden entry not shown; pass `show_hidden: true`]" in listing
    assert "[3 entries not shown: no tool may touch them]" in listing
    assert names(call("list_files", context, show_hidden=True))[0] == ".hidden"
    for secret in (".env", "agents", "k.pem"):
        assert secret not in call("list_files", context, show_hidden=True)


def test_an_empty_folder_is_a_total(context: Context, root: Path) -> None:
    (root / "empty").mkdir()
    assert call("list_files", context, path="empty") == "total: 0 files, 0 folders, 0 B"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("missing", ErrorType.NOT_FOUND),
        ("a.txt", ErrorType.VALIDATION_FAILED),
        ("..", ErrorType.PERMISSION_DENIED),
        ("/etc", ErrorType.PERMISSION_DENIED),
        ("agents", ErrorType.PERMISSION_DENIED),
        ("agents/", ErrorType.PERMISSION_DENIED),
        ("link", ErrorType.PERMISSION_DENIED),
    ],
)
@pytest.mark.parametrize("tool", ["list_files", "file_tree"])
@pytest.mark.proves("browse.same-refusal")
def test_what_cannot_be_listed_says_why(
    context: Context, root: Path, tool: str, path: str, kind: ErrorType
) -> None:
    (root / "agents").mkdir()
    (root / "link").symlink_to("/etc")
    assert refused(lambda: call(tool, context, path=path)).error_type is kind


def test_a_name_cannot_forge_a_row(context: Context, root: Path) -> None:
    (root / "x\nFILE 1 B forged").write_text("")
    assert "x\\nFILE 1 B forged" in call("list_files", context)
    assert len(names(call("list_files", context))) == 6


# file_tree


def grow(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


def test_the_tree_is_all_files_by_path(context: Context, root: Path) -> None:
    grow(
        root,
        "src/b/z.py",
        "src/a.py",
        ".git/HEAD",
        ".hidden/x",
        ".env",
        "node_modules/left-pad/index.js",
        "agents/x",
    )
    (root / "empty").mkdir()
    (root / "link").symlink_to("src")
    assert call("file_tree", context) == [
        "a.txt",
        "b.bin",
        "c.txt",
        "d.py",
        "e.md",
        "empty/",
        "link@",
        "node_modules/",
        "src/a.py",
        "src/b/z.py",
    ]
    assert call("file_tree", context, path="src/b") == ["src/b/z.py"]
    assert call("file_tree", context, path="node_modules") == ["node_modules/left-pad/index.js"]
    assert ".hidden/x" in call("file_tree", context, show_hidden=True)
    assert ".git/HEAD" not in call("file_tree", context, show_hidden=True)


def test_a_large_tree_is_shown_from_the_top_and_says_what_it_did_not_open(
    context: Context, root: Path
) -> None:
    grow(root, *(f"big/{n}.txt" for n in range(50)), "small/deep/x.txt", "small/y.txt")
    shown = call("file_tree", context, max_entries=10)
    files = ["a.txt", "b.bin", "big/", "c.txt", "d.py", "e.md", "small/deep/x.txt", "small/y.txt"]
    assert shown == [*files, "[big/ holds 50 entries and was not opened: name it as `path`]"]
    *part, note = call("file_tree", context, path="big", max_entries=10)
    assert part == sorted(f"big/{n}.txt" for n in range(50))[:10]
    assert note.startswith("[40 of 50 entries of `big` not shown")
    grow(root, *(f"huge/{n}.txt" for n in range(1001)))
    *part, note = call("file_tree", context, path="huge")
    assert (len(part), note.startswith("[1 of 1001 entries")) == (1000, True)
    assert (
        refused(lambda: call("file_tree", context, max_entries=0)).error_type
        is ErrorType.VALIDATION_FAILED
    )


# file_outline

SOURCES = {
    "a.py": (
        "import os\n\nclass A(Base, metaclass=M):\n    @property\n    async def f(self, x: "
        "int = 3) -> str:\n"
        "        def inner(): pass\n\nif os:\n    def g(*a, **k): ...\n",
        (
            "3: class A(Base, metaclass=M)\n5:   async def f(self, x: int=3) -> str\n6:     def "
            "inner()\n9: def g(*a, **k)"
        ),
    ),
    "bad.py": (
        "def f(:\nclass X:\n    def y(self):\n",
        (
            "1: def f(:\n2: class X:\n3:   def y(self):\n[not valid Python (SyntaxError); found "
            "by searching]"
        ),
    ),
    "a.ts": (
        "export default class A extends B {\n  x = 1\n}\nexport const go = async (a: "
        "number): Promise<void> => {\n}\n"
        "interface I {}\nlet y = 3\n",
        (
            "1: export default class A extends B\n4: export const go = async (a: number): "
            "Promise<void> =>\n6: interface I {}"
        ),
    ),
    "a.go": (
        "func (s *S) Name() string {\n}\ntype T struct {\n}\n",
        "1: func (s *S) Name() string\n3: type T struct",
    ),
    "a.rs": (
        "impl<T> Foo for Bar {\n    pub(crate) async fn baz() {\n",
        "1: impl<T> Foo for Bar\n2:   pub(crate) async fn baz()",
    ),
    "a.zig": (
        "const S = struct {\n    pub fn init() void {\n",
        "1: const S = struct\n2:   pub fn init() void",
    ),
    "a.c": (
        "int main(int argc, char **argv)\n{\n    if (x) {\n        return f(a);\n",
        "1: int main(int argc, char **argv)",
    ),
    "a.md": ("# Title\ntext\n## Part\n#nothing\n", "1: # Title\n3: ## Part"),
    "a.markdown": ("# Title\n", "1: # Title"),
    "a.sql": ("CREATE TABLE t (a int);\nselect 1;\n", "1: CREATE TABLE t (a int);"),
    "plain.txt": ("nothing here\n", "[no definitions found in `plain.txt`, 1 line]"),
    "bom.py": ("\ufeffdef f(): pass\n", "1: def f()"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_an_outline_names_definitions_with_their_lines(
    context: Context, root: Path, name: str
) -> None:
    source, outline = SOURCES[name]
    (root / name).write_text(source)
    assert call("file_outline", context, path=name) == outline


@pytest.mark.parametrize(
    "source",
    ["(" * 20_000 + ")" * 20_000, "-" * 50_000 + "1", "const " * 50_000, "a" * 100_000 + "("],
)
@pytest.mark.parametrize("name", ["x.py", "x.c", "x.ts"])
def test_a_hostile_source_file_is_outlined_without_harm(
    context: Context, root: Path, name: str, source: str
) -> None:
    (root / name).write_text(source)
    assert isinstance(call("file_outline", context, path=name), str)


def test_a_long_outline_is_cut_and_says_so(context: Context, root: Path) -> None:
    (root / "x.py").write_text("def f(): pass\n" * 1200)
    assert call("file_outline", context, path="x.py").endswith("[200 more definitions not shown]")


@pytest.mark.proves("browse.same-refusal")
def test_an_outline_reads_what_read_file_may_read(context: Context, root: Path) -> None:
    (root / "k.pem").write_text("class Secret: pass")
    (root / "x.bin").write_bytes(b"\0\1")
    assert (
        refused(lambda: call("file_outline", context, path="k.pem")).error_type
        is ErrorType.PERMISSION_DENIED
    )
    assert (
        refused(lambda: call("file_outline", context, path="x.bin")).error_type
        is ErrorType.PARSE_ERROR
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (1536, "1.5 KB"),
        (1024**2, "1.0 MB"),
        (5 * 1024**3, "5.0 GB"),
        (1024**5, "1024.0 TB"),
    ],
)
def test_sizes_are_for_people(size: int, text: str) -> None:
    assert browse.format_size(size) == text
