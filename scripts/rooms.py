"""The import graph of the package as a picture, drawn from the imports themselves.

Run: python scripts/rooms.py            writes docs/rooms.svg, which docs/structure.md shows

A room is a folder or a file directly below liveshape/. It stands above every room that it imports. Arrows are the
transitive reduction, without those to the ground, which every room may import.
tests/test_docs.py holds the file to the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PICTURE = ROOT / "liveshape", ROOT / "docs" / "rooms.svg"
WIDTH, LINE, GAP, MARGIN, LETTER = 290, 15, 26, 16, 6.2
STYLE = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}.name{font-weight:600;font-size:13px}"
    ".small{font-size:11px;fill:#59636e}rect{fill:#f6f8fa;stroke:#818b98}path{fill:none;stroke:#818b98}"
    "marker path{fill:#818b98;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}rect{fill:#151b23;stroke:#656c76}"
    "path{stroke:#656c76}marker path{fill:#656c76}}"
)
GROUND = (
    "errors",
    "named_function",
    "option_names",
    "named_function",
    "packages",
    "cache_folder",
    "driver_folder",
    "debug_log",
    "disk",
    "progress",
    "shipped",
    "demo",
)
# One line each; a room without one is refused, so that a new one is described.
ABOUT: Mapping[str, str] = {
    "formats": "bytes to dataclasses",
    "graph": "tensors, nodes, traits",
    "kernels": "WGSL as callables",
    "ops": "one generator an operator",
    "lower": "a method as one graph",
    "plan": "how a graph runs",
    "device": "memory, submit, readback",
    "run": "a plan on a device",
    "metadata": "inputs and outputs",
    "program": "a file on a device",
    "check": "every node against a reference",
    "runtime": "executorch.runtime's calls",
    "model": "liveshape.load",
    "export": "checkpoints to .pte",
    "llm": "text in and out",
    "serve": "HTTP, APIs, the chat page",
    "tools": "the commands",
    "cli": "words, help, exit codes",
}


def rooms() -> dict[str, list[Path]]:
    """The files of each room; the package's own `__init__` and `__main__` only name things."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not room.startswith("__"):
            found.setdefault(room, []).append(path)
    return found


def imports(path: Path) -> Iterator[str]:
    """The rooms that a file imports, inside of functions and for type checkers, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("liveshape."))


def arrows(found: Mapping[str, list[Path]]) -> dict[str, set[str]]:
    """The rooms that each room imports."""
    return {
        room: {other for path in paths for other in imports(path) if other in found and other != room}
        for room, paths in found.items()
    }


def below(room: str, imported: Mapping[str, set[str]]) -> set[str]:
    """Every room that can be reached from one; there are no cycles."""
    reached: set[str] = set()
    todo = [room]
    while todo:
        for other in imported[todo.pop()] - reached:
            reached.add(other)
            todo.append(other)
    assert room not in reached, f"{room} imports itself by way of others"
    return reached


def levels(imported: Mapping[str, set[str]]) -> list[list[str]]:
    """Rooms by height, the ground first: each stands right above the highest that it imports."""
    height: dict[str, int] = {}
    for room in sorted(imported, key=lambda room: (len(below(room, imported)), room)):
        height[room] = 1 + max((height[other] for other in imported[room]), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for room, level in sorted(height.items()):
        rows[level].append(room)
    return rows


def direct(imported: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The transitive reduction: arrows that no other path implies."""
    for room, others in imported.items():
        for other in sorted(others):
            if not any(other in below(between, imported) for between in others - {other}):
                yield room, other


def folders(room: str) -> list[str]:
    """Folders inside of a room that have modules."""
    return sorted(path.parent.name for path in (PACKAGE / room).glob("*/__init__.py"))


def drawn() -> str:
    """The picture.

    Example: `drawn() == PICTURE.read_text()`.
    """
    found = rooms()
    imported = {room: others - {*GROUND} for room, others in arrows(found).items() if room not in GROUND}
    rows = levels(imported)
    texts = {room: lines_of(room, found[room]) for room in imported}
    widest = max(len(row) for row in rows)
    total = MARGIN * 2 + widest * WIDTH + (widest - 1) * GAP
    places: dict[str, tuple[float, float, float]] = {}  # left, top and height
    top = float(MARGIN)
    for row in reversed(rows):
        tall = max(len(texts[room]) for room in row) * LINE + 14
        left = (total - len(row) * WIDTH - (len(row) - 1) * GAP) / 2
        for place, room in enumerate(row):
            places[room] = left + place * (WIDTH + GAP), top, tall
        top += tall + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{top + LINE * 2 + 14 + MARGIN:.0f}">',
        f"<title>liveshape: rooms and what they import</title><style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    parts += [arrow(places[room], places[other]) for room, other in direct(imported)]
    parts += [box(places[room], texts[room]) for row in rows for room in row]
    ground = [f"ground: {', '.join(GROUND)}", "errors, extras, files, what the wheel ships; all rooms may import it"]
    parts.append(box((float(MARGIN), top, LINE * 2 + 14.0), ground, total - 2 * MARGIN))
    return "\n".join([*parts, "</svg>\n"])


def lines_of(room: str, paths: list[Path]) -> list[str]:
    """The text of a room: its name, what it is, how many modules, and its folders."""
    count = f"; {len(paths)} modules" if len(paths) > 1 else ""
    found, line = [room, f"{ABOUT[room]}{count}"], ""
    for name in folders(room):
        longer = f"{line}, {name}" if line else name
        if len(longer) * LETTER > WIDTH - 16:
            found.append(f"{line},")
            longer = name
        line = longer
    return [*found, line] if line else found


def box(place: tuple[float, float, float], lines: list[str], width: float = WIDTH) -> str:
    left, top, tall = place
    middle = left + width / 2
    texts = "".join(
        f'<text x="{middle:.0f}" y="{top + 18 + number * LINE:.0f}" text-anchor="middle" '
        f'class="{"name" if number == 0 else "small"}">{text}</text>'
        for number, text in enumerate(lines)
    )
    return f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{tall:.0f}" rx="6"/>{texts}'


def arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x, y = start[0] + WIDTH / 2, start[1] + start[2]
    to, bottom = end[0] + WIDTH / 2, end[1]
    bend = min(40.0, (bottom - y) / 2)
    curve = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to:.0f} {bottom - bend:.0f} {to:.0f} {bottom - 1:.0f}"
    return f'<path d="{curve}" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    PICTURE.write_text(drawn())
    print(f"{PICTURE.relative_to(ROOT)} has {len(rooms())} rooms")
