"""The page of `liveshape inspect --html` in a browser: it opens from disk, loads nothing, and follows the reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from liveshape.graph import Limits
from liveshape.lower.problems import Problem
from liveshape.plan.compiling import compile
from liveshape.tools.measuring.random_llamas import SHAPES, llama_graph
from liveshape.tools.program_page.document import method_document
from liveshape.tools.program_page.program_html import page
from tests.cli.test_inspect_html import HOSTILE, hostile_graph

pytestmark = pytest.mark.slow

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def llama() -> dict[str, Any]:
    limits = Limits()
    plan = compile(llama_graph(SHAPES["tiny"], limits), limits)
    return method_document(plan.graph, plan)


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a document from disk; no script of the page may fail, and nothing may be asked for."""
    wrong: list[str] = []
    asked: list[str] = []
    contexts = []

    def opened(*methods: dict[str, Any], width: int = 1200, dark: bool = False, program: str = "model.pte") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        file = tmp_path / f"{len(contexts)}.html"
        file.write_bytes(
            page({"program": program, "bytes": 7, "device": None, "methods": json.loads(json.dumps(methods))})
        )
        made = context.new_page()
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("console", lambda line: wrong.append(line.text))
        made.on("dialog", lambda dialog: wrong.append(dialog.message))
        made.on("request", lambda request: asked.append(request.url))
        made.goto(file.as_uri())
        made.wait_for_selector("html[data-ready]")
        return made

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:image/svg"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == len(contexts)


def details(shown: Page) -> Locator:
    return shown.get_by_role("complementary", name="Details")


def find(shown: Page, text: str) -> None:
    shown.keyboard.press("/")
    expect(shown.get_by_role("combobox", name="Search")).to_be_focused()
    shown.keyboard.type(text)
    shown.keyboard.press("Enter")


def boxes(shown: Page) -> int:
    found: int = shown.evaluate("liveshape.graph.boxes.boxes.length")
    return found


def test_it_opens_with_layers_folded(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    expect(shown.get_by_role("heading", name="model.pte")).to_be_visible()
    expect(details(shown)).to_contain_text("[1, S]")
    expect(details(shown)).to_contain_text(f"{len(llama['nodes'])} nodes")
    drawn = shown.evaluate(
        "(() => { const c = document.querySelector('#picture'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return new Set(new Uint32Array(d.buffer)).size })()"
    )
    assert drawn > 20, "the picture is not empty"


def test_a_slider_moves_shapes_kernels_and_costs(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    find(shown, "custom_sdpa")
    beside = details(shown)
    expect(beside).to_contain_text("[1, S, 8, 32]")
    expect(beside).to_contain_text("[1, 128, 8, 32]")
    expect(beside).to_contain_text("attention/tiled")
    before = beside.inner_text()
    slider = shown.get_by_role("slider", name="S", exact=True)
    slider.focus()
    shown.keyboard.press("Home")
    expect(beside).to_contain_text("[1, 1, 8, 32]")
    expect(beside.get_by_role("listitem").first).to_contain_text("attention/few_rows")
    assert beside.inner_text() != before
    shown.get_by_role("slider", name="start").focus()
    shown.keyboard.press("End")
    slider.focus()
    shown.keyboard.press("End")
    expect(shown.get_by_text("The program refuses these sizes").first).to_be_visible()
    shown.keyboard.press("Home")
    expect(shown.locator("#refused")).to_be_hidden()


def test_search_unfolds_what_it_finds(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    shown.get_by_role("button", name="Fold", exact=True).click()
    folded = boxes(shown)
    shown.keyboard.press("/")
    shown.keyboard.type("custom sdpa")
    expect(shown.get_by_role("listbox").get_by_role("option", selected=True)).to_contain_text("layer 0")
    shown.keyboard.press("ArrowDown")
    expect(shown.get_by_role("listbox").get_by_role("option", selected=True)).to_contain_text("layer 1")
    shown.keyboard.press("Enter")
    expect(details(shown).get_by_role("heading", level=2)).to_contain_text("sdpa")
    expect(details(shown)).to_contain_text("layer 1")
    assert boxes(shown) > folded
    shown.keyboard.press("/")
    shown.get_by_role("combobox", name="Search").fill("nothing has this name")
    expect(shown.get_by_text("Nothing found")).to_be_visible()
    shown.keyboard.press("Escape")
    expect(shown.get_by_role("listbox")).to_be_hidden()


def test_folds_open_and_close_by_keys(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    shown.get_by_role("button", name="Fold", exact=True).click()
    folded = boxes(shown)
    shown.locator("#picture").focus()
    for _ in range(12):
        shown.keyboard.press("ArrowDown")
        if "layers" in details(shown).get_by_role("heading", level=2).inner_text():
            break
    expect(details(shown).get_by_role("heading", level=2)).to_have_text("2 layers")
    shown.keyboard.press("Enter")
    assert boxes(shown) == folded + 2
    shown.keyboard.press("Enter")
    assert boxes(shown) == folded
    shown.keyboard.press("Escape")
    expect(details(shown).get_by_role("heading", level=2)).to_have_text("forward")


def test_a_click_selects_and_a_drag_pans(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    place = shown.evaluate(
        "(() => { const { graph } = liveshape, b = graph.boxes.boxes.find((each) => each.leaf === 2), v = graph.view;"
        "return [v.x + (b.x + b.width / 2) * v.scale, v.y + (b.y + b.height / 2) * v.scale] })()"
    )
    canvas = shown.locator("#picture").bounding_box()
    assert canvas is not None
    x, y = canvas["x"] + place[0], canvas["y"] + place[1]
    shown.mouse.click(x, y)
    expect(details(shown).get_by_role("heading", level=2)).to_have_text("embedding_q4gsw")
    before = shown.evaluate("liveshape.graph.view.x")
    shown.mouse.move(x, y)
    shown.mouse.down()
    shown.mouse.move(x + 60, y + 20, steps=4)
    shown.mouse.up()
    assert shown.evaluate("liveshape.graph.view.x") == before + 60
    scale = shown.evaluate("liveshape.graph.view.scale")
    shown.keyboard.down("Control")
    shown.mouse.wheel(0, -120)
    shown.keyboard.up("Control")
    shown.wait_for_function(f"liveshape.graph.view.scale > {scale}")


def test_the_list_has_every_node_and_few_rows(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    shown.keyboard.press("l")
    grid = shown.get_by_role("grid", name="Nodes")
    expect(grid).to_be_focused()
    expect(grid).to_have_attribute("aria-rowcount", str(len(llama["nodes"]) + 1))
    assert grid.locator(".rows .row").count() < 45
    shown.keyboard.press("End")
    expect(details(shown)).to_contain_text(str(len(llama["nodes"]) - 1))
    shown.get_by_role("button", name="Bytes").click()
    most = grid.locator(".rows .row").first.inner_text()
    shown.get_by_role("button", name="Bytes").click()
    assert grid.locator(".rows .row").first.inner_text() != most


def test_memory_names_what_is_pointed_at(open_page: Open, llama: dict[str, Any]) -> None:
    shown = open_page(llama)
    shown.keyboard.press("m")
    expect(shown.locator("#memory")).to_contain_text("weights")
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("#memory .caption")).to_contain_text("block")
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("Enter")
    expect(details(shown).get_by_role("button", name="overview")).to_be_visible()


@pytest.mark.parametrize("width", [390, 800, 1200])
@pytest.mark.parametrize("dark", [True, False])
def test_nothing_overflows(open_page: Open, llama: dict[str, Any], width: int, dark: bool) -> None:
    shown = open_page(llama, width=width, dark=dark)
    ink = shown.evaluate("getComputedStyle(document.body).color")
    for key in ("g", "l", "m"):
        shown.keyboard.press(key)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.evaluate("document.activeElement.blur()")
    find(shown, "linear")
    beside = shown.evaluate(
        "(() => { const d = document.querySelector('#details'); return [d.scrollWidth, d.clientWidth] })()"
    )
    assert beside[0] <= beside[1]
    shown.evaluate("document.activeElement.blur()")
    shown.keyboard.press("t")
    assert shown.evaluate("getComputedStyle(document.body).color") != ink


@pytest.mark.parametrize(("width", "least"), [(390, 9.5), (1280, 11)])
def test_it_can_be_read_as_it_opens(open_page: Open, llama: dict[str, Any], width: int, least: float) -> None:
    """Labels of nodes in pixels, the columns of the list that fit, the sums above the chart of memory."""
    shown = open_page(llama, width=width)
    assert 13 * shown.evaluate("liveshape.graph.view.scale") >= least
    shown.keyboard.press("l")
    wanted = ("Node", "Result") if width < 800 else ("Node", "Layer", "Result", "Kernels", "Bytes", "Operations")
    for name in wanted:
        place = shown.get_by_role("columnheader", name=name).bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= width
    shown.keyboard.press("m")
    expect(shown.locator("#memory .total")).to_be_in_viewport()


def test_what_cannot_run_is_red_with_its_reason(open_page: Open) -> None:
    graph = hostile_graph()
    plan = compile(graph, Limits())
    lacking = Problem("aten.thing.default (node 5)", "aten.thing.default", "there is no kernel for it")
    shown = open_page(method_document(plan.graph, None, [lacking]))
    alarm = details(shown).locator(".alarm")
    expect(alarm).to_contain_text("1 part cannot run")
    expect(alarm).to_contain_text("there is no kernel for it")
    alarm.get_by_role("button").click()
    expect(details(shown)).to_contain_text("Cannot run: there is no kernel for it")


def test_times_and_divergences_are_shown(open_page: Open, llama: dict[str, Any]) -> None:
    timed = {"name": "pp128", "turns": 1, "seconds": 0.003, "nodes": {"2": 0.001, "3": 0.002}}
    differs = {
        "kind": "operator", "node": "x", "places": [2], "value": "value 8", "reason": "3 of 9 numbers differ",
        "shapes": {"value 0": [1, 7]}, "difference": {"largest": 0.5},
    }  # fmt: skip
    check = {"right": False, "calls": 1, "checked": 9, "fused": 1, "unknown": {}, "divergences": [differs]}
    shown = open_page({**llama, "profiles": [timed], "check": check})
    expect(details(shown)).to_contain_text("Check: 1 divergence")
    expect(details(shown)).to_contain_text("3.000 ms, pp128")
    assert shown.evaluate("liveshape.state.colour") == "time"
    find(shown, "embedding")
    expect(details(shown)).to_contain_text("33.3% of pp128")
    expect(details(shown)).to_contain_text("3 of 9 numbers differ")


def test_hostile_names_stay_text(open_page: Open) -> None:
    plan = compile(hostile_graph(), Limits())
    problem = Problem(f"{HOSTILE} (node 7)", HOSTILE, HOSTILE)
    method = method_document(plan.graph, plan, [problem])
    shown = open_page(method, method, program=HOSTILE)
    expect(shown.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    find(shown, "img")
    expect(details(shown)).to_contain_text(HOSTILE)
    for key in ("l", "m"):
        shown.evaluate("document.activeElement.blur()")
        shown.keyboard.press(key)
    assert shown.locator("img").count() == 0
    assert shown.title().startswith(HOSTILE)


def test_methods_are_chosen(open_page: Open, llama: dict[str, Any]) -> None:
    plan = compile(hostile_graph(), Limits())
    shown = open_page(llama, {**method_document(plan.graph, plan), "name": "decode"})
    shown.get_by_role("combobox", name="Method").select_option("decode")
    expect(details(shown).get_by_role("heading", level=2)).to_have_text("decode")
    expect(shown.get_by_text("Every size of this method is static.")).to_have_count(0)
