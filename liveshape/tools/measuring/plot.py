"""SVG plots with the standard library alone: bar charts and line charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 50, 60
_APART = 32  # least distance between two tick labels
_COLORS = ("#2a6fbb", "#d1622b", "#3a8f4d", "#8a5bb0", "#a03b4b", "#5b6770")
_TEXT = 'font-family="sans-serif" font-size="13" fill="#333"'

Points = Sequence[tuple[float, float]]


def bars(title: str, unit: str, values: Mapping[str, float]) -> str:
    """A bar chart with one bar per name.

    >>> bars("1b", "tokens/s", {"pp512": 12870.0, "tg128": 612.0}).count("<rect")
    3
    """
    top = _round_up(max(values.values(), default=0.0))
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(values), 1)
    parts = []
    for place, (name, value) in enumerate(values.items()):
        x, y = _LEFT + step * (place + 0.2), _y(value, top)
        middle, height = x + 0.3 * step, _HEIGHT - _BOTTOM - y
        parts += [
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{0.6 * step:.1f}" height="{height:.1f}" fill="{_COLORS[0]}"/>',
            _label(middle, y - 6, f"{value:,.4g}"),
            _label(middle, _HEIGHT - _BOTTOM + 20, name),
        ]
    return _page(title, unit, top, parts)


def lines(title: str, unit: str, axis: str, rows: Mapping[str, Points]) -> str:
    """A line chart with one line per name.

    >>> lines("1b", "tokens/s", "tokens before", {"tg128": [(0, 700.0), (4096, 650.0)]}).count("<polyline")
    1
    """
    top = _round_up(max((y for points in rows.values() for _, y in points), default=0.0))
    xs = sorted({x for points in rows.values() for x, _ in points})
    low, span = xs[0], (xs[-1] - xs[0]) or 1

    def place(x: float) -> float:
        return _LEFT + 20 + (_WIDTH - _LEFT - _RIGHT - 40) * (x - low) / span

    parts, free = [], -math.inf
    for x in xs:
        if place(x) >= free:  # tick labels must not overlap
            parts.append(_label(place(x), _HEIGHT - _BOTTOM + 20, f"{x:,.0f}"))
            free = place(x) + _APART
    parts.append(_label(_WIDTH / 2, _HEIGHT - 15, axis))
    for number, (name, points) in enumerate(rows.items()):
        color = _COLORS[number % len(_COLORS)]
        path = " ".join(f"{place(x):.1f},{_y(y, top):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{place(x):.1f}" cy="{_y(y, top):.1f}" r="4" fill="{color}"/>' for x, y in points]
        # Legend below the lines: the axis begins at zero, so there is room.
        y = _HEIGHT - _BOTTOM - 12 - 18 * (len(rows) - 1 - number)
        parts.append(_label(_WIDTH - _RIGHT - 20, y, name, color, "end"))
    return _page(title, unit, top, parts)


def _page(title: str, unit: str, top: float, parts: Sequence[str]) -> str:
    grid = []
    for quarter in range(5):
        value = top * quarter / 4
        y = _y(value, top)
        grid.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        grid.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" {_TEXT}>{value:,.4g}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">'
    ground = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    names = f'<text x="{_LEFT}" y="24" {_TEXT} font-weight="bold">{escape(title)}, {escape(unit)}</text>'
    return "\n".join([head, ground, names, *grid, *parts, "</svg>", ""])


def _label(x: float, y: float, text: str, color: str = "#333", anchor: str = "middle") -> str:
    style = _TEXT.replace("#333", color)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(text)}</text>'


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _round_up(value: float) -> float:
    """Round an axis maximum up to a number that four grid lines divide well.

    >>> _round_up(612.0), _round_up(0.0)
    (800.0, 1.0)
    """
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 4, 8, 10) if step * unit >= value)
