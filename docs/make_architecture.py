"""Draws the packages of `ferrule` from their imports: `make docs` writes `docs/architecture.svg`.

Every import counts, also one inside a function and one for type checkers only. An arrow that follows
from others is left out (transitive reduction): where `a` imports `b` and `b` imports `c`, there is
no arrow from `a` to `c`. Each package stands above all that it imports. The package's root, which
programs import, and `testing`, which only tests import, are not drawn.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path
from textwrap import wrap

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "repository"))

from source import ROOT, Module, imports, modules

PICTURE = ROOT / "docs" / "architecture.svg"

Graph = Mapping[str, frozenset[str]]
"""What each package imports, by name."""

LEFT_OUT = {"testing"}
WIDTH = 760
MARGIN = 30
"""Pixels between an arrow and the corner of a box."""
GAP = 16
"""Pixels between boxes of one row."""
ROW_GAP = 34
"""Pixels between rows, which the arrows cross."""
LINE = 15
"""Height of a line of text in pixels."""
LETTER = 6.2
"""Width of a small letter in pixels, with some to spare."""

STYLE = """
  text { font-family: system-ui, sans-serif; text-anchor: middle; fill: #1f2933 }
  .name { font-size: 15px; font-weight: 600 }
  .parts { font-size: 11px; fill: #52606d }
  rect.box { fill: #f5f7fa; stroke: #7b8794 }
  path { stroke: #52606d; fill: none; marker-end: url(#arrow) }
"""


@dataclass(frozen=True)
class Box:
    """Where a package is drawn, in pixels."""

    left: int
    top: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        return self.left + self.width // 2

    def nearest(self, x: int) -> int:
        """Return the place nearest to `x` where an arrow may touch this box."""
        return max(self.left + MARGIN, min(x, self.left + self.width - MARGIN))


def read_imports(modules: Iterable[Module]) -> Graph:
    """Return what each package below the root imports of the other packages."""
    graph: dict[str, set[str]] = defaultdict(set)
    packages: set[str] = set()
    for module in modules:
        package = _package(module.name)
        if _is_drawn(module, package):
            packages.add(package)
            for _, target, _ in imports(module):
                if target.startswith("ferrule."):
                    graph[package].add(_package(target))
    return {name: frozenset(graph[name] & packages) - {name} for name in sorted(packages)}


def list_parts(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the names of the packages inside each package."""
    parts: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        names = module.name.split(".")
        if module.is_package and len(names) == 3:
            parts[names[1]].append(names[2])
    return parts


def reduce(graph: Graph) -> Graph:
    """Return the graph without the edges that follow from others. It must have no cycle."""
    below: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        deeper = (below[target] for target in graph[name])
        below[name] = graph[name].union(*deeper)
    return {
        name: targets - frozenset().union(*(below[target] for target in targets))
        for name, targets in graph.items()
    }


def arrange(graph: Graph) -> list[list[str]]:
    """Return the packages in rows, the top row first. Each stands above all that it imports."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        height[name] = 1 + max((height[target] for target in graph[name]), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for name in sorted(height):
        rows[-1 - height[name]].append(name)
    return rows


def draw(graph: Graph, parts: Mapping[str, list[str]]) -> str:
    """Return the drawing as SVG."""
    boxes: dict[str, Box] = {}
    shapes: list[str] = []
    top = GAP
    for row in arrange(graph):
        width = min(440, (WIDTH - GAP) // len(row) - GAP)
        left = (WIDTH - len(row) * (width + GAP) + GAP) // 2
        texts = {name: _wrap(parts.get(name, []), width) for name in row}
        height = 28 + LINE * max(len(lines) for lines in texts.values())
        for name in row:
            boxes[name] = Box(left, top, width, height)
            shapes += _draw_box(name, texts[name], boxes[name])
            left += width + GAP
        top += height + ROW_GAP
    arrows = [
        _draw_arrow(boxes[name], boxes[target])
        for name, targets in reduce(graph).items()
        for target in sorted(targets)
    ]
    height = top - ROW_GAP + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<!-- Made by docs/make_architecture.py from the imports: run `make docs`. -->",
            "<title>The packages of ferrule and what they import</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" '
            'style="fill: #52606d; stroke: none; marker-end: none"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *arrows,
            *shapes,
            "</svg>\n",
        ]
    )


def _package(module: str) -> str:
    """Return the package below the root that a module belongs to; "" for the root itself."""
    return module.split(".")[1] if "." in module else ""


def _is_drawn(module: Module, package: str) -> bool:
    is_file_of_root = module.name.count(".") == 1 and not module.is_package
    return package != "" and package not in LEFT_OUT and not is_file_of_root


def _wrap(parts: list[str], width: int) -> list[str]:
    return wrap(", ".join(sorted(parts)), int((width - 12) / LETTER), break_long_words=False)


def _draw_box(name: str, lines: list[str], box: Box) -> Iterator[str]:
    yield (
        f'<rect class="box" x="{box.left}" y="{box.top}" width="{box.width}" '
        f'height="{box.height}" rx="5"/>'
    )
    # In the middle of the box, which is as high as the highest of its row.
    first = box.top + (box.height - LINE * len(lines)) // 2 + 5
    yield f'<text class="name" x="{box.middle}" y="{first}">{escape(name)}</text>'
    for at, line in enumerate(lines, 1):
        y = first + LINE * at + 1
        yield f'<text class="parts" x="{box.middle}" y="{y}">{escape(line)}</text>'


def _draw_arrow(start: Box, end: Box) -> str:
    """Draw an arrow from the bottom of one box to the top of another, as steep as they allow."""
    from_x = start.nearest(end.middle)
    to_x = end.nearest(start.middle)
    from_y = start.top + start.height
    to_y = end.top - 1
    bend = (from_y + to_y) // 2
    return f'<path d="M{from_x},{from_y} C{from_x},{bend} {to_x},{bend} {to_x},{to_y}"/>'


def draw_packages() -> str:
    """Return the drawing of today."""
    return draw(read_imports(modules()), list_parts(modules()))


def main() -> int:
    """Write the drawing."""
    text = draw_packages()
    if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != text:
        PICTURE.write_text(text, encoding="utf-8")
        print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
