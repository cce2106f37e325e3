"""The page of `liveshape inspect --html` in Chromium: its bytes, how soon it opens, and frames while it moves.

Run: python -m bench.page [--json FILE]

A 1B Llama as it runs, and a program of more than 5,000 nodes that is not fused, with everything unfolded. The times of
frames are those of the browser's own clock, which ticks 60 times a second; without a GPU the canvas is drawn on the
processor.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from liveshape.graph import Graph, Limits
from liveshape.plan.compiling import compile
from liveshape.tools.measuring.random_llamas import SHAPES, Llama, llama_graph
from liveshape.tools.program_page.document import method_document
from liveshape.tools.program_page.program_html import page
from tests.support.browser import chromium

_FRAME = 1000 / 60
# Moves once a frame, and gives the milliseconds between frames.
_MOVE = """(move) => new Promise((done) => {
  const { graph } = liveshape, gaps = [];
  let before = 0, left = 120;
  const tick = (now) => {
    if (before) gaps.push(now - before);
    before = now;
    if (!left--) return done(gaps);
    if (move === "pan") graph.pan(left % 2 ? 3 : -3, -25);
    else if (move === "zoom") graph.zoom(left > 60 ? 0.97 : 1 / 0.97);
    else document.querySelector(".scroller").scrollTop += 90;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})"""


def programs() -> dict[str, Graph]:
    """What is measured, by name."""
    many = replace(SHAPES["tiny"], layers=132, mix="q4_k_m")
    return {"1b": llama_graph(SHAPES["1b"], Limits()), "5,000 nodes, unfused": Llama(many).graph()}


def measured(browser: Any, file: Path) -> dict[str, Any]:
    """One page: until it is ready, unfolding it, and how long its frames take."""
    shown = browser.new_page(viewport={"width": 1280, "height": 800})
    begin = time.perf_counter()
    shown.goto(file.as_uri())
    shown.wait_for_selector("html[data-ready]")
    found: dict[str, Any] = {"bytes": file.stat().st_size, "opens_seconds": time.perf_counter() - begin}
    unfolding = "(() => { const t = performance.now(); liveshape.graph.foldAll(true); return performance.now() - t })()"
    found["unfold_ms"] = shown.evaluate(unfolding)
    found["boxes"] = shown.evaluate("liveshape.graph.boxes.boxes.length")
    for move in ("pan", "zoom", "whole", "scroll"):
        if move == "whole":
            shown.evaluate("liveshape.graph.fitWhole()")
        if move == "scroll":
            shown.keyboard.press("l")
        gaps = shown.evaluate(_MOVE, "zoom" if move == "whole" else move)
        late = sum(gap > 1.5 * _FRAME for gap in gaps)
        found[move] = {"median_ms": median(gaps), "frames_a_second": 1000 * len(gaps) / sum(gaps), "late": late}
    shown.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the results here, too")
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, graph in programs().items():
            begin = time.perf_counter()
            plan = compile(graph, Limits())
            compiled = time.perf_counter()
            document = method_document(plan.graph, plan)
            made = time.perf_counter()
            file = Path(folder) / "page.html"
            file.write_bytes(page({"program": name, "bytes": 0, "device": None, "methods": [document]}))
            results[name] = {"nodes": len(graph.nodes), "compile_seconds": compiled - begin}
            results[name] |= {"document_seconds": made - compiled, **measured(browser, file)}
            print(name, json.dumps(results[name], indent=2))
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
