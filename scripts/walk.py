"""One walk of the planner as a picture, drawn from the planner itself.

Run: python scripts/walk.py            writes docs/walk.svg, which docs/dynamic-shapes.md shows

The shipped transformer block is planned at its bound of 128 rows; then a caller gives 7 rows, 7 again, 1, and 7 once
more. For each call the picture has what the walk did at every node, in program order. It needs no device: limits are
those that every WebGPU device has. tests/test_docs.py holds the file to the code.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from liveshape.lower.lowering import lower
from liveshape.plan.compiling import compile
from liveshape.plan.groups import LiveNode
from liveshape.plan.plan_state import PlanState, RequestHandler, Step
from liveshape.program.files import open_file

ROOT = Path(__file__).resolve().parents[1]
FILE, PICTURE = ROOT / "liveshape" / "demo" / "block.pte", ROOT / "docs" / "walk.svg"
LENGTHS = (7, 7, 1, 7)
LINE, TOP, MARGIN = 17, 64, 14
PLANNED, KNOWN, FOLLOWED, IDLE = "planned", "known", "followed", "idle"
LEGEND = {
    PLANNED: "its generator runs",
    FOLLOWED: "takes the plan of the first node of its class",
    KNOWN: "takes its own plan of an earlier call",
    IDLE: "not due: nothing that it reads has moved",
}
STYLE = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}.small{fill:#59636e}"
    ".page{fill:#fff;stroke:#d1d9e0}.row{fill:#f6f8fa}.planned{fill:#0969da}.followed{fill:#80b3f0}"
    ".known{fill:none;stroke:#0969da;stroke-width:1.5}.idle{fill:#d1d9e0}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.page{fill:#0d1117;stroke:#3d444d}"
    ".row{fill:#151b23}.planned{fill:#4493f8}.followed{fill:#2f5f9e}.known{stroke:#4493f8}.idle{fill:#3d444d}}"
)


class Visit(NamedTuple):
    """What a walk did at a node, and what the node is after it."""

    what: str
    shape: str
    kernel: str


class WatchedState(PlanState):
    """The planner, noting which nodes a walk comes to, and whose generators run."""

    visited: set[int]
    ran: set[int]

    def _visit(self, node: LiveNode, read: RequestHandler) -> None:
        self.visited.add(node.index)
        super()._visit(node, read)

    def steps(self, node: LiveNode, read: RequestHandler) -> list[Step]:
        self.ran.add(node.index)
        return super().steps(node, read)


def walked(state: WatchedState, length: int) -> list[Visit]:
    """One call at a length: what its walk did at every node."""
    graph = state.plan.graph
    state.visited, state.ran = set(), set()
    (x,) = graph.inputs
    state.set(x, (1, length, 64))
    state.begin()
    state.walk(0, len(graph.nodes), no_data)
    return [Visit(done(state, node), shape_of(state, node), kernel_of(state, node)) for node in state.nodes]


def no_data(node: Any, request: Any) -> Any:
    raise AssertionError("no operator of the block reads data")


def done(state: WatchedState, node: LiveNode) -> str:
    if node.index not in state.visited:
        return IDLE
    if node.index in state.ran:
        return PLANNED
    return KNOWN if node.group.members[0] is node else FOLLOWED


def shape_of(state: WatchedState, node: LiveNode) -> str:
    """The live shape of the last result, or the live scalar."""
    if not node.outputs:
        return str(state.scalar(node.node.written[0]).value)
    return " x ".join(map(str, node.outputs[-1].shape))


def kernel_of(state: WatchedState, node: LiveNode) -> str:
    rows = state.described(node.index)
    return ", ".join(f"{label.partition('<')[0]} ({prod(grid):,})" for label, _, _, grid in rows) or "-"


def name_of(node: LiveNode) -> str:
    """An operator as people call it, from its name in the file.

    Example: `aten.view_copy.default` is `view_copy`.
    """
    parts = node.node.name.split(".")
    return parts[1] if parts[0] in ("aten", "et_vk", "liveshape") else parts[0]


def drawn() -> str:
    """The picture.

    Example: `drawn() == PICTURE.read_text()`.
    """
    state = WatchedState(compile(lower(open_file(FILE), "forward", {})))
    bound = walked(state, 128)
    calls = [walked(state, length) for length in LENGTHS]
    whole = [(110, "7 rows"), (0, "7 again"), (110, "1 row"), (0, "7 once more")]
    widths = [(26, shape + 210 if shape else 84) for shape, _ in whole]
    left = [MARGIN + 28, MARGIN + 140]
    starts = []
    at = left[1] + 110
    for width in widths:
        starts.append(at)
        at += sum(width)
    total, tall = at + MARGIN, TOP + LINE * len(bound) + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {tall}" width="{total}" height="{tall}">',
        f"<title>One walk of the planner at each of four calls</title><style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{total - 1}" height="{tall - 1}" rx="6"/>',
        text(left[0], 24, "node", "head"),
        text(left[1], 24, "at the bound", "head"),
        text(left[1], 40, "128 rows", "small"),
    ]
    for (_, title), start, visits in zip(whole, starts, calls, strict=True):
        ran = sum(visit.what == PLANNED for visit in visits)
        parts += [text(start, 24, title, "head"), text(start, 40, f"generators run: {ran}", "small")]
    for place, node in enumerate(state.nodes):
        top = TOP + place * LINE
        if place % 2 == 0:
            parts.append(
                f'<rect class="row" x="{MARGIN - 6}" y="{top - 4}" width="{total - 2 * MARGIN + 12}" height="17"/>'
            )
        parts += [
            text(MARGIN, top + 9, str(place), "small"),
            text(left[0], top + 9, name_of(node)),
            text(left[1], top + 9, bound[place].shape, "small"),
        ]
        for (shape, _), start, visits in zip(whole, starts, calls, strict=True):
            visit = visits[place]
            parts.append(mark(start, top, visit.what))
            if shape:
                parts += [
                    text(start + 26, top + 9, visit.shape),
                    text(start + 26 + shape, top + 9, visit.kernel, "small"),
                ]
    at, top = MARGIN, TOP + LINE * len(bound) + 14
    for what, words in LEGEND.items():
        parts += [mark(at, top, what), text(at + 18, top + 9, words)]
        at += 44 + round(6.1 * len(words))
    parts.append(
        text(
            MARGIN, top + 36, "Beside a live shape: the kernel, and how many workgroups it is dispatched with.", "small"
        )
    )
    return "\n".join([*parts, "</svg>\n"])


def text(x: int, y: int, words: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{words}</text>'


def mark(x: int, y: int, what: str) -> str:
    if what == IDLE:
        return f'<circle class="idle" cx="{x + 5}" cy="{y + 5}" r="2"/>'
    return f'<rect class="{what}" x="{x}" y="{y}" width="10" height="10" rx="2"/>'


if __name__ == "__main__":
    PICTURE.write_text(drawn())
    print(f"{PICTURE.relative_to(ROOT)} has {len(LENGTHS)} calls")
